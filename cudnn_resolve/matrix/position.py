"""Where rows stand, and what is wrong there."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a table: the file, the place in it (`build[3].cuda_built`), and what is wrong."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class Placed(Struct, frozen=True, kw_only=True):
    """A row with the place that it comes from: layer 0 is the shipped tables, 1 the first overlay; `position` counts from 0."""

    row: Any
    layer: int
    position: int
    file: str
    array: str

    @property
    def place(self) -> str:
        """Its place in the file, `build[3]`."""
        return f"{self.array}[{self.position}]"

    def fault(self, column: str, message: str) -> Fault:
        """Return a fault of this row in one column, or of the whole row with column ""."""
        return Fault(file=self.file, place=f"{self.place}.{column}" if column else self.place, message=message)
