"""How far it is: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from cudnn_resolve.host import clock, terminal
from cudnn_resolve.report.text import clean

_BAR = 24
_TERMINAL_SECONDS = 0.1
_PLAIN_SECONDS = 10.0


class Progress:
    """A reporter for standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or sys.stderr is None
        self._live = not self._quiet and terminal.is_live(sys.stderr)
        self._what = ""
        self._total: int | None = None
        self._count = 0
        self._began = 0.0
        self._shown = 0.0

    def say(self, text: str) -> None:
        """Print a line to standard error."""
        if not self._quiet:
            self._wipe()
            print(clean(text), file=sys.stderr)

    def begin(self, what: str, total: int | None = None) -> None:
        """Show what begins."""
        self.end()
        self._what, self._total, self._count = what, total, 0
        self._began = self._shown = clock.seconds()
        if self._quiet:
            return
        if self._live:
            self._draw()
        else:
            size = f", {mib(total)}" if total else ""
            print(clean(f"{what}{size} …"), file=sys.stderr, flush=True)

    def advance(self, count: int) -> None:
        """Show how far it is, but not too often."""
        self._count += count
        now = clock.seconds()
        if self._quiet or now - self._shown < (_TERMINAL_SECONDS if self._live else _PLAIN_SECONDS):
            return
        self._shown = now
        if self._live:
            self._draw()
        else:
            print(f"  {self._state(now)}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Show how long it took."""
        if not self._what:
            return
        seconds = clock.seconds() - self._began
        what, self._what = self._what, ""
        if self._live:
            self._wipe()
            size = f", {mib(self._count)}" if self._count else ""
            print(clean(f"{what}{size}, {seconds:.1f} s"), file=sys.stderr, flush=True)

    def _draw(self) -> None:
        bar = ""
        if self._total:
            filled = min(_BAR, _BAR * self._count // self._total)
            bar = f" [{'#' * filled}{'.' * (_BAR - filled)}]"
        print(f"\r\x1b[K{clean(self._what)}{bar} {self._state(clock.seconds())}", end="", file=sys.stderr, flush=True)

    def _state(self, now: float) -> str:
        if not self._count:
            return ""
        of = f" of {mib(self._total)}" if self._total else ""
        rate = self._count / max(now - self._began, 0.001)
        return f"{mib(self._count)}{of}, {mib(rate)}/s"

    def _wipe(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def mib(count: float) -> str:
    """Bytes for people: `812.4 MiB`, `1.2 GiB`, `14 KiB`."""
    if count < 100 << 10:
        return f"{count / (1 << 10):.0f} KiB"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"
