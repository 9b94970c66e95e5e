"""Runs a tool that changes something: its whole output goes into a log, its lines to whoever shows progress, and it ends with us."""

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
from cudnn_resolve.host.interrupt import held_back, let_through, undisturbed

TAIL_LINES = 40
_LINE_BYTES = 4096
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0
_DRAIN_SECONDS = 2.0
_POLL_SECONDS = 0.1


class ToolResult(Struct, frozen=True, kw_only=True):
    """What became of a tool."""

    returncode: int | None
    """None where it could not be started."""
    tail: tuple[str, ...] = ()
    """Its last lines."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True where it ran and said so."""
        return self.returncode == 0

    def why(self) -> str:
        """The failure in one line."""
        if self.returncode is None:
            return self.tail[-1] if self.tail else "it cannot be started"
        errors = [line for line in self.tail if line.lower().lstrip().startswith(("error", "e:", "\u00d7 ", "dpkg: error"))]
        last = (errors or [line for line in self.tail if line.strip()] or [""])[-1].strip()
        ended = f"status {self.returncode}" if self.returncode > 0 else f"signal {-self.returncode}"
        return f"{ended}: {last[:300]}" if last else ended


class Tooling(Struct, frozen=True, kw_only=True):
    """What every tool of one run has in common."""

    log: str
    """File that gets all output."""
    share: tuple[int, ...] = ()
    """Handles that the tool inherits: the hold on the environment."""
    cwd: str | None = None
    on_line: Callable[[str], None] | None = None


def run_tool(argv: Sequence[str], tooling: Tooling, *, env: Mapping[str, str], outlives: bool = False) -> ToolResult:
    """What became of the tool. Without `outlives` the kernel ends it when this process ends.

    With `outlives` it goes on in a session of its own: a package manager that is killed leaves packages half configured.
    """
    began = time.monotonic()
    try:
        log = open(tooling.log, "ab", buffering=0)  # noqa: SIM115 - closed below, with the tool; what is kept back could fail there
        log.write(f"$ {' '.join(argv)}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise refusal(error, tooling.log) from None
    with log:
        prepare = let_through if outlives else _dying_with(os.getpid())
        process: subprocess.Popen[bytes] | None = None
        try:
            with held_back():  # a signal in the middle would leave a program that nobody knows of
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
        with contextlib.suppress(OSError):  # what the tool did counts, not that its last word could not be kept
            log.write(f"[{process.returncode}]\n".encode())
    return ToolResult(returncode=process.returncode, tail=tail, seconds=time.monotonic() - began)


def _follow(process: subprocess.Popen[bytes], keep: Callable[[bytes], object], on_line: Callable[[str], None] | None) -> tuple[str, ...]:
    tail: list[str] = []
    assert process.stdout is not None
    while raw := process.stdout.readline(_LINE_BYTES):
        keep(raw)
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        tail.append(line)
        del tail[:-TAIL_LINES]
        if on_line is not None:
            on_line(line)
    process.wait()
    process.stdout.close()
    return tuple(tail)


def _end(process: subprocess.Popen[bytes], keep: Callable[[bytes], object], *, outlives: bool) -> None:
    """Ends the tool; one that must not be torn off is awaited, whoever presses Ctrl-C again, and read, or it would wait for us."""
    with undisturbed():
        if outlives:
            assert process.stdout is not None
            with contextlib.suppress(OSError, ValueError):
                _drain(process, process.stdout, keep)
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


def _drain(process: subprocess.Popen[bytes], pipe: IO[bytes], keep: Callable[[bytes], object]) -> None:
    """Keep all that the tool said; a program that it left behind may hold the pipe open, and is not waited for."""
    os.set_blocking(pipe.fileno(), False)
    ended: float | None = None
    raw: bytes | None = pipe.read(1 << 20)  # what is in the buffer, too
    while True:
        if raw:
            with contextlib.suppress(OSError):  # a full disk does not stop the reading
                keep(raw)
        if ended is None and process.poll() is not None:
            ended = time.monotonic()
        if ended is not None and (not raw or time.monotonic() - ended > _DRAIN_SECONDS):
            return
        if raw == b"":
            return  # nobody has it open any more
        if not raw:
            select.select([pipe], [], [], _POLL_SECONDS)
        raw = pipe.read(1 << 20)


def _dying_with(parent: int) -> Callable[[], None]:
    """What a child does before it becomes the tool: it asks to be killed when we are (prctl(2), PR_SET_PDEATHSIG)."""
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        let_through()
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it was already too late
            os._exit(1)

    return prepare
