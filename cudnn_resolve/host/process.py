"""Run one program within bounds on time, output and memory, and kill whatever it leaves behind.

For programs that only answer questions. Tools that change something are run by `run_tool`, which never cuts them off.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from cudnn_resolve.host.protocol import CommandResult

OUTPUT_LIMIT_BYTES = 16 << 20
"""Bytes kept of each stream; a program that prints more is stopped."""

MEMORY_LIMIT_MIB = 8192
"""Default limit on private writable memory; what libcuda reserves without using it does not count."""

_MARKER = "CUDNN_RESOLVE_CHILD"
"""Environment variable that identifies descendants, whatever session they are in by now."""
_SWEEPS = 5
"""Searches for descendants: they may start more while they are being killed."""
_SIGNALS = {int(number): number.name for number in signal.Signals}
_GRACE_SECONDS = 0.3
"""Wait for output of descendants after the program itself has exited."""
_READ_BYTES = 1 << 16
_running: dict[int, bytes] = {}
"""Programs that run now, in any thread: process id to the marker in the environment of its descendants."""
_starting = threading.Lock()
_START_SECONDS = 1.0
"""Wait at exit for a program that is just being started."""


def run_process(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str],
    text: str | None = None,
    memory_limit_mib: int | None = None,
) -> CommandResult:
    """Run a program with `text` on standard input, then kill its process group and every other descendant."""
    marker = f"{os.getpid()}.{time.monotonic_ns()}"
    try:
        with _starting:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**env, _MARKER: marker},
                start_new_session=True,
            )
            _running[process.pid] = f"{_MARKER}={marker}".encode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return CommandResult(missing=True, stderr=f"{argv[0]}: {reason}")
    exchange = _Exchange(process, (text or "").encode("utf-8", "replace"))
    try:
        _limit_memory(process.pid, memory_limit_mib or MEMORY_LIMIT_MIB)
        ended = exchange.follow(time.monotonic() + timeout_seconds)
    finally:
        environment_entry = _running.pop(process.pid)
        exchange.close()
        _kill_strays(process.pid, environment_entry)
    exited, status = ended == "exit", process.returncode
    return CommandResult(
        returncode=status if exited and status >= 0 else None,
        signal=_SIGNALS.get(-status, f"signal {-status}") if exited and status < 0 else None,
        timed_out=ended == "time",
        flooded=ended == "flood",
        stdout=exchange.text("stdout"),
        stderr=exchange.text("stderr"),
    )


@atexit.register
def end_running() -> None:
    """Kill programs whose threads nobody awaits any more: the threads are daemons, and the programs would outlive this process."""
    _starting.acquire(timeout=_START_SECONDS)  # never released: no further program is started
    for pid, environment_entry in tuple(_running.items()):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _kill_strays(pid, environment_entry)


class _Exchange:
    """The pipes of one running program."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        self._process = process
        self._text = text
        self._chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}
        self._selector = selectors.DefaultSelector()
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, name)
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                event = selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ
                self._selector.register(pipe, event, name)

    def follow(self, deadline: float) -> Literal["exit", "time", "flood"]:
        """Pass data until the program exits, the deadline is over, or the output exceeds the limit."""
        give_up = deadline
        while True:
            now = time.monotonic()
            if now >= give_up:
                return self._drain() if self._has_exited() else "time"
            if not self._selector.get_map():
                if self._has_exited():
                    return "exit"
                time.sleep(min(0.002, give_up - now))
                continue
            is_idle = not self._transfer(min(0.05, give_up - now))
            if self._is_flooded():
                return "flood"
            if is_idle and give_up == deadline and self._has_exited():
                # A descendant holds the pipes open.
                give_up = min(deadline, now + _GRACE_SECONDS)

    def _drain(self) -> Literal["exit", "flood"]:
        """Pass what is already in the pipes: on a busy machine the grace period may be over before it was read."""
        while self._transfer(0):
            if self._is_flooded():
                return "flood"
        return "exit"

    def _transfer(self, wait_seconds: float) -> bool:
        """Read and write what is ready; False if nothing was."""
        ready = self._selector.select(wait_seconds)
        for key, _ in ready:
            if key.data == "stdin":
                self._write(key)
            else:
                self._read(key)
        return bool(ready)

    def _is_flooded(self) -> bool:
        return max(self._sizes.values()) > OUTPUT_LIMIT_BYTES

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            chunk = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._selector.unregister(key.fileobj)
            return
        self._chunks[key.data].append(chunk)
        self._sizes[key.data] += len(chunk)

    def _write(self, key: selectors.SelectorKey) -> None:
        try:
            self._text = self._text[os.write(key.fd, self._text[:_READ_BYTES]) :] if self._text else b""
        except BlockingIOError:
            return
        except OSError:  # the program has closed its standard input
            self._text = b""
        if not self._text:
            self._selector.unregister(key.fileobj)
            if self._process.stdin is not None:
                self._process.stdin.close()

    def close(self) -> None:
        """Kill the process group, close the pipes and reap the program."""
        self._selector.close()
        # The group exists until its leader is reaped, so this cannot hit anybody else.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, where not even SIGKILL reaches it
            self._process.wait(_GRACE_SECONDS * 10)

    def text(self, name: str) -> str:
        """Decoded output of a stream, cut at the limit."""
        return b"".join(self._chunks[name])[:OUTPUT_LIMIT_BYTES].decode("utf-8", "replace")

    def _has_exited(self) -> bool:
        """Whether the program has exited; it is not reaped, so that its process group stays its own."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _limit_memory(pid: int, limit_mib: int) -> None:
    """Limit the memory of a process that has just been started, and of its children.

    RLIMIT_DATA, private writable memory, rather than the address space: libcuda reserves far more of that than it uses.
    """
    import resource

    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        limit = limit_mib << 20 if hard == resource.RLIM_INFINITY else min(limit_mib << 20, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


def _kill_strays(first: int, environment_entry: bytes) -> None:
    """Kill descendants in sessions of their own, which the signal to the process group does not reach.

    `first` is the process id of the program: lower ids are older, unless the counter has wrapped since.
    """
    for _ in range(_SWEEPS):
        try:
            with open("/proc/loadavg", encoding="ascii") as file:
                wrapped = int(file.read().split()[-1]) < first
            later = [int(name) for name in os.listdir("/proc") if name.isdigit() and (wrapped or int(name) > first)]
        except (OSError, ValueError, IndexError):
            return
        strays = [pid for pid in later if _is_marked(pid, environment_entry)]
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not strays:
            return


def _is_marked(pid: int, environment_entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return environment_entry in file.read().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return False
