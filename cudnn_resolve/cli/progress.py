"""Progress: drawn by rich on a terminal (and imported only there), plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from cudnn_resolve.errors import mib
from cudnn_resolve.host import clock, terminal
from cudnn_resolve.listener import WAITING, Listener
from cudnn_resolve.report.text import clean, wrap_message

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress import Progress as Bar

_WAIT_SECONDS = 1.0
_PLAIN_SECONDS = 10.0
_ROWS = 15
"""Rows of the table: the last ones that changed."""


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def wrapped(text: str) -> str:
    """A message, wrapped if standard error is a terminal."""
    return wrap_message(text, terminal.width(sys.stderr)) if terminal.is_terminal(sys.stderr) else text


class _Step:
    """A lengthy step, of which bytes are done."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total, self.count = clean(what), total, 0
        self.began = self._shown = clock.seconds()
        self._bar: Bar | None = None

    def line(self) -> str | None:
        """`12.0 MiB of 2.1 GiB, 3.1 MiB/s, 700 s left`; None most of the time, so that only some lines are printed."""
        now = clock.seconds()
        if now - self._shown < _PLAIN_SECONDS:
            return None
        self._shown = now
        of = f" of {mib(self.total)}" if self.total else ""
        rate = self.count / max(now - self.began, 0.001)
        left = f", {max(self.total - self.count, 0) / rate:.0f} s left" if self.total and rate else ""
        return f"{mib(self.count)}{of}, {mib(int(rate))}/s{left}"

    def bar(self) -> RenderableType:
        """Bar with size, rate and time left."""
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            columns = (BarColumn(None), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
            self._bar = Bar(TextColumn("{task.description}", markup=False), *columns, console=_console())
            self._bar.add_task(self.what, total=self.total)
        self._bar.update(self._bar.task_ids[0], completed=self.count)
        return self._bar.get_renderable()


class StatusLine(Listener):
    """Status line at the bottom of a terminal: an activity, or a step with a bar if its size is known.

    For many items, a table above it shows their states. Without a terminal, states and steps are printed as lines.
    """

    def __init__(self) -> None:
        self._live: Live | None = None
        self._text = ""
        self._began = 0.0
        self._rows: dict[str, dict[str, str]] = {}
        self._awaited: set[str] = set()
        """Rows whose total is known."""
        self._step: _Step | None = None
        self._shows_step = False
        """True while the step is shown in place of the text."""
        self._first = terminal.Delayed()

    def expect(self, text: str) -> None:
        """Show `text`, or a later text, after a second in which nothing was printed."""
        if terminal.is_live(sys.stderr):
            self._text, self._began = clean(text), clock.seconds()
            self._first.begin(_WAIT_SECONDS, self._draw)

    def tell(self, text: str) -> None:
        """Show `text` and the seconds since the line appeared, which go on between texts, until something is printed."""
        if not terminal.is_live(sys.stderr):
            return
        with self._first.turn:
            self._text, self._shows_step = clean(text), False
            if not self._first.is_due:
                self._draw()

    def note(self, text: str) -> None:
        """Print it."""
        self.clear()
        print(wrapped(clean(text, lines=True)), file=sys.stderr)

    def state(self, name: str, state: str, of: str = "") -> None:
        """Show the state of an item, in the row of its class if it has one."""
        name, state, of = clean(name), clean(state), clean(of)
        row = self._rows.pop(of or name, {})
        row[name] = state
        self._rows[of or name] = row  # the last changed rows are at the bottom
        if state == WAITING:
            self._awaited.add(of or name)
        if terminal.is_live(sys.stderr):
            self.tell(self._text)
        elif state != WAITING:
            print(f"{of}: {name}: {state}" if of else f"{name}: {state}", file=sys.stderr, flush=True)

    def begin(self, what: str, total: int | None = None) -> None:
        """Show a step."""
        self.end()
        self.clear()
        self._step = _Step(what, total)
        if terminal.is_live(sys.stderr):
            self.advance(0)
        else:
            print(f"{self._step.what}{f', {mib(total)}' if total else ''} …", file=sys.stderr, flush=True)

    def advance(self, count: int) -> None:
        """Show the progress of the step; without a terminal only from time to time."""
        with self._first.turn:
            if self._step is None:
                return
            self._step.count += count
            if terminal.is_live(sys.stderr):
                self._shows_step = True
                self._draw()
            elif line := self._step.line():
                print(f"  {line}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the duration of the step on a terminal."""
        step = self._step
        if step is not None and terminal.is_live(sys.stderr):
            self.clear()
            size = f", {mib(step.count)}" if step.count else ""
            print(f"{step.what}{size}, {clock.seconds() - step.began:.1f} s", file=sys.stderr, flush=True)
        self._step = None

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

    def _line(self) -> RenderableType:
        from rich.text import Text

        step = self._step if self._shows_step else None
        if step is not None and step.total:
            return step.bar()
        text, began = (self._text, self._began) if step is None else (step.what, step.began)
        seconds = int(clock.seconds() - began)
        return Text(f"{seconds} s  {text}" if seconds else text, no_wrap=True, overflow="ellipsis")

    def forget(self) -> None:
        """Remove the rows of the table, and a step that has failed."""
        self._rows.clear()
        self._awaited.clear()
        self._step = None

    def clear(self) -> None:
        """Clear the line."""
        with self._first.turn:
            self._first.give_up()
            live, self._live = self._live, None
            if live is not None:
                live.stop()
            self._began = 0.0
