"""Rows laid over rows: which row of an overlay stands for which row below it.

A row replaces the rows of the same key (the columns that `table.py` names) and is new where there are none. With `remove = true`
it takes away every row that has those parts of the key which it writes. Later overlays lie over earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from cudnn_resolve.matrix.build import NOTHING, Builder, Given
from cudnn_resolve.matrix.pack import EMPTY, Packed
from cudnn_resolve.matrix.table import Form
from cudnn_resolve.version import Capability, Dotted


class Placed(Struct, frozen=True, kw_only=True):
    """A row with the place that it comes from: 0 is the shipped table, 1 the first overlay; `position` counts from 0."""

    row: Any
    layer: int
    position: int


class Layer(Struct, frozen=True, kw_only=True):
    """The compiled rows of one array in one layer, and what they leave out."""

    packed: Packed = field(default_factory=lambda: EMPTY)
    given: Given = NOTHING


def key_of(form: Form, row: object) -> tuple[object, ...]:
    """The key of a row, equal for versions that are equal (`2.15` and `2.15.0`)."""
    return tuple(_comparable(field, getattr(row, field)) for field in form.key)


def key_text(form: Form, row: object) -> str:
    """The key of a row for a reader, `version 9.3.0.75, cuda_major 12`; parts that are empty are left out."""
    parts = ((form.column(field).name, getattr(row, field)) for field in form.key)
    return ", ".join(f"{name} {_shown(value)}" for name, value in parts if value not in (None, ()))


def lay(form: Form, layers: Sequence[Layer], builder: Builder) -> list[Placed]:
    """The rows that hold once every layer lies over those before it.

    A replaced row keeps its place in the order, new rows follow. Rows of equal key inside one layer all stay: `law` names them.
    """
    placed: list[Placed] = []
    for number, layer in enumerate(layers):
        found = builder.rows(form, layer.packed, given=layer.given, prefix=prefix(number))
        upper = [Placed(row=row, layer=number, position=position) for position, row in found]
        removals = [one for _, one in builder.removals(form, layer.packed)]
        placed = _merge(form, placed, upper, removals) if placed and (upper or removals) else [*placed, *upper]
    return placed


def removals_of_nothing(form: Form, layers: Sequence[Layer], builder: Builder) -> list[tuple[int, int]]:
    """Layer and position of each `remove = true` that meets no row."""
    idle = []
    for number in range(1, len(layers)):
        below = [one.row for one in lay(form, layers[:number], builder)]
        for position, removal in builder.removals(form, layers[number].packed):
            if not any(_meets(one, removal) for one in below):
                idle.append((number, position))
    return idle


def prefix(layer: int) -> str:
    """What stands before the ids of a layer's sources."""
    return f"overlay-{layer}:" if layer else ""


def _meets(row: object, removal: Mapping[str, list[object]]) -> bool:
    return all(_comparable(name, getattr(row, name)) in [_comparable(name, value) for value in values] for name, values in removal.items())


def _merge(form: Form, lower: list[Placed], upper: list[Placed], removals: list[dict[str, list[object]]]) -> list[Placed]:
    over: dict[tuple[object, ...], list[Placed]] = {}
    for one in upper:
        over.setdefault(key_of(form, one.row), []).append(one)
    result: list[Placed] = []
    laid: set[tuple[object, ...]] = set()
    for one in lower:
        key = key_of(form, one.row)
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


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Capability) or not isinstance(value, tuple) else "/".join(map(str, value))
