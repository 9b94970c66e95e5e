"""Compiled tables to rows, fast, and a row back to what TOML would hold.

Nothing is checked here: `parse.compile_table` did that when the table was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cudnn_resolve.matrix.column import Kind
from cudnn_resolve.matrix.row import ExtraRelease, Source
from cudnn_resolve.matrix.table import Form
from cudnn_resolve.record import dataclass, field, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What rows of a framework leave out: plain fields that are the same in all, and the day of each version."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)


NOTHING = Given()


class Builder:
    """Makes rows of compiled tables; equal texts of one kind share one value.

    `prefix` stands before the ids of sources, so that rows of an overlay cite the overlay's own.
    """

    def __init__(self) -> None:
        self._takers: dict[int, dict[str, Any]] = {}
        self._makers: dict[int, Callable[[Mapping[str, Any]], Any]] = {}
        self._values: dict[str, dict[Any, Any]] = {}

    def rows(self, form: Form, plain: Mapping[str, Any], *, given: Given = NOTHING, prefix: str = "") -> list[Any]:
        """The rows that one compiled row stands for: one, or of a framework's builds one for each version that it lists."""
        fields = self.fields(form, {**given.fields, **plain} if given.fields else plain)
        if prefix and "source" in fields:
            fields["source"] = tuple(prefix + id_ for id_ in fields["source"])
        make = self._makers.get(id(form)) or self._prepare_maker(form)
        if not form.expands:
            return [make(fields)]
        versions, local = fields["version"], fields.get("local")
        with_local = [f"{version}+{local}" for version in versions] if local else versions
        if form.type is ExtraRelease:
            return [make({**fields, "version": version}) for version in with_local]
        wheel, date = fields.get("wheel_version"), fields.get("date")
        made = []
        for version, pinned in zip(versions, with_local, strict=True):
            fields["version"], fields["wheel_version"] = version, wheel or pinned
            fields["date"] = date or given.dates.get(version)
            made.append(make(fields))
        return made

    def fields(self, form: Form, plain: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a row type, made of plain values."""
        takers = self._takers.get(id(form)) or self._prepare(form)
        fields = {}
        for name, value in plain.items():
            taker = takers.get(name)
            fields[name] = value if taker is None else taker(value)
        return fields

    def _prepare(self, form: Form) -> dict[str, Any]:
        takers = {column.field: self._taker(column.kind) for column in form.columns}
        self._takers[id(form)] = takers
        return takers

    def _prepare_maker(self, form: Form) -> Callable[[Mapping[str, Any]], Any]:
        made = self._makers[id(form)] = _maker(form)
        return made

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


def _maker(form: Form) -> Callable[[Mapping[str, Any]], Any]:
    """A function that makes a row of its fields, in a third of the time that the row type's own `__init__` takes.

    It asks less: keys that are no fields (`local`) are passed over, and only a required column that is absent is a KeyError.
    """
    needed = {column.field for column in form.columns if column.required}
    row_type, new = form.type, object.__new__
    every = [(one.name, getattr(row_type, one.name).__set__, one.default) for one in fields(row_type)]
    always = [(name, put) for name, put, _ in every if name in needed]
    others = [one for one in every if one[0] not in needed]

    def make(values: Mapping[str, Any]) -> Any:
        made = new(row_type)
        for name, put in always:
            put(made, values[name])
        find = values.get
        for name, put, default in others:
            put(made, find(name, default))
        return made

    return make


def source_of(id_: str, plain: Mapping[str, str]) -> Source:
    """The source that `[source.ID]` describes."""
    return Source(id=id_, where=plain["where"], read=plain["read"], confidence=plain.get("confidence"))


def render(form: Form, row: object) -> dict[str, Any]:
    """What a TOML table of this row holds: columns whose value is not the row type's default."""
    shown: dict[str, Any] = {}
    defaults = {one.name: one.default for one in fields(form.type)}
    for column in form.columns:
        value = getattr(row, column.field)
        if not column.required and value == defaults[column.field]:
            continue
        plain = value if column.kind.show is None else column.kind.show(value)
        outer, dot, inner = column.name.partition(".")
        if dot:
            shown.setdefault(outer, {})[inner] = plain
        else:
            shown[outer] = plain
    return shown
