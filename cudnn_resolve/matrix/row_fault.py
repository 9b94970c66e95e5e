"""Positions of rows in their files, and faults found there."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

RowT = TypeVar("RowT")


class Fault(Struct, frozen=True, kw_only=True):
    """One fault of a table: the file, the place in it (`build[3].cuda_built`), and what is wrong."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


class Placed(Struct, Generic[RowT], frozen=True, kw_only=True):
    """A row and its origin: layer 0 is the shipped tables, 1 the first overlay; `position` counts from 0."""

    row: RowT
    layer: int
    position: int
    file: str
    array: str

    @property
    def place(self) -> str:
        """Place in the file, `build[3]`."""
        return f"{self.array}[{self.position}]"

    def fault(self, column: str, message: str) -> Fault:
        """Return a fault in one column of this row, or in the whole row if column is ""."""
        return Fault(file=self.file, place=f"{self.place}.{column}" if column else self.place, message=message)
