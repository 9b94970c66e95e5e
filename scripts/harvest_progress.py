"""Progress of a harvest: a bar on a terminal, an occasional line elsewhere."""

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
"""Between two lines, without a terminal."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_rate(task.speed) if task.speed else "")


def _rate(per_second: float) -> str:
    return f"{per_second:.1f}/s" if per_second >= 0.5 else f"{per_second * 60:.1f}/min"


def progress(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield the items, reporting their number on standard error."""
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
