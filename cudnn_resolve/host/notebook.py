"""What a notebook asks of the machine: run a cell in another interpreter, end a kernel."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_POLL_SECONDS = 0.5
"""Interval of checks whether a cell has ended whose streams other programs hold open."""
_LAST_OUTPUT_SECONDS = 1.0
_KILL_LATER = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 9)"
_KERNEL_VARIABLES = ("PYTHONHOME", "MPLBACKEND")
"""Settings of the kernel's own environment: its packages, and how its figures are drawn."""


def run_cell(python: str, source: str, words: Sequence[str], out: Callable[[str], object], err: Callable[[str], object]) -> int:
    """Run `source` in an interpreter, pass its output on as it comes, and return its exit code.

    A KeyboardInterrupt goes to the program first.
    """
    import tempfile  # slow to import, and ending a kernel does not need it

    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        path = f"{folder}/cell.py"
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(source)
        environ = {name: value for name, value in os.environ.items() if name not in _KERNEL_VARIABLES}
        environ["PYTHONPATH"] = os.getcwd()  # as in a kernel
        argv = [python, "-u", path, *words]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
            while True:
                try:
                    _pass_on(process, {process.stdout: out, process.stderr: err})
                    return process.wait()
                except KeyboardInterrupt:  # noqa: PERF203 - only the kernel got it: pass it to the program, and show the rest of its output
                    process.send_signal(signal.SIGINT)


def _pass_on(process: subprocess.Popen[bytes], streams: Mapping[Any, Callable[[str], object]]) -> None:
    """Pass output on until the program has closed its streams, or has ended and left them to others."""
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in streams}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(_POLL_SECONDS):
                raw = os.read(key.fd, 1 << 16)
                text = decoders[key.fileobj].decode(raw, final=not raw)
                if text:
                    streams[key.fileobj](text)
                if not raw:
                    selector.unregister(key.fileobj)
            if process.poll() is not None and not selector.select(0):
                return


def end_process_soon(pid: int) -> bool:
    """Have a process killed in a second, once its output has been shown; False if that is not possible.

    Killed, because a notebook server restarts a kernel that died, but not always one that exited normally.
    """
    try:
        os.kill(pid, 0)
        subprocess.Popen(
            [sys.executable, "-I", "-c", _KILL_LATER, str(pid), str(_LAST_OUTPUT_SECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
