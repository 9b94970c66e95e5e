"""Overlay rows merged over the rows below them.

A row replaces all rows of the same identity, or is added if there are none. With `remove = true` it removes every row that matches
the parts of the identity it gives. Later overlays lie over earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from cudnn_resolve.matrix.row import Plain
from cudnn_resolve.matrix.row_fault import Placed
from cudnn_resolve.matrix.table import Table
from cudnn_resolve.version import Capability, Dotted

Parts = Mapping[str, Sequence[object]]
"""Field to the values that a removal matches."""
_RowT = TypeVar("_RowT", bound=Plain)


def key_of(row: Plain) -> tuple[object, ...]:
    """Return the identity of a row, equal for equal versions (`2.15` and `2.15.0`)."""
    return tuple(_comparable(field, getattr(row, field)) for field in row.identity)


def key_text(row: Plain) -> str:
    """Render the identity of a row, `version 9.3.0.75, cuda_major 12`; unset parts are left out."""
    columns = dict(zip(row.__struct_fields__, row.__struct_encode_fields__, strict=True))
    parts = ((columns[field], getattr(row, field)) for field in row.identity)
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None)


def lay(layers: Sequence[tuple[str, Table | None]], row_type: type[_RowT], array: str) -> list[Placed[_RowT]]:
    """Return the rows of an array after laying each layer, a file and its table, over those before it.

    A replaced row keeps its place in the order, new rows follow. Rows of equal identity in one layer are all kept:
    `table_rules` reports them.
    """
    placed: list[Placed[_RowT]] = []
    for number, (file, table) in enumerate(layers):
        if table is None:
            continue
        upper = list(_rows(number, file, table, array))
        removals = [parts for _, parts in _removals(table, row_type, array)]
        placed = _merge(placed, upper, removals) if placed and (upper or removals) else [*placed, *upper]
    return placed


def idle_removals(layers: Sequence[tuple[str, Table | None]], row_type: type[Plain], array: str) -> list[tuple[int, int]]:
    """Return layer and position of each row with `remove = true` that matches no row below it."""
    idle = []
    for number, (_, table) in enumerate(layers):
        if table is None or not table.removals:
            continue
        below = [placed.row for placed in lay(layers[:number], row_type, array)]
        for position, parts in _removals(table, row_type, array):
            if not any(_matches(row, parts) for row in below):
                idle.append((number, position))
    return idle


def with_package(table: Any, package: str) -> Any:
    """Fill in the package of builds in an overlay that gives neither a package nor a head with its default."""
    if table is None or all(build.package for build in table.build):
        return table
    return replace(table, build=tuple(build if build.package else replace(build, package=package) for build in table.build))


def prefix(layer: int) -> str:
    """Return the prefix of a layer's source ids."""
    return f"overlay-{layer}:" if layer else ""


def _rows(number: int, file: str, table: Table, array: str) -> Iterator[Placed[Any]]:
    rows = getattr(table, array)
    for position, row in zip(table.places.get(array, range(len(rows))), rows, strict=True):
        sources = getattr(row, "source", ())
        own = replace(row, source=tuple(prefix(number) + source for source in sources)) if number and sources else row
        yield Placed(row=own, layer=number, position=position, file=file, array=array)


def _removals(table: Table, row_type: type[Plain], array: str) -> Iterator[tuple[int, Parts]]:
    """Yield the position of each removing row with the values it matches, made comparable."""
    removals = [removal for removal in table.removals if removal.array == array]
    if not removals:
        return
    from cudnn_resolve.matrix.value import columns_of

    columns = columns_of(row_type)
    for removal in removals:
        parts = {}
        for name, values in removal.parts.items():
            column = columns[name]
            parts[column.field] = [_comparable(column.field, column.read(value)) for value in values]
        yield removal.position, parts


def _matches(row: object, parts: Parts) -> bool:
    return all(_comparable(name, getattr(row, name)) in values for name, values in parts.items())


def _merge(lower: list[Placed[_RowT]], upper: list[Placed[_RowT]], removals: list[Parts]) -> list[Placed[_RowT]]:
    replacements: dict[tuple[object, ...], list[Placed[_RowT]]] = {}
    for placed in upper:
        replacements.setdefault(key_of(placed.row), []).append(placed)
    merged: list[Placed[_RowT]] = []
    used: set[tuple[object, ...]] = set()
    for placed in lower:
        key = key_of(placed.row)
        if key in replacements:
            if key not in used:
                merged.extend(replacements[key])
                used.add(key)
        elif not any(_matches(placed.row, removal) for removal in removals):
            merged.append(placed)
    for key, added in replacements.items():
        if key not in used:
            merged.extend(added)
    return merged


def _comparable(field: str, value: object) -> object:
    if isinstance(value, (Dotted, Capability)):
        return value
    if isinstance(value, tuple):
        return frozenset(value)
    if isinstance(value, str) and field.endswith("version"):
        from packaging.utils import canonicalize_version

        return canonicalize_version(value)
    return value
