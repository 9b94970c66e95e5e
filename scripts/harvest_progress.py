"""How far a harvest is: a bar with rate and remaining time on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

T = TypeVar("T")
LINE_SECONDS = 10.0
"""Between two lines where there is no terminal."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_rate(task.speed) if task.speed else "")


def _rate(each_second: float) -> str:
    return f"{each_second:.1f}/s" if each_second >= 0.5 else f"{each_second * 60:.1f}/min"


def told(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, of which there are so many; standard error hears how many were taken."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(stderr=True, highlight=False)
        with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
            yield from bar.track(items, total, description=what)
        return
    began = before = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if now - before >= LINE_SECONDS and number:
            before, rate = now, number / (now - began)
            print(f"harvest: {number} of {total} {what}, {_rate(rate)}, {(total - number) / rate:.0f} s left", file=sys.stderr)
        yield item
