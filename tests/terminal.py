"""A command on a pseudo-terminal: what it prints there, and what of that a person would see."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SGR = re.compile(r"\x1b\[([0-9;]*)m")
_SECONDS = 60.0


class Shown(NamedTuple):
    """How a command ended on a terminal."""

    returncode: int
    raw: str
    """Every byte, decoded."""

    @property
    def lines(self) -> list[str]:
        """What is left standing: escape sequences carried out as far as programs without a full screen use them."""
        out, row = [""], 0
        for part in re.split(r"(\r?\n|\r|\x1b\[[0-9;?]*[A-Za-z])", self.raw):
            if part.endswith("\n"):
                row += 1
                out += [""] if row == len(out) else []
            elif part == "\r" or (part.startswith("\x1b[") and part.endswith("K")):
                out[row] = ""
            elif part.startswith("\x1b[") and part.endswith("A"):
                row = max(0, row - int(part[2:-1] or 1))
            elif not part.startswith("\x1b["):
                out[row] += part
        return out

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    def faults(self) -> list[str]:
        """Escape codes that are printed as text, that are cut off, or that colour more than their own line."""
        out = [f"raw escape code: {line}" for line in self.lines if re.search(r"\x1b|\\x1b|\\u001b|\^\[|(?<!\w)\[[0-9;]{1,6}m", line)]
        for line in self.raw.split("\n"):
            codes = SGR.findall(line)
            if codes and codes[-1] not in ("", "0"):
                out.append(f"colour left on: {line!r}")
        return out

    def wide(self, columns: int) -> list[str]:
        """Lines that are longer than the terminal is wide though a blank in them would have let them be wrapped."""
        return [line for line in self.lines if len(line) > columns and not is_literal(line)]


def is_literal(line: str) -> bool:
    """True for what stays in one line, to be copied: a command, an address, a path, one long word."""
    words = line.split()
    return any(len(word) > 24 and re.search(r"[/:=@]", word) for word in words) or bool(
        re.search(r"cudnn-resolve |^\s*\$ |pip install|^\s*\[--", line)
    )


def on_terminal(
    words: Sequence[str], columns: int, *, cwd: Path, env: Mapping[str, str] | None = None, answer: str = "", code: str | None = None
) -> Shown:
    """Run the program, or some Python code, with all streams on a terminal of that width; the answer is typed when it asks."""
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "CI")}
    environ = {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **(env or {})}
    process = subprocess.Popen(
        [sys.executable, *(("-m", "cudnn_resolve") if code is None else ("-c", code)), *words],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=cwd,
        env=environ,
        close_fds=True,
    )
    os.close(inner)
    found, end, answered = b"", time.monotonic() + _SECONDS, False
    while time.monotonic() < end:
        ready, _, _ = select.select([outer], [], [], 0.2)
        try:
            part = os.read(outer, 1 << 16) if ready else b""
        except OSError:  # the other end is closed
            break
        found += part
        if not answered and found.endswith(b"[y/N] "):
            os.write(outer, answer.encode() + b"\n")
            answered = True
        if not ready and process.poll() is not None:
            break
    if process.poll() is None and time.monotonic() >= end:
        process.kill()
    os.close(outer)
    return Shown(process.wait(), found.decode("utf-8", "replace").replace("\r\n", "\n"))
