"""Calls that run while others wait, as futures: asking a machine is mostly waiting for its children.

The threads are daemons, which those of an executor are not: whoever presses Ctrl-C does not wait for a child that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Future[T]):
    """The value of a call that runs in a thread of its own from now on."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        threading.Thread(target=_fill, args=(self, call), daemon=True).start()


class Once(Generic[T]):
    """The value of a call that is made when somebody first asks for it; whoever asks meanwhile waits."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._found: list[T] = []

    @property
    def was_asked(self) -> bool:
        """True once the call was made."""
        return bool(self._found)

    def value(self) -> T:
        """The value; what the call raised is raised here, and the next one calls again."""
        with self._lock:
            if not self._found:
                self._found.append(self._call())
            return self._found[0]


class Delayed:
    """A call that is made after some seconds unless it is given up; who holds `turn` is not disturbed by it."""

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self._timer: threading.Timer | None = None

    @property
    def is_due(self) -> bool:
        """True where the call is still to be made."""
        return self._timer is not None

    def begin(self, seconds: float, call: Callable[[], None]) -> None:
        """Make the call after so many seconds."""
        self._timer = threading.Timer(seconds, self._make, (call,))
        self._timer.daemon = True
        self._timer.start()

    def give_up(self) -> None:
        """Make no call any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _make(self, call: Callable[[], None]) -> None:
        with self.turn:
            if self._timer is not None:
                self._timer = None
                call()


def gather(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """The values of the calls in their order; so many of them run at any time, and what is begun comes in that order, too."""
    found: list[Future[T]] = [Future() for _ in calls]
    waiting = iter(tuple(zip(found, calls, strict=True)))

    def work() -> None:
        for future, call in waiting:
            _fill(future, call)

    for _ in range(min(max(at_once, 1), len(calls))):
        Later(work)
    return [one.result() for one in found]


def _fill(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again where the value is asked for
        future.set_exception(error)
