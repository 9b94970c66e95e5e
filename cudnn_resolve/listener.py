"""Progress and notes of a running operation."""

from __future__ import annotations

from collections.abc import Callable

from cudnn_resolve.host import clock

_WAIT_SECONDS = 1.0
_INTERVAL_SECONDS = 0.25

WAITING = "waiting"
"""State of an item on which work has not begun."""


class Listener:
    """Receives progress and notes: this class drops them, as the library does; the command line shows them."""

    def tell(self, text: str) -> None:
        """Current activity."""

    def note(self, text: str) -> None:
        """Message that stays."""

    def state(self, name: str, state: str, of: str = "") -> None:
        """State of one of many items; `of` names the class that it belongs to."""

    def begin(self, what: str, total: int | None = None) -> None:
        """Begin of a lengthy step, which ends the one before; `total` is its size in bytes."""

    def advance(self, count: int) -> None:
        """So many more bytes of the step are done."""

    def end(self) -> None:
        """End of the step."""


SILENT = Listener()


class Notes(Listener):
    """Listener that collects notes, to be shown later."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        """Collect it."""
        self.texts.append(text.removeprefix("note: "))


class SearchProgress:
    """Progress callback for slow searches: after a second, tells the number of steps, their rate, and the current candidates."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._steps, self._began = listener, 0, clock.seconds()
        self._due = self._began + _WAIT_SECONDS

    def __call__(self, describe: Callable[[], str]) -> None:
        """Count a step; `describe` is called only when progress is due."""
        self._steps += 1
        now = clock.seconds()
        if now >= self._due:
            self._due = now + _INTERVAL_SECONDS
            description = describe()
            rate = self._steps / (now - self._began)
            steps = f"{self._steps} step{'' if self._steps == 1 else 's'} of the search, {_rate(rate)}"
            self._listener.tell(f"{steps}; {description}" if description else steps)


def pace(done: int, total: int, what: str, began: float) -> str:
    """`12 of 40 rows, 3.1 a second, 0:09 left`; without rate and time before the first is done."""
    rate = done / max(clock.seconds() - began, 0.001)
    if not done:
        return f"{done} of {total} {what}"
    left = int((total - done) / rate)
    return f"{done} of {total} {what}, {_rate(rate)}, {left // 60}:{left % 60:02} left"


def _rate(per_second: float) -> str:
    rate, unit = (per_second, "second") if per_second >= 0.5 else (per_second * 60, "minute")
    return f"{rate:.{0 if rate >= 10 else 1}f} a {unit}"
