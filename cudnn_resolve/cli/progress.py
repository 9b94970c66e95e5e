"""Progress: drawn by rich on a terminal (and imported only there), plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from cudnn_resolve.execution.model import Reporter
from cudnn_resolve.host import clock, terminal
from cudnn_resolve.host.background import Delayed
from cudnn_resolve.operations.listener import WAITING
from cudnn_resolve.report.text import clean, mib

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress import Progress as Bar
    from rich.text import Text

_WAIT_SECONDS = 1.0
_TERMINAL_SECONDS = 0.1
_PLAIN_SECONDS = 10.0
_ROWS = 15
"""Rows of the table: the last ones that changed."""


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


class StatusLine:
    """Status line at the bottom of a terminal; nothing if standard error is no terminal.

    For many items, a table above it shows their states; without a terminal, each state is a line.
    """

    def __init__(self) -> None:
        self._live: Live | None = None
        self._text = ""
        self._began = 0.0
        self._rows: dict[str, dict[str, str]] = {}
        self._awaited: set[str] = set()
        """Rows whose total is known."""
        self._first = Delayed()
        _LINES.append(self)

    def expect(self, text: str) -> None:
        """Show `text`, or a later text, after a second in which nothing was printed."""
        if terminal.is_live(sys.stderr):
            self._text, self._began = clean(text), clock.seconds()
            self._first.begin(_WAIT_SECONDS, self._draw)

    def state(self, name: str, state: str, of: str) -> None:
        """Show the state of an item, in the row of its class if it has one."""
        row = self._rows.pop(of or name, {})
        row[name] = state
        self._rows[of or name] = row  # the last changed rows are at the bottom
        if state == WAITING:
            self._awaited.add(of or name)
        if terminal.is_live(sys.stderr):
            self.show(self._text)
        elif state != WAITING:
            print(f"{of}: {name}: {state}" if of else f"{name}: {state}", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Show `text` and the seconds since the line appeared, which go on between texts."""
        if not terminal.is_live(sys.stderr):
            return
        with self._first.turn:
            self._text = clean(text)
            if not self._first.is_due:
                self._draw()

    def _draw(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._began = self._began or clock.seconds()
            self._live = Live(
                get_renderable=self._render,
                console=_console(),
                refresh_per_second=4,  # in a thread: Ctrl-C does not stop a redraw halfway, and a thousand hosts cost no more than one
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _render(self) -> RenderableType:
        if not self._rows:
            return self._line()
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        for row, states in list(self._rows.items())[-_ROWS:]:
            counts = Counter(list(states.values()))  # a copy, since they may change meanwhile
            is_single = len(states) == 1 and row in states
            table.add_row(row, next(iter(counts)) if is_single else ", ".join(f"{count} {state}" for state, count in counts.items()))
        counted_rows = (states for row, states in list(self._rows.items()) if not self._awaited or row in self._awaited)
        done = Counter(state != WAITING for states in counted_rows for state in list(states.values()))
        return Group(table, f"{done[True]} of {done.total()}", self._line())

    def _line(self) -> Text:
        from rich.text import Text

        seconds = int(clock.seconds() - self._began)
        return Text(f"{seconds} s  {self._text}" if seconds else self._text, no_wrap=True, overflow="ellipsis")

    def forget(self) -> None:
        """Remove the rows of the table."""
        self._rows.clear()
        self._awaited.clear()

    def clear(self) -> None:
        """Clear the line."""
        with self._first.turn:
            self._first.give_up()
            live, self._live = self._live, None
            if live is not None:
                live.stop()
            self._began = 0.0


_LINES: list[StatusLine] = []
"""Lines that may be on the terminal; a progress bar clears them."""


class Progress(Reporter):
    """Reporter that prints to standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or sys.stderr is None
        self._live = not self._quiet and terminal.is_live(sys.stderr)
        self._bar: Bar | None = None
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
        """Show the new activity."""
        self.end()
        for line in _LINES:
            line.clear()
        self._what, self._total, self._count = what, total, 0
        self._began = self._shown = clock.seconds()
        if self._live:
            self._draw()
        elif not self._quiet:
            size = f", {mib(total)}" if total else ""
            print(clean(f"{what}{size} …"), file=sys.stderr, flush=True)

    def advance(self, count: int) -> None:
        """Show the progress, but not too often."""
        self._count += count
        now = clock.seconds()
        if self._quiet or now - self._shown < (_TERMINAL_SECONDS if self._live else _PLAIN_SECONDS):
            return
        self._shown = now
        if self._live:
            self._draw()
        else:
            of = f" of {mib(self._total)}" if self._total else ""
            rate = self._count / max(now - self._began, 0.001)
            left = f", {max(self._total - self._count, 0) / rate:.0f} s left" if self._total and rate else ""
            print(f"  {mib(self._count)}{of}, {mib(int(rate))}/s{left}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Show the duration."""
        what, self._what = self._what, ""
        if what and self._live:
            self._wipe()
            size = f", {mib(self._count)}" if self._count else ""
            print(clean(f"{what}{size}, {clock.seconds() - self._began:.1f} s"), file=sys.stderr, flush=True)

    def _draw(self) -> None:
        """Draw the bar."""
        if self._bar is None:
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            with_total = (BarColumn(None), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
            columns = with_total if self._total else (TimeElapsedColumn(),)
            description = TextColumn("{task.description}", markup=False)
            self._bar = Bar(
                description,
                *columns,
                console=_console(),
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.add_task(clean(self._what), total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self._count, refresh=True)

    def _wipe(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()
