"""Answer questions about the machine that it runs on: read files, list directories, run programs, each within bounds.

The controller sends this source with its questions to a Python of the machine, which needs nothing else; on its own machine the package
uses the same functions to read. Python 3.6 grammar, standard library only. It changes nothing: payloads of the package that questions
need lie in a temporary directory while it runs.
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

PLACEHOLDER = "{cudnn_resolve}"
"""Stands for the directory of the payloads in questions."""
MOST_OUTPUT = 16 << 20
MEMORY_MIB = 2 << 10
NAMES = ("HOME", "PATH", "VIRTUAL_ENV", "PYTHONPATH", "XDG_DATA_HOME", "PYENV_ROOT", "KUBERNETES_SERVICE_HOST", "container")
PREFIXES = ("LD_", "CUDA", "CONDA", "COLAB_", "KAGGLE_", "NVIDIA_", "CUDNN", "UV_PYTHON", "XLA_", "TF_", "WSL")
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "JWT", "AUTH", "CREDENTIAL")


def environment() -> "dict[str, str]":
    """Variables that facts depend on; others may hold secrets and are not sent."""
    return {name: value for name, value in os.environ.items() if is_relevant(name)}


def is_relevant(name: str) -> bool:
    """Whether facts depend on a variable and its name does not suggest a secret."""
    return (name in NAMES or name.startswith(PREFIXES)) and not any(part in name.upper() for part in SECRET)


def run(
    folder: str, argv: "list[str]", seconds: float, changed: "dict[str, Any]", text: "str | None", memory: "int | None"
) -> "dict[str, Any]":
    """Run a program to its end, within bounds."""
    import resource  # slow to import, and most questions only read files
    import subprocess
    import tempfile

    environ = dict(os.environ, LC_ALL="C")
    for name, value in changed.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    limit = (memory or MEMORY_MIB) << 20

    def limit_resources() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # a stricter limit is already set
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, tempfile.TemporaryFile() as stdin:
        stdin.write((text or "").replace(PLACEHOLDER, folder).encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        try:
            child = subprocess.Popen(
                [word.replace(PLACEHOLDER, folder) for word in argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environ,
                cwd="/",
                start_new_session=True,
                preexec_fn=limit_resources,  # noqa: PLW1509 - there are no threads here
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"missing": True, "stderr": "{}: {}".format(argv[0], getattr(error, "strerror", None) or error)}
        result = wait_for(child, seconds, (stdout.fileno(), stderr.fileno()))
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            stream.seek(0)
            result[name] = stream.read(MOST_OUTPUT).decode("utf-8", "replace").replace(folder, PLACEHOLDER)
    return result


def wait_for(child: "subprocess.Popen[bytes]", seconds: float, outputs: "tuple[int, ...]") -> "dict[str, Any]":
    """Outcome of a program; it is killed with its process group if it takes too long or prints too much."""

    def floods() -> bool:
        return any(os.fstat(output).st_size > MOST_OUTPUT for output in outputs)

    deadline = time.monotonic() + seconds
    pause = 0.002
    late = False
    while child.poll() is None and not late and not floods():
        late = time.monotonic() > deadline
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    if late:
        return {"timed_out": True}
    if floods():  # it may have printed all that and ended between two checks
        return {"flooded": True}
    return {"returncode": code} if code >= 0 else {"signal": signal.Signals(-code).name}


def read(path: str, offset: int, size: int) -> "bytes | None":
    """Bytes of a regular file, or of one of the kernel's, which return less than was asked for; None if there is no readable file."""
    try:  # non-blocking, so that a pipe or device in place of a file cannot hang us
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


def status(path: str) -> "dict[str, Any]":
    """The file or directory at a path, links followed; raise OSError or ValueError if there is none."""
    found = os.stat(path)
    return {
        "is_file": stat.S_ISREG(found.st_mode),
        "is_dir": stat.S_ISDIR(found.st_mode),
        "executable": os.access(path, os.X_OK),
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
    }


def answer(folder: str, kind: str, words: "list[Any]") -> "Any":
    """Answer to one question; a missing file is an answer, too."""
    if kind == "run":
        return run(folder, *words)
    path = words[0].replace(PLACEHOLDER, folder)
    try:
        if kind in ("read_text", "read_bytes"):
            content = read(path, words[1], words[2])
            if content is None or kind == "read_text":
                return None if content is None else content.decode("utf-8", "replace")
            return binascii.b2a_base64(content).decode("ascii")
        if kind == "list_dir":
            return sorted(os.listdir(path))
        return status(path) if kind == "stat" else os.path.realpath(path)
    except (OSError, ValueError):
        return {"list_dir": [], "realpath": path}.get(kind)


def main(job: "dict[str, Any]") -> "dict[str, Any]":
    """Answers to the questions of a job, in order."""
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
