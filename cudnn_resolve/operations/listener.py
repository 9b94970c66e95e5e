"""Who hears of what an operation does while it does it."""

from __future__ import annotations

from collections.abc import Callable

from cudnn_resolve.host import clock

_WAIT_SECONDS = 1.0
_OFTEN_SECONDS = 0.25


class Listener:
    """Progress and notes of an operation: this one drops them, as the library does; that of the command line prints them."""

    def tell(self, text: str) -> None:
        """What is going on just now."""

    def note(self, text: str) -> None:
        """A message that stays."""

    def state(self, name: str, state: str, of: str = "") -> None:
        """What has become of one of many that are worked on; `of` names the class it belongs to."""


class Notes(Listener):
    """A listener that keeps the messages that stay, for whoever says them later."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.kept.append(text.removeprefix("note: "))


class Steps:
    """Tells of a search that takes longer than a second: its steps, how many a second, and what it is at; of an end it knows nothing."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._steps, self._began = listener, 0, clock.seconds()
        self._due = self._began + _WAIT_SECONDS

    def __call__(self, at: Callable[[], str]) -> None:
        """Count a step; what the search is `at` is asked only where it is told."""
        self._steps += 1
        now = clock.seconds()
        if now >= self._due:
            self._due = now + _OFTEN_SECONDS
            said = at()
            rate = self._steps / (now - self._began)
            counted = f"{self._steps} step{'' if self._steps == 1 else 's'} of the search, {_rate(rate)}"
            self._listener.tell(counted + (f"; {said}" if said else ""))


def pace(done: int, total: int, what: str, began: float) -> str:
    """`12 of 40 rows, 3.1 a second, 0:09 left`; without rate and time while nothing is done."""
    rate = done / max(clock.seconds() - began, 0.001)
    if not done:
        return f"{done} of {total} {what}"
    left = int((total - done) / rate)
    return f"{done} of {total} {what}, {_rate(rate)}, {left // 60}:{left % 60:02} left"


def _rate(each_second: float) -> str:
    each, unit = (each_second, "second") if each_second >= 0.5 else (each_second * 60, "minute")
    return f"{each:.{0 if each >= 10 else 1}f} a {unit}"


WAITS = "waits"
"""The state of what nothing has been done for yet."""
NOBODY = Listener()
