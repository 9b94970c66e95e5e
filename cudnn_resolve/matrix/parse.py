"""A table's text to checked plain values, and those to rows.

`decode` reads TOML; `compile_table` checks every column of every row and says all faults at once, in paths; what comes out is
plain (texts, numbers, lists, tables), so that it can be kept in a cache; `build.Builder` makes rows of it and asks nothing again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from cudnn_resolve.matrix.column import DATE, FLAG, IDENTIFIER, TEXT, VERSION, Column, Kind, one_of, quote
from cudnn_resolve.matrix.pack import pack
from cudnn_resolve.matrix.table import Form, TableForm, table_form

Compiled = Mapping[str, Any]
"""All plain: `{"read": day, "head": {field: value}, "rows": {array: packed rows}, "dates": {version: day}, "sources": {id: {…}}}`.

A row of an overlay that removes others holds `"remove": true` and those parts of the key that these have.
"""

MOST_ROWS = 50000
_BARE = r"[A-Za-z0-9_-]{1,60}"
_ORIGIN = one_of("authored", "harvested")
_SOURCE_COLUMNS = {"where": TEXT, "read": DATE, "confidence": one_of("memory")}


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a table: the file, the place in it (`build[3].cuda_built`), and what is wrong."""

    file: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.message}" if self.place else f"{self.file}: {self.message}"


def decode(text: str) -> dict[str, Any]:
    """The mapping that a TOML text holds; ValueError, in the parser's words, where it is no TOML."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def compile_table(name: str, raw: Mapping[str, Any], *, file: str, overlay: bool = False) -> tuple[Compiled, tuple[Fault, ...]]:
    """The plain form of table `name`, and every fault of it; with faults the form is not to be used.

    `overlay` allows rows with `remove = true`, and rows, heads and files that leave out what the table below them says already.
    """
    form = table_form(name)
    if form is None:
        return {}, (Fault(file=file, place="", message=f"there is no table {quote(name)}"),)
    work = _Check(form=form, name=name, file=file, overlay=overlay)
    compiled = work.table(raw)
    return compiled, tuple(work.faults)


class _Check:
    """One pass over one file; `faults` grows."""

    def __init__(self, *, form: TableForm, name: str, file: str, overlay: bool) -> None:
        self.form, self.name, self.file, self.overlay = form, name, file, overlay
        self.faults: list[Fault] = []
        self.sources: dict[str, dict[str, str]] = {}
        self.head: dict[str, Any] = {}

    def fault(self, place: str, message: str) -> None:
        self.faults.append(Fault(file=self.file, place=place, message=message))

    def table(self, raw: Mapping[str, Any]) -> Compiled:
        rest = dict(raw)
        origin = rest.pop("origin", None)
        read = self._origin(origin, rest)
        self._sources(rest.pop("source", {}))
        self.head = self._head(rest)
        rows = {form.array: list(self._rows(form, rest.pop(form.array, []))) for form in self.form.arrays}
        dates = self._dates(rest.pop("date", {})) if self.form.dates else {}
        known = ["origin", "source", *rows, *([self.form.head.array] if self.form.head else ())]
        self._metadata(rows)
        for key in rest:
            self.fault(_key(key), f"is not part of this table{_nearest(key, known)}")
        if not self.overlay and not any(rows.values()) and not self.faults:
            self.fault("", "holds no rows")
        packed = {array: pack(found) for array, found in rows.items()}
        return {"read": read, "head": self.head, "rows": packed, "dates": dates, "sources": self.sources}

    def _origin(self, origin: object, rest: dict[str, Any]) -> str | None:
        """The day on which a harvested table was read."""
        if origin is None and self.overlay:
            return None
        if self._value("origin", _ORIGIN, origin) != "harvested":
            return None
        self._value("script", TEXT, rest.pop("script", None))
        read: str | None = self._value("read", DATE, rest.pop("read", None))
        return read

    def _value(self, place: str, kind: Kind, value: object) -> Any:
        """The plain value, None (and a fault) where it is missing or wrong."""
        if value is None:
            self.fault(place, f"is missing; expected {kind.name}")
            return None
        try:
            return kind.check(value)
        except ValueError as error:
            self.fault(place, str(error))
        except RecursionError:
            self.fault(place, "is nested too deeply")
        return None

    def _sources(self, raw: object) -> None:
        if not isinstance(raw, dict):
            self.fault("source", f"{quote(raw)} is not a set of tables [source.ID]")
            return
        for id_, entry in raw.items():
            place = f"source.{_key(id_)}"
            self._value(place, IDENTIFIER, id_)
            if not isinstance(entry, dict):
                self.fault(place, f"{quote(entry)} is not a table")
                continue
            plain = {}
            for key, value in entry.items():
                if key in _SOURCE_COLUMNS:
                    plain[key] = self._value(f"{place}.{key}", _SOURCE_COLUMNS[key], value)
                else:
                    whole = f"{id_}.{key}"
                    dotted = isinstance(value, dict) and whole.isprintable()
                    hint = f'; an id with a dot is written [source."{whole}"]' if dotted else ""
                    self.fault(f"{place}.{_key(key)}", f"is not a column{hint or _nearest(key, list(_SOURCE_COLUMNS))}")
            for key in ("where", "read"):
                if key not in entry:
                    self.fault(f"{place}.{key}", "is missing")
            self.sources[id_] = plain

    def _dates(self, raw: object) -> dict[str, str]:
        if not isinstance(raw, dict):
            self.fault("date", f"{quote(raw)} is not a table of versions and their days")
            return {}
        for version, day in raw.items():
            self._value(f"date.{_key(version)}", VERSION, version)
            raw[version] = self._value(f"date.{_key(version)}", DATE, day)
        return raw

    def _head(self, rest: dict[str, Any]) -> dict[str, Any]:
        form = self.form.head
        if form is None:
            return {}
        if form.array:
            raw = rest.pop(form.array, None)
            if raw is None and self.overlay:
                return {}
        else:
            raw = {column.name: rest.pop(column.name) for column in form.columns if column.name in rest}
        head = self._row(form, form.array, raw, whole=not self.overlay)
        own = head.get(form.key[0])
        stem = self.name.partition("/")[2]
        if own is not None and own != stem:
            self.fault(_join(form.array, form.key[0]), f"{quote(own)} is not the name of its file, {stem}.toml")
        return head

    def _rows(self, form: Form, raw: object) -> Iterator[dict[str, Any]]:
        if not isinstance(raw, list) or len(raw) > MOST_ROWS:
            self.fault(form.array, f"is not an array of tables [[{form.array}]] of at most {MOST_ROWS} rows")
            return
        for place, entry in enumerate(raw):
            yield self._row(form, f"{form.array}[{place}]", entry, whole=True)

    def _metadata(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        """Each id under `metadata` of a wheel's release is that of a [[metadata]] entry of the file."""
        known = {entry.get("id") for entry in rows.get("metadata", ())}
        if "metadata" in rows:
            for position, release in enumerate(rows["release"]):
                for number in set(release.get("requires", {}).values()) - known:
                    self.fault(f"release[{position}].metadata", f"{number} is not the id of a [[metadata]] entry of this file")

    def _row(self, form: Form, place: str, raw: object, *, whole: bool) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self.fault(place, f"{quote(raw)} is not a table of columns" if raw is not None else "is missing")
            return {}
        columns = {column.name: column for column in form.columns}
        plain: dict[str, Any] = {}
        present = set()
        removes = self.overlay and raw.get("remove") is True
        for key, value in _flat(raw, columns):
            present.add(key)
            column = columns.get(key)
            if key == "remove" and self.overlay:
                self._value(_join(place, key), FLAG, value)
            elif column is None:
                self.fault(_join(place, ".".join(map(_key, key.split(".")))), f"is not a column{_nearest(key, list(columns))}")
            else:
                found = self._value(_join(place, key), column.kind, value)
                if found is not None:
                    plain[column.field] = found
        if removes:
            plain["remove"] = True
        self._missing(form, place, present, whole=whole, removes=removes)
        self._cited(place, form, plain)
        return plain if form.derive is None or removes else plain | form.derive(plain)

    def _missing(self, form: Form, place: str, present: set[str], *, whole: bool, removes: bool) -> None:
        for column in form.columns:
            needed = column.field == form.key[0] if removes else column.required and whole
            if needed and column.name not in present:
                self.fault(_join(place, column.name), f"is missing; expected {column.kind.name}")

    def _cited(self, place: str, form: Form, plain: dict[str, Any]) -> None:
        """Each id under `source` is one of the file's own `[source.ID]`, and an authored row has one."""
        if not any(column.field == "source" for column in form.columns):
            return
        for id_ in plain.get("source", ()):
            if id_ not in self.sources:
                self.fault(_join(place, "source"), f"{quote(id_)} is not one of the [source.ID] tables of this file")
        if not plain.get("source") and not self.overlay and not (form.expands and self.head.get("source")):
            self.fault(_join(place, "source"), "is missing: every row says where it comes from")


def _flat(raw: dict[str, Any], columns: Mapping[str, Column]) -> Iterator[tuple[str, Any]]:
    """Keys and values of a row; an inline table whose parts are columns gives `apt.package`, `apt.version`."""
    for key, value in raw.items():
        if isinstance(value, dict) and any(name.startswith(f"{key}.") for name in columns):
            for part, inner in value.items():
                yield f"{key}.{part}", inner
        else:
            yield key, value


def _key(key: str) -> str:
    return key if re.fullmatch(_BARE, key) else quote(key)


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _nearest(word: str, known: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word[:60], known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
