"""Run a tool that changes something, such as an installer: all output goes into a log, and the tool ends with this process.

Programs that only answer questions are run by `process`, which limits their time, output and memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from cudnn_resolve.host.disk import refusal, refused
from cudnn_resolve.host.interrupt import deferred_signals, ignored_signals, unblock_signals

TAIL_LINES = 40
_LINE_BYTES = 4096
_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0
_DRAIN_SECONDS = 2.0
"""Longest time of reading after the tool has exited, from a program that it left behind."""
_POLL_SECONDS = 0.1


class ToolResult(Struct, frozen=True, kw_only=True):
    """Outcome of a tool."""

    returncode: int | None
    """None if the tool could not be started."""
    tail: tuple[str, ...] = ()
    """Last lines of its output."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the tool ran and exited with 0."""
        return self.returncode == 0

    def why(self) -> str:
        """Failure in one line."""
        if self.returncode is None:
            return self.tail[-1] if self.tail else "cannot be started"
        errors = [line for line in self.tail if line.lower().lstrip().startswith(("error", "e:", "\u00d7 ", "dpkg: error"))]
        last = (errors or [line for line in self.tail if line.strip()] or [""])[-1].strip()
        ended = f"status {self.returncode}" if self.returncode > 0 else f"signal {-self.returncode}"
        return f"{ended}: {last[:300]}" if last else ended


class Tooling(Struct, frozen=True, kw_only=True):
    """Settings shared by all tools of one run."""

    log: str
    """File to which all output is appended."""
    share: tuple[int, ...] = ()
    """File descriptors that tools inherit: the lock on the environment."""
    environ: Mapping[str, str] = {}
    """The user's variables, from which the environment of each tool is made."""
    cwd: str | None = None
    on_line: Callable[[str], None] | None = None


def run_tool(argv: Sequence[str], tooling: Tooling, *, env: Mapping[str, str], outlives: bool = False) -> ToolResult:
    """Run a tool to its end. Raise WorldError if the log cannot be written.

    The kernel kills the tool if this process dies. With `outlives` it continues in a session of its own instead, since a package manager
    that is killed leaves packages half configured; an interrupt then waits for it.
    """
    began = time.monotonic()
    with refused(tooling.log):
        log = open(tooling.log, "ab", buffering=0)  # noqa: SIM115 - closed below, once the tool has ended
        log.write(f"$ {' '.join(argv)}\n".encode("utf-8", "replace"))
    with log:
        prepare = unblock_signals if outlives else _dying_with(os.getpid())
        process: subprocess.Popen[bytes] | None = None
        try:
            with deferred_signals():  # one that came before the assignment would leave a program that nobody ends
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    cwd=tooling.cwd,
                    pass_fds=tooling.share,
                    preexec_fn=prepare,  # noqa: PLW1509 - it calls prctl(2) and sigmask(2) and nothing else
                    start_new_session=outlives,
                )
            output = _Output(log.write, tooling.on_line)
            _follow(process, output.add)
            output.end()
            process.wait()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if process is not None:
                _end(process, log.write, outlives=outlives)
                if isinstance(error, OSError):  # the log cannot be written: the disk is full
                    raise refusal(error, tooling.log) from None
                raise
            reason = getattr(error, "strerror", None) or str(error)
            return ToolResult(returncode=None, tail=(f"{argv[0]}: {reason}",))
        except BaseException:
            if process is not None:
                _end(process, log.write, outlives=outlives)
            raise
        assert process.stdout is not None
        process.stdout.close()
        with contextlib.suppress(OSError):  # the tool has done its work, whether or not this line can be logged
            log.write(f"[{process.returncode}]\n".encode())
    return ToolResult(returncode=process.returncode, tail=tuple(output.tail), seconds=time.monotonic() - began)


class _Output:
    """Output of a tool, logged as it comes and split into lines."""

    def __init__(self, log: Callable[[bytes], object], on_line: Callable[[str], None] | None) -> None:
        self._log = log
        self._on_line = on_line
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._log(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._add_line(line)
        if len(self._rest) >= _LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Take the last bytes for a line."""
        if self._rest:
            self._add_line(self._rest)
        self._rest = b""

    def _add_line(self, raw: bytes) -> None:
        for start in range(0, max(len(raw), 1), _LINE_BYTES):
            line = raw[start : start + _LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            self.tail.append(line)
            if self._on_line is not None:
                self._on_line(line)


def _follow(process: subprocess.Popen[bytes], take: Callable[[bytes], object]) -> None:
    """Pass the output on until the tool has ended; a program that it leaves behind may hold the pipe open, and is not awaited."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    give_up: float | None = None
    while True:
        if give_up is None and process.poll() is not None:
            give_up = time.monotonic() + _DRAIN_SECONDS
        is_ready = bool(select.select([pipe], [], [], _POLL_SECONDS)[0])
        if is_ready:
            chunk = os.read(pipe, _READ_BYTES)
            if not chunk:  # everybody has closed it
                return
            take(chunk)
        if give_up is not None and (not is_ready or time.monotonic() > give_up):
            return


def _end(process: subprocess.Popen[bytes], log: Callable[[bytes], object], *, outlives: bool) -> None:
    """End the tool; one that `outlives` is awaited instead, even if interrupts follow.

    Its output is read meanwhile, so that it does not block on a full pipe.
    """

    def log_if_possible(chunk: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk does not stop the reading
            log(chunk)

    with ignored_signals():
        if outlives:
            with contextlib.suppress(OSError, ValueError):
                _follow(process, log_if_possible)
            process.wait()
        elif process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _dying_with(parent: int) -> Callable[[], None]:
    """Preparation of a child that asks the kernel to kill it when its parent dies (prctl(2), PR_SET_PDEATHSIG)."""
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        unblock_signals()
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent has died already
            os._exit(1)

    return prepare
