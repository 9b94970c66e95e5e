"""Calls that run while others wait: asking a machine is mostly waiting for its children."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """The value of a call that runs in a thread of its own from now on."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._values: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._values.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the value is asked for
            self._errors.append(error)

    def value(self) -> T:
        """The value, once it is there; what the call raised is raised here."""
        self._thread.join()
        for error in self._errors:
            raise error
        return self._values[0]


class Gate:
    """Holds back whoever comes until it is opened, or until it is clear that it never will be."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._is_open = False

    def open(self) -> None:
        """Let everybody through."""
        self._is_open = True
        self._event.set()

    def give_up(self) -> None:
        """Send everybody away where it is not open."""
        self._event.set()

    def wait(self) -> bool:
        """True once it is open; False where it never will be."""
        self._event.wait()
        return self._is_open


def gather(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """The values of the calls in their order; so many of them run at any time, and what is begun comes in that order, too."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(calls)):
        waiting.put(index)
    found: dict[int, T] = {}

    def work() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            found[index] = calls[index]()

    for worker in [Later(work) for _ in range(min(max(at_once, 1), len(calls)))]:
        worker.value()
    return [found[index] for index in range(len(calls))]
