"""A real terminal, of tmux: what a person sees on it, what they type, and how wide they make it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SECONDS = 120.0


class Terminal:
    """A shell in a window of its own server, which nothing of the user's settings reaches."""

    def __init__(self, folder: Path, columns: int, rows: int = 40, env: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "CI", "TMUX", "TERM")}
        self._environ = {**kept, "PYTHONPATH": str(ROOT), "PS1": "", **(env or {})}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "exec bash --norc --noprofile")

    def tmux(self, *words: str) -> str:
        """What a command of tmux prints; its socket is named from the folder, since the path of one has at most 107 bytes."""
        command = ["tmux", "-S", "socket", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=self._folder, env=self._environ)
        return done.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press one key, such as `C-c`."""
        self.tmux("send-keys", key)

    def resize(self, columns: int) -> None:
        """Make the window that wide."""
        self.tmux("resize-window", "-x", str(columns))

    def program(self, *words: str, after: str = "") -> None:
        """Type a command line of this program, and that its exit code is printed."""
        self.type(f"clear; {shlex.join([sys.executable, '-m', 'cudnn_resolve', *words])} {after}; echo code=$?")

    def wait(self, text: str) -> list[str]:
        """The lines of the screen and of what was scrolled out of it, once the text stands there."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            lines = self.lines()
            if any(text in line for line in lines):
                return lines
            time.sleep(0.1)
        raise AssertionError("\n".join([f"{text!r} was not shown:", *self.lines()]))

    def wait_for_prompt(self, sign: str) -> None:
        """Wait until the last line is a prompt that ends in the sign, and nothing is typed: keys before that may be dropped."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            shown = [line.rstrip() for line in self.lines() if line.strip()]
            if shown and shown[-1].endswith(sign):
                return
            time.sleep(0.1)
        raise AssertionError("\n".join(["there is no prompt:", *self.lines()]))

    def lines(self, *, codes: bool = False) -> list[str]:
        """What is shown, with the codes of its colours or without."""
        return self.tmux("capture-pane", "-p", "-S", "-", *(["-e"] if codes else [])).splitlines()

    def has_cursor(self) -> bool:
        """True where the cursor is visible."""
        return self.tmux("display", "-p", "#{cursor_flag}").strip() == "1"

    def close(self) -> None:
        """End the server with all that runs in it."""
        self.tmux("kill-server")
