"""The frame in which every check runs: a process of its own, limited in memory, which tells what it does while it does it.

The question is one JSON object on standard input; `payload` names the program beside this one that answers it. What is told goes to
standard output, a JSON list `[key, value]` behind a mark on each line; what frameworks and libraries print goes to standard error, so
that it neither mixes with the answer nor counts as one. Python 3.6 grammar, standard library only.

    echo '{"payload": "payload_load", "frameworks": [{"module": "torch"}]}' | python payload_run.py
"""

import importlib.util
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

MARK = "cudnn-resolve-answer "
HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.sysconf("SC_PAGE_SIZE")
WATCH_SECONDS = 0.02


class Teller:
    """Writes what a payload tells; `step` is what it is about to do, so that a crash is known for what it happened in."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def __call__(self, key: str, value: "Any" = None) -> None:
        """Tells one thing."""
        line = ("\n" + MARK + json.dumps([key, value]) + "\n").encode("ascii")
        while line:
            line = line[os.write(self.pipe, line) :]


def sibling(name: str) -> "ModuleType":
    """Another payload of this folder; nothing else of the folder can be imported, or it would stand before modules of the target."""
    known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where it is gone."""
    try:
        with open("/proc/{}/statm".format(pid)) as numbers:
            return int(numbers.read().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def parent_of(pid: int) -> int:
    """The process that started another one; 0 where that is gone."""
    try:
        with open("/proc/{}/stat".format(pid)) as words:
            return int(words.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def watch(limit_mib: int, tell: Teller) -> None:
    """A process beside this one ends it when it holds more memory than it may, or when whoever asked is gone.

    A limit of the address space would do harm: libcuda reserves far more than it uses.
    """
    watched, asker = os.getpid(), os.getppid()
    if os.fork():
        return
    try:
        while os.getppid() == watched:
            if parent_of(watched) != asker:
                os.kill(watched, signal.SIGKILL)
                break
            if resident(watched) > limit_mib << 20:
                tell("memory", limit_mib)
                os.kill(watched, signal.SIGKILL)
                break
            time.sleep(WATCH_SECONDS)
    finally:
        os._exit(0)


def error_text(error: BaseException) -> str:
    """An exception in one text, cut where it has no end."""
    return "{}: {}".format(type(error).__name__, str(error)[:4000])


def main() -> None:
    """Runs the payload that the question names; what it raises is told as `failed`."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != HERE]
    sys.modules["payload_run"] = sys.modules["__main__"]
    question = json.loads(sys.stdin.read())
    pipe = os.dup(1)
    os.dup2(2, 1)
    tell = Teller(pipe)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    if question.get("memory_mib"):
        watch(int(question["memory_mib"]), tell)
    log = None  # type: Any
    try:
        if question.get("log"):
            log = sibling("payload_log").Log()
            question["watched"] = log.watched
        if "turn" in question:
            case = sibling("payload_case")
            tell("step", "wait until nobody takes times")
            question["loads"] = case.sign_in(question["turn"], case.PATIENCE)
        sibling(str(question["payload"])).run(question, tell)
    except BaseException as error:  # SystemExit, too: a framework that ends the process is an answer
        why = log.reasons() if log is not None else ""
        tell("failed", error_text(error) + (" (cuDNN: {})".format(why) if why else ""))
    tell("end")
    sys.stderr.flush()
    os._exit(0)  # destructors of broken libraries are not waited for


if __name__ == "__main__":
    main()
