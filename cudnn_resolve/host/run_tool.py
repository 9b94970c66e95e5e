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
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from msgspec import Struct

from cudnn_resolve.host.disk import refusal
from cudnn_resolve.host.interrupt import deferred_signals, ignored_signals, unblock_signals

TAIL_LINES = 40
_LINE_BYTES = 4096
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0
_DRAIN_SECONDS = 2.0
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
    cwd: str | None = None
    on_line: Callable[[str], None] | None = None


def run_tool(argv: Sequence[str], tooling: Tooling, *, env: Mapping[str, str], outlives: bool = False) -> ToolResult:
    """Run a tool to its end. Raise WorldError if the log cannot be written.

    The kernel kills the tool if this process dies. With `outlives` it continues in a session of its own instead, since a package manager
    that is killed leaves packages half configured; an interrupt then waits for it.
    """
    began = time.monotonic()
    try:
        log = open(tooling.log, "ab", buffering=0)  # noqa: SIM115 - closed below, once the tool has ended
        log.write(f"$ {' '.join(argv)}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise refusal(error, tooling.log) from None
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
            tail = _follow(process, log.write, tooling.on_line)
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
        with contextlib.suppress(OSError):  # the tool has done its work, whether or not this line can be logged
            log.write(f"[{process.returncode}]\n".encode())
    return ToolResult(returncode=process.returncode, tail=tail, seconds=time.monotonic() - began)


def _follow(process: subprocess.Popen[bytes], log: Callable[[bytes], object], on_line: Callable[[str], None] | None) -> tuple[str, ...]:
    """Log the output until the tool ends, and return its last lines."""
    tail: list[str] = []
    assert process.stdout is not None
    while raw := process.stdout.readline(_LINE_BYTES):
        log(raw)
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        tail.append(line)
        del tail[:-TAIL_LINES]
        if on_line is not None:
            on_line(line)
    process.wait()
    process.stdout.close()
    return tuple(tail)


def _end(process: subprocess.Popen[bytes], log: Callable[[bytes], object], *, outlives: bool) -> None:
    """End the tool; one that `outlives` is awaited instead, even if interrupts follow.

    Its output is read meanwhile, so that it does not block on a full pipe.
    """
    with ignored_signals():
        if outlives:
            assert process.stdout is not None
            with contextlib.suppress(OSError, ValueError):
                _drain(process, process.stdout, log)
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


def _drain(process: subprocess.Popen[bytes], pipe: IO[bytes], log: Callable[[bytes], object]) -> None:
    """Log the remaining output of a tool; a program left behind that holds the pipe open is awaited for two seconds only."""
    os.set_blocking(pipe.fileno(), False)
    ended: float | None = None
    raw: bytes | None = pipe.read(1 << 20)  # the buffer of the pipe first
    while True:
        if raw:
            with contextlib.suppress(OSError):  # a full disk does not stop the reading
                log(raw)
        if ended is None and process.poll() is not None:
            ended = time.monotonic()
        if ended is not None and (not raw or time.monotonic() - ended > _DRAIN_SECONDS):
            return
        if raw == b"":
            return  # everybody has closed it
        if not raw:
            select.select([pipe], [], [], _POLL_SECONDS)
        raw = pipe.read(1 << 20)


def _dying_with(parent: int) -> Callable[[], None]:
    """Preparation of a child that asks the kernel to kill it when its parent dies (prctl(2), PR_SET_PDEATHSIG)."""
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        unblock_signals()
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent has died already
            os._exit(1)

    return prepare
