"""Runs one program that may hang, crash, flood its output or leave children behind, and comes back in time."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cudnn_resolve.host.protocol import CommandResult

OUTPUT_LIMIT_BYTES = 16 << 20
"""How much of each stream is kept; a program that prints more is stopped."""

MEMORY_LIMIT_MIB = 8192
"""Private writable memory of a program of which nobody says more; what libcuda reserves without using it does not count."""
_MARK = "CUDNN_RESOLVE_CHILD"
"""Variable by which what a program left behind is known, in whatever session it is by now."""
_ROUNDS = 5
"""How often what a program left behind is looked for: it may start more while it is ended."""
_ROUND_SECONDS = 0.5
"""How often it is looked whether a program has ended whose streams others keep open."""
_SIGNALS = {int(one): one.name for one in signal.Signals}
_GRACE_SECONDS = 0.3
"""How long output is awaited from what a program left behind after it exited itself."""
_RUNNING: dict[int, bytes] = {}
"""What is run at this moment, by any thread, with what marks its children."""
_STARTING = threading.Lock()
_START_SECONDS = 1.0
"""How long a program is awaited that is being started."""


def run_process(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str],
    text: str | None = None,
    memory_limit_mib: int | None = None,
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
) -> CommandResult:
    """What became of the program. Nothing of it stays: its process group and whatever else it started is killed when it has ended."""
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    try:
        with _STARTING:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**env, _MARK: mark},
                start_new_session=True,
            )
            _RUNNING[process.pid] = f"{_MARK}={mark}".encode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return CommandResult(missing=True, stderr=f"{argv[0]}: {reason}")
    exchange = _Exchange(process, (text or "").encode("utf-8", "replace"), output_limit_bytes)
    try:
        _limit_memory(process.pid, memory_limit_mib or MEMORY_LIMIT_MIB)
        ended = exchange.follow(time.monotonic() + timeout_seconds)
    finally:
        marked = _RUNNING.pop(process.pid)
        exchange.close()
        _end_strays(process.pid, marked)
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
    """End what threads still run that nobody waits for any more: they are daemons, and what they began would outlive this process."""
    _STARTING.acquire(timeout=_START_SECONDS)  # and no more is started
    for pid, mark in tuple(_RUNNING.items()):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _end_strays(pid, mark)


def run_cell(python: str, source: str, words: Sequence[str], out: Callable[[str], object], err: Callable[[str], object]) -> int:
    """The exit code of a source that an interpreter runs; what it prints is shown as it comes. A KeyboardInterrupt goes to it first."""
    import tempfile  # slow to import, and a notebook alone runs cells

    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        path = f"{folder}/cell.py"
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(source)
        # As in a kernel, but for what is of the kernel's own environment: its packages, and the way its pictures are drawn.
        environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "MPLBACKEND")}
        environ["PYTHONPATH"] = os.getcwd()
        argv = [python, "-u", path, *words]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
            while True:
                try:
                    _show(process, {process.stdout: out, process.stderr: err})
                    return process.wait()
                except KeyboardInterrupt:  # noqa: PERF203 - of the kernel alone: the program is asked to end, too, and shown to its end
                    process.send_signal(signal.SIGINT)


def _show(process: subprocess.Popen[bytes], streams: Mapping[Any, Callable[[str], object]]) -> None:
    """Show what comes from a program until it has closed its streams."""
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in streams}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(_ROUND_SECONDS):
                raw = os.read(key.fd, 1 << 16)
                text = decoders[key.fileobj].decode(raw, final=not raw)
                if text:
                    streams[key.fileobj](text)
                if not raw:
                    selector.unregister(key.fileobj)
            if process.poll() is not None and not selector.select(0):  # what it left behind holds its streams
                return


class _Exchange:
    """The pipes of one running program."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes, limit: int) -> None:
        self._process = process
        self._text = text
        self._limit = limit
        self._kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}
        self._selector = selectors.DefaultSelector()
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, name)
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                event = selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ
                self._selector.register(pipe, event, name)

    def follow(self, deadline: float) -> str:
        """How it ended: `exit`, `time` or `flood`; passes data until then."""
        give_up = deadline
        while True:
            now = time.monotonic()
            if now >= give_up:
                return self._rest() if self._has_exited() else "time"
            if not self._selector.get_map():
                if self._has_exited():
                    return "exit"
                time.sleep(min(0.002, give_up - now))
                continue
            ready = self._selector.select(min(0.05, give_up - now))
            for key, _ in ready:
                self._pass(key)
            if max(self._sizes.values()) > self._limit:
                return "flood"
            if not ready and give_up == deadline and self._has_exited():
                # Something that it left behind holds the pipes open.
                give_up = min(deadline, now + _GRACE_SECONDS)

    def _rest(self) -> str:
        """How it ended, once what it said before is passed: on a busy machine the moment in which that is awaited may be over by now."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._pass(key)
            if max(self._sizes.values()) > self._limit:
                return "flood"
        return "exit"

    def close(self) -> None:
        """Nothing of the program is left running and nothing of it is open."""
        self._selector.close()
        # The group still exists as long as its leader has not been waited for, so this can hit nobody else.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, where not even this signal reaches it
            self._process.wait(_GRACE_SECONDS * 10)

    def text(self, name: str) -> str:
        """What was kept of a stream."""
        return b"".join(self._kept[name])[: self._limit].decode("utf-8", "replace")

    def _has_exited(self) -> bool:
        """Has the program ended; it is not waited for, so that its process group stays its own."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _pass(self, key: selectors.SelectorKey) -> None:
        if key.data == "stdin":
            self._write(key)
            return
        try:
            piece = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self._selector.unregister(key.fileobj)
            return
        self._kept[key.data].append(piece)
        self._sizes[key.data] += len(piece)

    def _write(self, key: selectors.SelectorKey) -> None:
        try:
            self._text = self._text[os.write(key.fd, self._text[: 1 << 16]) :] if self._text else b""
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._text = b""
        if not self._text:
            self._selector.unregister(key.fileobj)
            if self._process.stdin is not None:
                self._process.stdin.close()


def _limit_memory(pid: int, limit_mib: int) -> None:
    """Limit the memory of a process that has just been started, and of its children.

    Its data (RLIMIT_DATA: private writable memory), not its address space: libcuda reserves far more of that than it uses.
    """
    import resource

    with contextlib.suppress(OSError, ValueError):
        most = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        limit = limit_mib << 20 if most == resource.RLIM_INFINITY else min(limit_mib << 20, most)
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


def _end_strays(first: int, mark: bytes) -> None:
    """Kill what a program started and left in a session of its own, where its process group does not reach; `first` was the program."""
    for _ in range(_ROUNDS):
        try:
            with open("/proc/loadavg", encoding="ascii") as file:
                wrapped = int(file.read().split()[-1]) < first
            later = [int(name) for name in os.listdir("/proc") if name.isdigit() and (wrapped or int(name) > first)]
        except (OSError, ValueError, IndexError):
            return
        strays = [pid for pid in later if _is_marked(pid, mark)]
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not strays:
            return


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


_LAST_WORDS_SECONDS = 1.0
_END_LATER = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 9)"


def end_process_soon(pid: int) -> bool:
    """True where the process will be killed in a moment, when what we have printed has come out of it.

    Killed, because a notebook's server starts a kernel anew that died, and not every one that ended in peace.
    """
    try:
        os.kill(pid, 0)
        subprocess.Popen(
            [sys.executable, "-I", "-c", _END_LATER, str(pid), str(_LAST_WORDS_SECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
