"""An iterator whose values are kept: worked out on demand, and once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """What an iterator gave, and gives on demand; can be walked through any number of times."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._found: list[T] = []

    def __iter__(self) -> Iterator[T]:
        number = 0
        while True:
            if number == len(self._found):
                try:
                    self._found.append(next(self._source))
                except StopIteration:
                    return
            yield self._found[number]
            number += 1
