"""Answers questions about the machine that it runs on: files read, folders listed, programs run, each within bounds.

The controller sends this text with its questions into a Python of the machine, which needs nothing else; for the machine that the package
itself runs on it reads by the same functions. Python 3.6 grammar, standard library only. It changes nothing: what the questions need of the
package's own programs lies in a temporary folder while it runs.
"""

import binascii
import contextlib
import os
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

HERE = "{cudnn_resolve}"
"""Stands in a question where the path of the carried programs belongs."""
MOST_OUTPUT = 16 << 20
MEMORY_MIB = 2 << 10
NAMES = ("HOME", "PATH", "VIRTUAL_ENV", "PYTHONPATH", "XDG_DATA_HOME", "PYENV_ROOT", "KUBERNETES_SERVICE_HOST", "container")
BEGINNINGS = ("LD_", "CUDA", "CONDA", "COLAB_", "KAGGLE_", "NVIDIA_", "CUDNN", "UV_PYTHON", "XLA_", "TF_", "WSL")
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "JWT", "AUTH", "CREDENTIAL")


def environment() -> "dict[str, str]":
    """The variables that facts depend on; others may hold secrets and stay here."""
    return {name: value for name, value in os.environ.items() if is_told(name)}


def is_told(name: str) -> bool:
    """True for a variable that facts depend on and that holds no secret by its name."""
    return (name in NAMES or name.startswith(BEGINNINGS)) and not any(part in name.upper() for part in SECRET)


def run(
    folder: str, argv: "list[str]", seconds: float, changed: "dict[str, Any]", text: "str | None", memory: "int | None"
) -> "dict[str, Any]":
    """What became of a program."""
    import resource  # those who only read files do not pay for these
    import subprocess
    import tempfile

    environ = dict(os.environ, LC_ALL="C")
    for name, value in changed.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    limit = (memory or MEMORY_MIB) << 20

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # a stricter limit holds already
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as wrong, tempfile.TemporaryFile() as given:
        given.write((text or "").replace(HERE, folder).encode("utf-8", "surrogateescape"))
        given.seek(0)
        words = [one.replace(HERE, folder) for one in argv]
        try:
            child = subprocess.Popen(
                words,
                stdin=given,
                stdout=said,
                stderr=wrong,
                env=environ,
                cwd="/",
                start_new_session=True,
                preexec_fn=bounded,  # noqa: PLW1509 - there are no threads here
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"missing": True, "stderr": "{}: {}".format(argv[0], getattr(error, "strerror", None) or error)}
        answer = waited(child, seconds, (said.fileno(), wrong.fileno()))
        for name, stream in (("stdout", said), ("stderr", wrong)):
            stream.seek(0)
            answer[name] = stream.read(MOST_OUTPUT).decode("utf-8", "replace").replace(folder, HERE)
    return answer


def waited(child: "subprocess.Popen[bytes]", seconds: float, streams: "tuple[int, ...]") -> "dict[str, Any]":
    """How a program ended; it is killed with all its children where it takes too long or prints too much."""

    def floods() -> bool:
        return any(os.fstat(one).st_size > MOST_OUTPUT for one in streams)

    end = time.monotonic() + seconds
    pause = 0.002
    late = False
    while child.poll() is None and not late and not floods():
        late = time.monotonic() > end
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    if late:
        return {"timed_out": True}
    if floods():  # it may have printed all that, and ended, between two looks
        return {"flooded": True}
    return {"returncode": code} if code >= 0 else {"signal": signal.Signals(-code).name}


def read(path: str, offset: int, size: int) -> "bytes | None":
    """Bytes of a regular file, or of one of the kernel's, which give less at a time than asked; None where there is no readable one."""
    try:  # not blocking: a pipe or a device in the place of a file must not stop us
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        parts = []
        while size > 0:
            part = os.pread(handle, min(size, 1 << 20), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(handle)


def look(path: str) -> "dict[str, Any]":
    """What is at a path, links followed; OSError or ValueError where nothing is."""
    found = os.stat(path)
    return {
        "is_file": stat.S_ISREG(found.st_mode),
        "is_dir": stat.S_ISDIR(found.st_mode),
        "executable": os.access(path, os.X_OK),
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
    }


def answer(folder: str, kind: str, words: "list[Any]") -> "Any":
    """The answer to one question; what is not there is an answer, too."""
    if kind == "run":
        return run(folder, *words)
    path = words[0].replace(HERE, folder)
    try:
        if kind in ("read_text", "read_bytes"):
            content = read(path, words[1], words[2])
            if content is None or kind == "read_text":
                return None if content is None else content.decode("utf-8", "replace")
            return binascii.b2a_base64(content).decode("ascii")
        if kind == "list_dir":
            return sorted(os.listdir(path))
        return look(path) if kind == "stat" else os.path.realpath(path)
    except (OSError, ValueError):
        return {"list_dir": [], "realpath": path}.get(kind)


def main(job: "dict[str, Any]") -> "dict[str, Any]":
    """The answers to the questions of a job, in their order."""
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="cudnn-resolve-")
    try:
        for name, text in job["files"].items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        answers = [answer(folder, kind, words) for kind, words in job["questions"]]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"answers": answers, "environ": environment(), "python": sys.executable or ""}
