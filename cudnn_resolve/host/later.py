"""Calls that run while others wait: asking a machine is mostly waiting for its children."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
