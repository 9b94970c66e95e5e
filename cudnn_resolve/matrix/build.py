"""Compiled tables to rows, fast, and a row back to what TOML would hold.

Nothing is checked here: `parse.compile_table` did that when the table was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import NODEFAULT, Struct, field

from cudnn_resolve.matrix.column import Kind
from cudnn_resolve.matrix.pack import Packed, unpack
from cudnn_resolve.matrix.row import ExtraRelease, Source
from cudnn_resolve.matrix.table import Form


class Given(Struct, frozen=True, kw_only=True):
    """What rows leave out: plain fields that are the same in all, and the day of each version."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    takers: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """How the values of single columns are made, where the kind of the column alone does not say it."""


NOTHING = Given()


class Builder:
    """Makes rows of packed tables; equal texts of one kind share one value."""

    def __init__(self) -> None:
        self._takers: dict[int, dict[str, Any]] = {}
        self._values: dict[str, dict[Any, Any]] = {}

    def rows(self, form: Form, packed: Packed, *, given: Given = NOTHING, prefix: str = "") -> list[tuple[int, Any]]:
        """Position and row of every row, those that remove apart; one that lists versions gives a row for each of them.

        `prefix` stands before the ids of sources, so that rows of an overlay cite the overlay's own.
        """
        names, values = self._columns(form, packed, given, prefix)
        removed = _removed(packed)
        if form.expands:
            plain = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
            found = enumerate(plain)
            return [(place, row) for place, fields in found if place not in removed for row in _expanded(form, fields, given)]
        made = _made(form, names, values)
        return [(place, row) for place, row in enumerate(made) if place not in removed] if removed else list(enumerate(made))

    def removals(self, form: Form, packed: Packed) -> list[tuple[int, dict[str, list[Any]]]]:
        """Position of each row that removes, and for each part of the key that it writes the values that it means."""
        takers, found = self._prepared(form), []
        for place, plain in enumerate(unpack(packed)) if "remove" in packed["columns"] else ():
            if plain.get("remove"):
                parts = {name: _taken(takers.get(name), plain[name]) for name in form.key + form.apart if name in plain}
                several = ("version",) if form.expands else ()
                found.append((place, {name: list(value) if name in several else [value] for name, value in parts.items()}))
        return found

    def fields(self, form: Form, plain: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a row type, made of plain values."""
        takers = self._prepared(form)
        return {name: _taken(takers.get(name), value) for name, value in plain.items()}

    def _columns(self, form: Form, packed: Packed, given: Given, prefix: str) -> tuple[list[str], list[Sequence[Any]]]:
        """Every field of the row type, and every further column, with its value in each row."""
        takers, count, columns = {**self._prepared(form), **given.takers}, packed["count"], packed["columns"]
        defaults = defaults_of(form.type)
        absent = {**defaults, **self.fields(form, given.fields)}
        if prefix and "source" in absent:
            absent["source"] = tuple(prefix + id_ for id_ in absent["source"])
        names = list(dict.fromkeys((*absent, *(name for name in columns if name != "remove"))))
        values: list[Sequence[Any]] = []
        for name in names:
            if name not in columns:
                values.append([absent[name]] * count)
                continue
            pool, places = columns[name]
            taker = takers.get(name)
            made = pool if taker is None else [taker(value) for value in pool]
            if prefix and name == "source":
                made = [tuple(prefix + id_ for id_ in ids) for ids in made]
            if places is not None:
                made = [*made, absent.get(name)]
                made = [made[place] for place in places]
            values.append(made)
        return names, values

    def _prepared(self, form: Form) -> dict[str, Any]:
        takers = self._takers.get(id(form))
        if takers is None:
            takers = self._takers[id(form)] = {one.field: self._taker(one.kind) for one in (*form.columns, *form.derived)}
        return takers

    def _taker(self, kind: Kind) -> Any:
        if kind.each is not None:
            inner = self._taker(kind.each)
            return tuple if inner is None else lambda values: tuple(map(inner, values))
        if kind.take is None or not kind.shared:
            return kind.take
        seen = self._values.setdefault(kind.name, {})
        take = kind.take

        def taker(plain: Any) -> Any:
            found = seen.get(plain)
            if found is None:
                found = seen[plain] = take(plain)
            return found

        return taker


def _taken(taker: Any, value: Any) -> Any:
    return value if taker is None else taker(value)


def _removed(packed: Packed) -> frozenset[int]:
    if "remove" not in packed["columns"]:
        return frozenset()
    return frozenset(place for place, plain in enumerate(unpack(packed)) if plain.get("remove"))


def defaults_of(row_type: type[Struct]) -> dict[str, Any]:
    """The default of each field, `NODEFAULT` for one that must be given."""
    names, defaults = row_type.__struct_fields__, row_type.__struct_defaults__
    return dict(zip(names, (NODEFAULT,) * (len(names) - len(defaults)) + defaults, strict=True))


def _made(form: Form, names: Sequence[str], values: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The rows of equal-length columns."""
    known = frozenset(form.type.__struct_fields__)
    chosen = [(name, column) for name, column in zip(names, values, strict=True) if name in known]
    kept = tuple(name for name, _ in chosen)
    for cells in zip(*(column for _, column in chosen), strict=True):
        yield form.type(**dict(zip(kept, cells, strict=True)))


def _expanded(form: Form, fields_: dict[str, Any], given: Given) -> list[Any]:
    """One row of a framework's table for each version that it lists."""
    versions, local = fields_.pop("version"), fields_.pop("local", None)
    with_local = [f"{version}+{local}" for version in versions] if local else versions
    if form.type is ExtraRelease:
        return list(_made(form, ["version", *fields_], [with_local, *([value] * len(versions) for value in fields_.values())]))
    wheel, date = fields_.pop("wheel_version", None), fields_.pop("date", None)
    own = {
        "version": versions,
        "wheel_version": [wheel] * len(versions) if wheel else with_local,
        "date": [date or given.dates.get(version) for version in versions],
    }
    return list(_made(form, [*own, *fields_], [*own.values(), *([value] * len(versions) for value in fields_.values())]))


def source_of(id_: str, plain: Mapping[str, str]) -> Source:
    """The source that `[source.ID]` describes."""
    return Source(id=id_, where=plain["where"], read=plain["read"], confidence=plain.get("confidence"))


def render(form: Form, row: object) -> dict[str, Any]:
    """What a TOML table of this row holds: columns whose value is not the row type's default."""
    shown: dict[str, Any] = {}
    defaults = defaults_of(form.type)
    for column in form.columns:
        if column.field not in defaults:  # `local` is in the version already
            continue
        value = getattr(row, column.field)
        if not column.required and value == defaults[column.field]:
            continue
        alone = form.expands and column.field == "version"  # a list in the table, one of them in the row
        plain = value if column.kind.show is None or alone else column.kind.show(value)
        outer, dot, inner = column.name.partition(".")
        if dot:
            shown.setdefault(outer, {})[inner] = plain
        else:
            shown[outer] = plain
    return shown
