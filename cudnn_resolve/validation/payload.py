"""The skeleton of every check that runs in the target's interpreter: a process of its own that tells each step as it goes.

child.py imports this module and the parts that a check needs, and calls `main`. Answers go to standard output, one line each:
MARK and a JSON list `[key, value]`; what frameworks and libraries print goes to standard error. Python 3.6, standard library only.
"""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MARK = "cudnn-resolve-answer "
PAGE = os.sysconf("SC_PAGE_SIZE")
WATCH_SECONDS = 0.02

PATIENCE = 60.0
"""Seconds after which the turn of a neighbour is not waited for any more: it may hang."""
MOST_LOADING = 16
"""The most children of one card that are looked for while they load; fewer are ever started."""
TIMING = "time a convolution in "
"""Begins the step in which a type is timed."""
WATCHING = "watch "
"""Begins the step in which a profiler watches a case."""
NOT_MADE = ("No OpKernel was registered", "not implemented for '", "is not registered", "Could not find an implementation for")
"""What frameworks say where they have no code for a type, on whatever device."""

CALL = re.compile(rb"function (cudnn[A-Za-z0-9_]{1,80})\(\) called")
REASON = re.compile(rb"^e!\s+Error: ([^\n]{1,500})$", re.MULTILINE)
WORK = re.compile(
    r"cudnn(Convolution(Forward|BiasActivationForward|BackwardData|BackwardFilter)|BackendExecute|RNN(Forward|Backward)\w*"
    r"|FusedOpsExecute|Im2Col)$"
)
"""Functions of cuDNN that compute, apart from those that prepare."""
MOST_BYTES = 64 << 20
"""The most that is read of a log or a profile."""


class Unsupported(Exception):  # noqa: N818 - an answer, not a mistake
    """The framework has no way to do this, which is no fault of the stack."""


class Teller:
    """Writes what a check tells; `step` is what it is about to do, so that a crash is known for what it happened in."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def __call__(self, key: str, value: "Any" = None) -> None:
        """Tell one thing."""
        line = ("\n" + MARK + json.dumps([key, value]) + "\n").encode("ascii")
        while line:
            line = line[os.write(self.pipe, line) :]


def main(question: "dict[str, Any]") -> None:
    """Run the part that the question names, and tell what it raises as `failed`."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    tell = Teller(pipe)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if question.get("memory_mib"):
        watch_memory(int(question["memory_mib"]), tell)
    log = None  # type: Log | None
    try:
        if question.get("log"):
            log = Log()
            question["watched"] = log.watched
        if "turn" in question:
            tell("step", "wait until nobody takes times")
            question["loads"] = sign_in(question["turn"], PATIENCE)
        part = sys.modules[question["payload"]]
        if hasattr(part, "Framework"):
            part.Framework.run(question, tell)
        else:
            part.run(question, tell)
    except BaseException as error:  # SystemExit, too: a framework that ends the process is an answer
        why = log.reasons() if log is not None else ""
        tell("failed", error_text(error, 4000) + (" (cuDNN: {})".format(why) if why else ""))
    tell("end")
    sys.stderr.flush()
    os._exit(0)  # destructors of broken libraries are not waited for


def error_text(error: BaseException, most: int) -> str:
    """An exception in one text, cut where it has no end."""
    return "{}: {}".format(type(error).__name__, str(error)[:most])


# --- limits of the process ---


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


def watch_memory(limit_mib: int, tell: Teller) -> None:
    """Start a process beside this one that ends it when it holds more memory than it may, or when its parent is gone.

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


# --- cuDNN's own log: the proof that cuDNN did the work ---


class Log:
    """What cuDNN writes from now on; ordered before cuDNN is loaded, into a file without a name, so that nothing is left behind."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
        os.environ["CUDNN_LOGINFO_DBG"] = "1"
        os.environ["CUDNN_LOGLEVEL_DBG"] = "3"
        os.environ["CUDNN_LOGDEST_DBG"] = "/proc/self/fd/{}".format(self.file.fileno())
        self.at = 0

    def unread(self, most: int) -> bytes:
        """The last bytes that were written since `calls` was last asked."""
        end = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), most, max(self.at, end - most)) if end > self.at else b""

    def calls(self) -> "dict[str, int]":
        """Count the calls of each function since this was last asked."""
        content = self.unread(MOST_BYTES)
        self.at = os.fstat(self.file.fileno()).st_size
        counted = {}  # type: dict[str, int]
        for found in CALL.finditer(content):
            name = found.group(1).decode("ascii")
            counted[name] = counted.get(name, 0) + 1
        return counted

    def reasons(self) -> str:
        """Why cuDNN refused, in its last words that were not read yet; "" where it says nothing."""
        found = [match.group(1).decode("utf-8", "replace") for match in REASON.finditer(self.unread(1 << 16))]
        return found[-1][:500] if found else ""

    def watched(self, compute: "Callable[[], dict[str, Any]]") -> "dict[str, Any]":
        """What `compute` gives, with `cudnn`: how often cuDNN computed meanwhile, and `logged`: whether it wrote anything at all."""
        self.calls()
        try:
            answer = compute()
        except Exception as error:
            why = self.reasons()
            if why and why not in str(error):
                raise RuntimeError("{}: {} (cuDNN: {})".format(type(error).__name__, error, why)) from error
            raise
        calls = self.calls()
        answer["cudnn"] = {name: count for name, count in calls.items() if WORK.match(name)}
        answer["logged"] = self.at > 0
        return answer


# --- cases ---


def compute_cases(
    question: "dict[str, Any]",
    tell: "Any",
    compute: "Callable[[dict[str, Any]], dict[str, Any]]",
    witness: "Callable[[dict[str, Any]], dict[str, Any]] | None" = None,
) -> None:
    """Tell `case` for every case: its `id`, and the tensors `y`, `dx`, `dw`, or `error`, or `unsupported`.

    Where cuDNN's log does not show that it computed a case, `witness` says what did. Witnesses come after all cases: a profiler that
    crashes, hangs or eats all memory costs no case then.
    """
    asked = set(question.get("witness") or ()) if witness else set()
    silent = []  # type: list[dict[str, Any]]
    watched = question.get("watched") or (lambda once: once())
    for case in question["cases"]:
        tell("step", case["id"])
        before = time.monotonic()
        answer = dict({"id": case["id"]}, **answered(lambda case=case: watched(lambda: compute(case)), 3000))  # type: ignore[misc]
        answer["seconds"] = time.monotonic() - before
        tell("case", answer)
        if case["id"] in asked and "y" in answer and not answer.get("cudnn"):
            silent.append(case)
    for case in silent:
        assert witness is not None
        tell("step", WATCHING + case["id"])
        try:
            evidence = witness(case)
        except Exception as error:
            evidence = {"how": "", "names": [], "why": error_text(error, 300)}
        tell("witness", [case["id"], evidence])


def answered(compute: "Callable[[], dict[str, Any]]", most: int) -> "dict[str, Any]":
    """What `compute` gives, or why it gives nothing: `unsupported` where the framework says that it has no code for this, else `error`."""
    try:
        return dict(compute())
    except Unsupported as error:
        return {"unsupported": str(error)[:500]}
    except Exception as error:
        not_made = any(words in str(error) for words in NOT_MADE)
        return {"unsupported" if not_made else "error": error_text(error, most)}


# --- times, which the children of one card take in turn ---


def take_times(question: "dict[str, Any]", tell: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Tell `speed` for every work while no neighbour loads or takes a time; `beside` says why that could not be had."""
    tell("step", "wait for its turn")
    loads = question.pop("loads", None)
    if loads is not None:
        loads.close()
    turn = None
    if "turn" in question:
        try:
            turn = wait_for_turn(question["turn"], PATIENCE)
            if turn is None:
                tell("beside", "another program of this test did not come to its end in {:g} s".format(PATIENCE))
        except OSError as error:
            tell("beside", "no turns can be taken here: {}".format(error))
    try:
        measure_all(question, tell, measure)
        if turn is not None and is_anyone_loading(question["turn"]):
            tell("beside", "another program of this test began to load meanwhile")
    finally:
        if turn is not None:
            turn.close()


def measure_all(question: "dict[str, Any]", tell: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Tell how long every work takes."""
    for work in question["speed"]:
        tell("step", TIMING + work["type"])
        tell("speed", dict(answered(lambda work=work: measure(work), 1000), type=work["type"]))  # type: ignore[misc]


def sign_in(number: int, seconds: float) -> "socket.socket | None":
    """Take a name to hold while this child loads, once none of that number takes times or the time is up; None where there is no name."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            # First the name, then the look: whoever has the turn does both the other way round, so that one sees the other.
            mine = next(filter(None, (bound(name_of(number, slot)) for slot in range(MOST_LOADING))), None)
            if mine is None or not is_taken(name_of(number)) or time.monotonic() >= deadline:
                return mine
            mine.close()
            time.sleep(0.02)
    except OSError:
        return None


def wait_for_turn(number: int, seconds: float) -> "socket.socket | None":
    """Take the one name of that number among the children of this parent, once none of them loads; None where it took too long."""
    deadline, turn = time.monotonic() + seconds, bound(name_of(number))
    while turn is None or is_anyone_loading(number):
        if time.monotonic() >= deadline:
            if turn is not None:
                turn.close()
            return None
        time.sleep(0.02)
        turn = turn or bound(name_of(number))
    return turn


def is_anyone_loading(number: int) -> bool:
    """True where a child of that number has signed in and is not ready yet."""
    return any(is_taken(name_of(number, slot)) for slot in range(MOST_LOADING))


def name_of(number: int, slot: "int | None" = None) -> str:
    """A name that is no file: it is given back however the process ends, and nothing is left behind."""
    return "\0cudnn-resolve-{}-{}".format(os.getppid(), number) + ("" if slot is None else "-loads-{}".format(slot))


def bound(name: str) -> "socket.socket | None":
    """A socket that has the name now; None where another one has it; OSError where nobody can have it."""
    found = socket.socket(socket.AF_UNIX)
    try:
        found.bind(name)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return found


def is_taken(name: str) -> bool:
    """True where another one has the name."""
    found = bound(name)
    if found is not None:
        found.close()
    return found is None


def timed(once: "Callable[[], Any]", wait: "Callable[[Any], Any]", seconds: float) -> float:
    """Seconds of one call after warm-up, the best of several rounds; `wait` ends when the card has."""
    for _ in range(3):
        wait(once())
    best, repeat, deadline = float("inf"), 1, time.monotonic() + seconds
    while True:
        before = time.monotonic()
        last = None
        for _ in range(repeat):
            last = once()
        wait(last)
        spent = time.monotonic() - before
        best = min(best, spent / repeat)
        if time.monotonic() >= deadline:
            return best
        if spent < 0.02:
            repeat = min(repeat * 4, 4096)


def quietly(call: "Any", *arguments: "Any") -> "Any":
    """What the call gives; None where it fails."""
    try:
        return call(*arguments)
    except Exception:
        return None


def import_named(name: str) -> "Any":
    """The module of a dotted name."""
    return __import__(name, fromlist=["_"])
