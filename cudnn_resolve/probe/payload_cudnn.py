"""Asks copies of cuDNN for their versions; runs as a program of its own and prints one JSON line.

Each copy is asked in a process of its own, all at once, with a time limit: cuDNN ends the process (SIGABRT) where a part of it
cannot be loaded. The loader of such a process gets the directory of the copy first on LD_LIBRARY_PATH, so that the parts of this
copy answer and not those of another one. Python 3.6 grammar, standard library only.

    python payload_cudnn.py '{"seconds": 10, "paths": [], "libraries": ["/opt/cudnn/lib/libcudnn.so.9"]}'
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

try:
    import ctypes
except ImportError:  # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from typing import Any

MARK = "cudnn-resolve-answer "
AT_ONCE = 8
MOST_BYTES = 1 << 18
CHECKS = {
    8: [
        ("ops_infer", "cudnnOpsInferVersionCheck"),
        ("ops_train", "cudnnOpsTrainVersionCheck"),
        ("cnn_infer", "cudnnCnnInferVersionCheck"),
        ("cnn_train", "cudnnCnnTrainVersionCheck"),
        ("adv_infer", "cudnnAdvInferVersionCheck"),
        ("adv_train", "cudnnAdvTrainVersionCheck"),
    ],
    9: [
        ("graph", "cudnnGraphVersionCheck"),
        ("ops", "cudnnOpsVersionCheck"),
        ("cnn", "cudnnCnnVersionCheck"),
        ("adv", "cudnnAdvVersionCheck"),
    ],
}
"""By the major: the part that a function answers for, and the function; 0 = the part is of libcudnn's own release."""


def ask(path: str, write_end: int) -> None:
    """Tells, a JSON list `[key, value]` a line: `loaded`, `version` and `cuda` (encoded), `asking`, `check`, `mapped`, or `error`."""

    def tell(key: str, value: "Any") -> None:
        os.write(write_end, (json.dumps([key, value]) + "\n").encode("ascii"))

    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        tell("error", str(error)[:500])
        return
    tell("loaded", True)
    if os.path.basename(os.path.realpath(path)).partition(".so.")[2].partition(".")[0] == "8":
        open_parts(path)
    version = number(library, "cudnnGetVersion")
    tell("version", version)
    tell("cuda", number(library, "cudnnGetCudartVersion"))
    tell("mapped", mapped())
    for part, name in CHECKS.get(major(version), []):
        function = getattr(library, name, None)
        if function is not None:
            tell("asking", part)
            tell("check", [part, int(function())])
    tell("mapped", mapped())
    tell("done", True)


def open_parts(path: str) -> None:
    """Open the parts of cuDNN 8 where there is no driver, before they are asked for.

    8.5 and 8.6 end the process when they open a part themselves: its initialization looks for libcuda.so in vain, and cuDNN takes that
    error for its own. A part that is open already is not initialized again.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        for part, _ in CHECKS[8]:
            with contextlib.suppress(OSError):
                ctypes.CDLL(os.path.join(os.path.dirname(os.path.realpath(path)), "libcudnn_{}.so.8".format(part)))


def number(library: "ctypes.CDLL", name: str) -> "int | None":
    """What a function without arguments returns as a size_t; None where the library has no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return int(function())


def major(version: "int | None") -> int:
    """The major behind an encoded version: 8904 and 90100."""
    if version is None:
        return 0
    return version // 1000 if version < 10000 else version // 10000


def mapped() -> "list[str]":
    """Paths of the libraries of cuDNN that this process has mapped, links resolved."""
    found = set()
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and os.path.basename(path[0]).startswith("libcudnn"):
                found.add(path[0])
    return sorted(found)


class Child:
    """A process that asks one library: what it told so far, and what it wrote to standard error."""

    def __init__(self, path: str, library_paths: "list[str]") -> None:
        self.told = b""
        self.said = b""
        self.told_pipe, write_end = os.pipe()
        self.said_pipe, error_end = os.pipe()
        os.set_inheritable(write_end, True)
        self.process = os.fork()
        if self.process == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, 0)
                os.dup2(nowhere, 1)  # whatever the library prints is not our answer
                os.dup2(error_end, 2)
                environment = dict(os.environ)
                environment["LD_LIBRARY_PATH"] = ":".join([os.path.dirname(path), *library_paths])
                argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--one", path, str(write_end)]
                os.execve(sys.executable, argv, environment)
            finally:
                os._exit(127)
        os.close(write_end)
        os.close(error_end)
        self.pipes = [self.told_pipe, self.said_pipe]

    def read(self, pipe: int) -> None:
        """Takes what has come on one of its pipes."""
        piece = os.read(pipe, 65536)
        if pipe == self.told_pipe:
            self.told += piece
        else:
            self.said = (self.said + piece)[-4096:]
        if not piece or len(self.told) > MOST_BYTES:
            self.pipes.remove(pipe)
            os.close(pipe)

    def answer(self, grace_seconds: float) -> "dict[str, Any]":
        """What it told, how it ended (`exit`, a signal, or `time` where it did not end after the grace), and its last words."""
        answer = {"checks": {}}  # type: dict[str, Any]
        for line in self.told.decode("ascii", "replace").split("\n")[:-1]:
            key, value = json.loads(line)
            if key == "check":
                answer["checks"][value[0]] = value[1]
            else:
                answer[key] = value
        answer["ended"] = ended(self.process, grace_seconds)
        answer["said"] = self.said.decode("utf-8", "replace")
        return answer


def ended(process: int, grace_seconds: float) -> str:
    """How a process ended: `exit`, the name of a signal, or `time` where it had to be killed after the grace."""
    deadline = time.monotonic() + grace_seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            break
        if time.monotonic() >= deadline:
            os.kill(process, signal.SIGKILL)
            for _ in range(50):  # and no longer: a process that hangs in the kernel does not even die
                if os.waitpid(process, os.WNOHANG)[0]:
                    break
                time.sleep(0.002)
            return "time"
        time.sleep(0.001)
    if not os.WIFSIGNALED(status):
        return "exit"
    try:
        return signal.Signals(os.WTERMSIG(status)).name
    except ValueError:
        return "signal {}".format(os.WTERMSIG(status))


def gather(libraries: "list[str]", library_paths: "list[str]", seconds: float) -> "dict[str, dict[str, Any]]":
    """The answers by path; a library for which no time is left has none."""
    deadline = time.monotonic() + seconds
    waiting = list(libraries)
    running = {}  # type: dict[str, Child]
    answers = {}
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < AT_ONCE:
            path = waiting.pop(0)
            running[path] = Child(path, library_paths)
        pipes = {pipe: child for child in running.values() for pipe in child.pipes}
        for pipe in select.select(list(pipes), [], [], max(0.0, deadline - time.monotonic()))[0]:
            pipes[pipe].read(pipe)
        for path in [path for path, child in running.items() if not child.pipes]:
            answers[path] = running.pop(path).answer(1.0)
    for path, child in running.items():
        answers[path] = child.answer(0.0)
    return answers


def main() -> None:
    """Prints the answers of all libraries as one JSON line, or is the process that asks one of them."""
    if "ctypes" not in sys.modules:
        print("\n" + MARK + json.dumps({"failed": "this Python was built without ctypes"}))
        return
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    if sys.argv[1] == "--one":
        ask(sys.argv[2], int(sys.argv[3]))
        os._exit(0)  # the library's own farewell is not waited for
    question = json.loads(sys.argv[1])
    answers = gather(question["libraries"], question["paths"], question["seconds"])
    print("\n" + MARK + json.dumps({"answers": answers}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
