"""Rows laid over rows: which row of an overlay stands for which row below it.

A row replaces the rows of the same identity and is new where there are none. With `remove = true` it takes away every row that has those
parts of the identity which it writes. Later overlays lie over earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.matrix.position import Placed
from cudnn_resolve.matrix.row import Plain
from cudnn_resolve.matrix.table import Table
from cudnn_resolve.version import Capability, Dotted

Parts = Mapping[str, Sequence[object]]


def key_of(row: Plain) -> tuple[object, ...]:
    """Return the identity of a row, equal for versions that are equal (`2.15` and `2.15.0`)."""
    return tuple(_comparable(field, getattr(row, field)) for field in row.identity)


def key_text(row: Plain) -> str:
    """Render the identity of a row, `version 9.3.0.75, cuda_major 12`; parts that are empty are left out."""
    columns = dict(zip(row.__struct_fields__, row.__struct_encode_fields__, strict=True))
    parts = ((columns[field], getattr(row, field)) for field in row.identity)
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None)


def lay(layers: Sequence[tuple[str, Table | None]], type_: type[Plain], array: str) -> list[Placed]:
    """Return the rows of an array that hold once every layer, a file and its table, lies over those before it.

    A replaced row keeps its place in the order, new rows follow. Rows of equal identity inside one layer all stay:
    `table_rules` names them.
    """
    placed: list[Placed] = []
    for number, (file, table) in enumerate(layers):
        if table is None:
            continue
        upper = list(_rows(number, file, table, array))
        removals = [parts for _, parts in _removals(table, type_, array)]
        placed = _merge(placed, upper, removals) if placed and (upper or removals) else [*placed, *upper]
    return placed


def removals_of_nothing(layers: Sequence[tuple[str, Table | None]], type_: type[Plain], array: str) -> list[tuple[int, int]]:
    """Return layer and position of each `remove = true` that meets no row."""
    idle = []
    for number, (_, table) in enumerate(layers):
        below = [one.row for one in lay(layers[:number], type_, array)] if table is not None and table.removals else []
        for position, parts in _removals(table, type_, array) if table is not None else ():
            if not any(_meets(one, parts) for one in below):
                idle.append((number, position))
    return idle


def packaged(table: Any, first: str) -> Any:
    """Give builds of an overlay that leaves its head out the package that the head below it names first."""
    if table is None or all(one.package for one in table.build):
        return table
    return replace(table, build=tuple(one if one.package else replace(one, package=first) for one in table.build))


def prefix(layer: int) -> str:
    """Return what stands before the ids of a layer's sources."""
    return f"overlay-{layer}:" if layer else ""


def _rows(number: int, file: str, table: Table, array: str) -> Iterator[Placed]:
    rows = getattr(table, array)
    for position, one in zip(table.places.get(array, range(len(rows))), rows, strict=True):
        own = replace(one, source=tuple(prefix(number) + id_ for id_ in one.source)) if number and _cites(one) else one
        yield Placed(row=own, layer=number, position=position, file=file, array=array)


def _cites(row: Any) -> bool:
    return bool(getattr(row, "source", ()))


def _removals(table: Table, type_: type[Plain], array: str) -> Iterator[tuple[int, Parts]]:
    """Yield the position of each row that removes, and the values that it means, comparable."""
    chosen = [one for one in table.removals if one.array == array]
    if not chosen:
        return
    from cudnn_resolve.matrix.value import columns_of

    types = columns_of(type_)
    for one in chosen:
        named = [(types[column], values) for column, values in one.parts.items()]
        yield one.position, {column.field: [_comparable(column.field, column.read(value)) for value in values] for column, values in named}


def _meets(row: object, parts: Parts) -> bool:
    return all(_comparable(name, getattr(row, name)) in values for name, values in parts.items())


def _merge(lower: list[Placed], upper: list[Placed], removals: list[Parts]) -> list[Placed]:
    over: dict[tuple[object, ...], list[Placed]] = {}
    for one in upper:
        over.setdefault(key_of(one.row), []).append(one)
    result: list[Placed] = []
    laid: set[tuple[object, ...]] = set()
    for one in lower:
        key = key_of(one.row)
        if key in over and key not in laid:
            result.extend(over[key])
            laid.add(key)
        elif key not in over and not any(_meets(one.row, removal) for removal in removals):
            result.append(one)
    return [*result, *(one for key, group in over.items() if key not in laid for one in group)]


def _comparable(field: str, value: object) -> object:
    if isinstance(value, (Dotted, Capability)):
        return value
    if isinstance(value, tuple):
        return frozenset(value)
    if isinstance(value, str) and field.endswith("version"):
        from packaging.utils import canonicalize_version

        return canonicalize_version(value)
    return value
