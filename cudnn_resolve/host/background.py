"""Calls that run in daemon threads while others wait: asking a machine is mostly waiting for its children.

Threads of an executor are not daemons: Ctrl-C would wait for a child that hangs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Future[T]):
    """Result of a call that starts at once in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        threading.Thread(target=_fulfil, args=(self, call), daemon=True).start()


class Once(Generic[T]):
    """Lazy value, computed by the first thread that asks for it; others wait meanwhile."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._result: list[T] = []

    @property
    def was_asked(self) -> bool:
        """Whether the value has been computed."""
        return bool(self._result)

    def value(self) -> T:
        """The value; an exception of the call is raised here, and the next caller tries again."""
        with self._lock:
            if not self._result:
                self._result.append(self._call())
            return self._result[0]


def gather(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Results of the calls, in order; at most `at_once` run at a time, and they start in order. After an error no more are started."""
    futures: list[Future[T]] = [Future() for _ in calls]
    waiting = iter(tuple(zip(futures, calls, strict=True)))

    def work() -> None:
        for future, call in waiting:
            _fulfil(future, call)

    for _ in range(min(max(at_once, 1), len(calls))):
        Later(work)
    try:
        return [future.result() for future in futures]
    finally:
        deque(waiting, maxlen=0)


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again by `result`
        future.set_exception(error)
