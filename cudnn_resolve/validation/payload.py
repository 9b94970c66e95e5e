"""Frame of every payload: a process of its own in the target's interpreter that announces each step before it takes it.

child.py imports this module and the parts that a check needs, and calls `main`. Events go to standard output, one per line: MARK and a
JSON list `[key, value]`; output of frameworks and libraries goes to standard error. Python 3.6, standard library only.
"""

import contextlib
import json
import os
import re
import signal
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
WATCHING = "watch "
"""Prefix of the step in which a profiler watches a case."""
NOT_IMPLEMENTED = ("No OpKernel was registered", "not implemented for '", "is not registered", "Could not find an implementation for")
"""Errors of frameworks that have no code for a type on any device."""

CALL = re.compile(rb"function (cudnn[A-Za-z0-9_]{1,80})\(\) called")
REASON = re.compile(rb"^e!\s+Error: ([^\n]{1,500})$", re.MULTILINE)
WORK = re.compile(
    r"cudnn(Convolution(Forward|BiasActivationForward|BackwardData|BackwardFilter)|BackendExecute|RNN(Forward|Backward)\w*"
    r"|FusedOpsExecute|Im2Col)$"
)
"""Functions of cuDNN that compute, as opposed to prepare."""
MOST_BYTES = 64 << 20
"""Read limit for a log or profile."""


class Unsupported(Exception):  # noqa: N818 - an answer, not a mistake
    """The framework does not support this, which is no fault of the stack."""


def emitter(pipe: int) -> "Callable[..., None]":
    """Function that writes an event. A `step` names what comes next, so that a crash can be attributed to it."""

    def emit(key: str, value: "Any" = None) -> None:
        line = ("\n" + MARK + json.dumps([key, value]) + "\n").encode("ascii")
        while line:
            line = line[os.write(pipe, line) :]

    return emit


def main(question: "dict[str, Any]") -> None:
    """Run the part named in the question; an exception becomes a `failed` event."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    emit = emitter(pipe)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if question.get("memory_mib"):
        watch_memory(int(question["memory_mib"]), emit)
    log = None  # type: CudnnLog | None
    try:
        if question.get("log"):
            log = question["log"] = CudnnLog()
        part = sys.modules[question["payload"]]
        (part.Framework if hasattr(part, "Framework") else part).run(question, emit)
    except BaseException as error:  # SystemExit, too: a framework that ends the process is an answer
        why = log.reasons() if log is not None else ""
        emit("failed", error_text(error, 4000) + (" (cuDNN: {})".format(why) if why else ""))
    emit("end")
    sys.stderr.flush()
    os._exit(0)  # skip destructors: those of broken libraries may hang


def error_text(error: BaseException, most: int) -> str:
    """Type and message of an exception, cut to `most` characters."""
    return "{}: {}".format(type(error).__name__, str(error)[:most])


def try_call(call: "Any", *arguments: "Any") -> "Any":
    """Result of a call, or None if it fails."""
    try:
        return call(*arguments)
    except Exception:
        return None


def import_named(name: str) -> "Any":
    """Import a dotted module name."""
    return __import__(name, fromlist=["_"])


# --- limits of the process ---


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 if it is gone."""
    try:
        with open("/proc/{}/statm".format(pid)) as numbers:
            return int(numbers.read().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def parent_of(pid: int) -> int:
    """Parent of a process; 0 if it is gone."""
    try:
        with open("/proc/{}/stat".format(pid)) as words:
            return int(words.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def watch_memory(limit_mib: int, emit: "Callable[..., None]") -> None:
    """Fork a watchdog that kills this process when it exceeds its memory limit or loses its parent.

    Limiting the address space would do harm: libcuda reserves far more than it uses.
    """
    watched, parent = os.getpid(), os.getppid()
    if os.fork():
        return
    try:
        while os.getppid() == watched:
            if parent_of(watched) != parent:
                os.kill(watched, signal.SIGKILL)
                break
            if resident_bytes(watched) > limit_mib << 20:
                emit("memory", limit_mib)
                os.kill(watched, signal.SIGKILL)
                break
            time.sleep(WATCH_SECONDS)
    finally:
        os._exit(0)


# --- cuDNN's own log: the proof that cuDNN did the work ---


class CudnnLog:
    """cuDNN's log from now on; requested before cuDNN is loaded, and written to an unnamed file that leaves nothing behind."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
        os.environ["CUDNN_LOGINFO_DBG"] = "1"
        os.environ["CUDNN_LOGLEVEL_DBG"] = "3"
        os.environ["CUDNN_LOGDEST_DBG"] = "/proc/self/fd/{}".format(self.file.fileno())
        self.position = 0

    def unread(self, most: int) -> bytes:
        """Last bytes written since the last call of `calls`."""
        end = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), most, max(self.position, end - most)) if end > self.position else b""

    def calls(self) -> "dict[str, int]":
        """Count calls by function since the last time."""
        content = self.unread(MOST_BYTES)
        self.position = os.fstat(self.file.fileno()).st_size
        counts = {}  # type: dict[str, int]
        for match in CALL.finditer(content):
            name = match.group(1).decode("ascii")
            counts[name] = counts.get(name, 0) + 1
        return counts

    def reasons(self) -> str:
        """Last unread error message of cuDNN, or ""."""
        found = [match.group(1).decode("utf-8", "replace") for match in REASON.finditer(self.unread(1 << 16))]
        return found[-1][:500] if found else ""

    def watch(self, compute: "Callable[[dict[str, Any]], dict[str, Any]]", case: "dict[str, Any]") -> "dict[str, Any]":
        """Result of `compute`, with `cudnn`: number of calls of computing functions, and `logged`: whether cuDNN ever logged anything."""
        self.calls()
        try:
            answer = compute(case)
        except Exception as error:
            why = self.reasons()
            if why and why not in str(error):
                raise RuntimeError("{}: {} (cuDNN: {})".format(type(error).__name__, error, why)) from error
            raise
        calls = self.calls()
        answer["cudnn"] = {name: count for name, count in calls.items() if WORK.match(name)}
        answer["logged"] = self.position > 0
        return answer


# --- cases ---


def compute_cases(
    question: "dict[str, Any]",
    emit: "Any",
    compute: "Callable[[dict[str, Any]], dict[str, Any]]",
    witness: "Callable[[dict[str, Any]], dict[str, Any]] | None" = None,
) -> None:
    """Emit `case` for every case: its `id`, and the tensors `y`, `dx`, `dw`, or `error`, or `unsupported`.

    `witness` observes cases in which cuDNN's log shows no computation. Witnesses run after all cases, so that a profiler that crashes,
    hangs or exhausts the memory costs no case.
    """
    watched_ids = set(question.get("witness") or ()) if witness else set()
    silent = []  # type: list[dict[str, Any]]
    log = question.get("log")  # type: CudnnLog | None
    for case in question["cases"]:
        emit("step", case["id"])
        before = time.monotonic()
        answer = dict(result_or_error(3000, log.watch, compute, case) if log else result_or_error(3000, compute, case), id=case["id"])
        answer["seconds"] = time.monotonic() - before
        emit("case", answer)
        if case["id"] in watched_ids and "y" in answer and not answer.get("cudnn"):
            silent.append(case)
    for case in silent:
        assert witness is not None
        emit("step", WATCHING + case["id"])
        try:
            evidence = witness(case)
        except Exception as error:
            evidence = {"how": "", "names": [], "why": error_text(error, 300)}
        emit("witness", [case["id"], evidence])


def result_or_error(most: int, call: "Callable[..., dict[str, Any]]", *arguments: "Any") -> "dict[str, Any]":
    """Result of a call, or `unsupported` if the framework has no code for it, or else `error`, cut to `most` characters."""
    try:
        return dict(call(*arguments))
    except Unsupported as error:
        return {"unsupported": str(error)[:500]}
    except Exception as error:
        is_missing = any(words in str(error) for words in NOT_IMPLEMENTED)
        return {"unsupported" if is_missing else "error": error_text(error, most)}
