"""A table's TOML to typed rows, with every fault of the file at once, each with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.column import SINGLE, Day, Identifier, PackageName, Requirement, Text, Version
from cudnn_resolve.matrix.position import Fault
from cudnn_resolve.matrix.table import Removal, Table, table_type
from cudnn_resolve.matrix.toml import quote
from cudnn_resolve.matrix.value import columns_of, described, is_class, reader, required

MOST_ROWS = 50000
_BARE = r"[A-Za-z0-9_-]{1,60}"
_BESIDE_ROWS = {"framework": ("framework", "like"), "wheel": ("package", "lines"), "evidence": ("package",), "measured": ("package",)}
"""Folder to what its files may hold besides rows and sources."""
_Versions = Annotated[tuple[Version, ...], SINGLE]


def compile_table(name: str, raw: Mapping[str, Any], *, file: str, overlay: bool = False) -> tuple[Table, tuple[Fault, ...]]:
    """Return the table `name` and every fault of it; with faults the table is not to be used.

    `overlay` allows rows with `remove = true`, and rows, heads and files that leave out what the table below them says already.
    """
    type_ = table_type(name)
    if type_ is None:
        return Table(), (Fault(file=file, place="", message=f"there is no table {quote(name)}"),)
    check = _Check(type_, name, file, overlay=overlay)
    table = check.table(dict(raw))
    return table, tuple(check.faults)


class _Check:
    """One pass over one file; `faults` grows."""

    def __init__(self, type_: type[Table], name: str, file: str, *, overlay: bool) -> None:
        self.type, self.file, self.overlay = type_, file, overlay
        self.folder, _, self.stem = name.partition("/")
        self.faults: list[Fault] = []
        self.sources: dict[str, row.Source] = {}
        self.head: row.Head | None = None
        self.like: dict[str, dict[str, Any]] = {}

    def fault(self, place: str, message: str) -> None:
        self.faults.append(Fault(file=self.file, place=place, message=message))

    def table(self, rest: dict[str, Any]) -> Table:
        """Check the whole file."""
        read = self._origin(rest)
        self._sources(rest.pop("source", {}))
        if self.folder == "framework":
            self._framework(rest)
        if self.folder in ("wheel", "evidence", "measured"):
            self._named("package", self._value("package", PackageName, rest.pop("package", None)))
        lines = self._value("lines", tuple[Requirement, ...], rest.pop("lines", [])) if self.folder == "wheel" else ()
        rows: dict[str, list[Any]] = {}
        places: dict[str, tuple[int, ...]] = {}
        removals: list[Removal] = []
        for array, type_ in self.type.arrays.items():
            found = list(self._rows(array, type_, rest.pop(array, [])))
            removals += [one for _, one in found if isinstance(one, Removal)]
            kept = [(position, one) for position, one in found if not isinstance(one, Removal)]
            rows[array] = [one for _, one in kept]
            if any(position != place for place, (position, _) in enumerate(kept)):
                places[array] = tuple(position for position, _ in kept)
        self._shared(rows, places.get("release", ()), len(lines or ()))
        known = ["origin", "source", *rows, *_BESIDE_ROWS.get(self.folder, ())]
        for key in rest:
            self.fault(_key(key), f"is not part of this table{_nearest(key, known)}")
        if not self.overlay and not any(rows.values()) and not self.faults:
            self.fault("", "holds no rows")
        if self.faults:
            return self.type()
        every: Any = {array: tuple(found) for array, found in rows.items()}
        return self.type(
            framework=self.head, read=read, source=self.sources, lines=lines or (), places=places, removals=tuple(removals), **every
        )

    def _origin(self, rest: dict[str, Any]) -> str | None:
        """Return the day on which a harvested table was read."""
        origin = rest.pop("origin", None)
        if origin is None and self.overlay:
            return None
        if self._value("origin", Literal["authored", "harvested"], origin) != "harvested":
            return None
        self._value("script", Text, rest.pop("script", None))
        read: str | None = self._value("read", Day, rest.pop("read", None))
        return read

    def _value(self, place: str, type_: Any, value: object) -> Any:
        """Return the value; None (and a fault) where it is missing or wrong."""
        if value is None:
            self.fault(place, f"is missing; expected {described(type_)}")
            return None
        return self._read(place, reader(type_), value)

    def _read(self, place: str, read: Callable[[Any], Any], value: object) -> Any:
        try:
            return read(value)
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
            self._value(place, Identifier, id_)
            if not isinstance(entry, dict):
                self.fault(place, f"{quote(entry)} is not a table")
                continue
            for key in [key for key in entry if key not in row.Source.__struct_fields__]:
                dotted = f"{id_}.{key}"
                hint = f'; an id with a dot is written [source."{dotted}"]' if isinstance(entry[key], dict) and dotted.isprintable() else ""
                self.fault(f"{place}.{_key(key)}", f"is not a column{hint or _nearest(key, list(row.Source.__struct_fields__))}")
            known = {key: value for key, value in entry.items() if key in row.Source.__struct_fields__}
            found = self._fields(row.Source, place, known, missing=("where", "read"))
            if found.keys() >= {"where", "read"}:
                self.sources[id_] = row.Source(**found)
            elif id_ not in self.sources:
                self.sources[id_] = row.Source(where="", read="")

    def _framework(self, rest: dict[str, Any]) -> None:
        """Check `[framework]` and `[like.ID]`."""
        raw = rest.pop("framework", None)
        if raw is not None or not self.overlay:
            found = self._row("framework", row.Head, raw, missing=() if self.overlay else ("name", "title", "packages"))
            self._named("framework.name", found.get("name"))
            self.head = row.Head(**found)
        likes = rest.pop("like", {})
        if not isinstance(likes, dict):
            self.fault("like", f"{quote(likes)} is not a set of tables [like.ID]")
            return
        for id_, entry in likes.items():
            if isinstance(entry, dict) and "like" not in entry and "version" not in entry:
                self.like[id_] = entry
            else:
                self.fault(f"like.{_key(id_)}", "is not a table of columns that rows share")

    def _named(self, place: str, name: str | None) -> None:
        if name is not None and name != self.stem:
            self.fault(place, f"{quote(name)} is not the name of its file, {self.stem}.toml")

    def _rows(self, array: str, type_: type[row.Plain], raw: object) -> Iterator[tuple[int, Any]]:
        if not isinstance(raw, list) or len(raw) > MOST_ROWS:
            self.fault(array, f"is not an array of tables [[{array}]] of at most {MOST_ROWS} rows")
            return
        for position, entry in enumerate(raw):
            place = f"{array}[{position}]"
            if self.overlay and isinstance(entry, dict) and entry.get("remove") is True:
                self._row(place, type_, {key: value for key, value in entry.items() if key != "remove"}, missing=type_.identity[:1])
                names = columns_of(type_)
                parts = {
                    key: _listed(type_, key, entry[key])
                    for key in entry
                    if key in names and names[key].field in type_.identity + type_.apart
                }
                yield position, Removal(array=array, position=position, parts=parts)
                continue
            for single in self._apart(place, entry) if type_ is row.WheelRelease else (entry,):
                found = self._row(place, type_, single, missing=required(type_))
                before = len(self.faults)
                self._cited(place, type_, found)
                if len(self.faults) == before and found.keys() >= set(required(type_)):
                    yield from ((position, one) for one in self._made(type_, found))

    def _apart(self, place: str, entry: object) -> Sequence[object]:
        """Return the releases of a row of a wheel table, which may list several with their days."""
        versions = entry.get("version") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(versions, list):
            return (entry,)
        days = entry.get("date", [None] * len(versions))
        if not isinstance(days, list) or len(days) != len(versions):
            self.fault(f"{place}.date", f"is not a list of {len(versions)} days, as many as there are versions")
            return ()
        shared = {key: value for key, value in entry.items() if key not in ("version", "date")}
        pairs = zip(versions, days, strict=True)
        return [{"version": version, **({"date": day} if day is not None else {}), **shared} for version, day in pairs]

    def _row(self, place: str, type_: type[row.Plain], raw: object, *, missing: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of a row, those that are right."""
        if not isinstance(raw, dict):
            self.fault(place, f"{quote(raw)} is not a table of columns" if raw is not None else "is missing")
            return {}
        if type_.expands and isinstance(raw.get("like"), str):
            if raw["like"] not in self.like:
                self.fault(f"{place}.like", f"{quote(raw['like'])} is not one of the [like.ID] tables of this file")
            raw = {**self.like.get(raw["like"], {}), **raw}
        return self._fields(type_, place, raw, missing=missing)

    def _fields(self, type_: type[Struct], place: str, raw: dict[str, Any], *, missing: tuple[str, ...]) -> dict[str, Any]:
        columns, found = columns_of(type_), {}
        for key, value in raw.items():
            where = f"{place}.{_key(key)}"
            column = columns.get(key)
            if key == "remove" and self.overlay:
                self._value(where, bool, value)
            elif column is None:
                self.fault(where, f"is not a column{_nearest(key, list(columns))}")
            elif isinstance(value, dict) and is_class(column.type) and issubclass(column.type, Struct):
                found[column.field] = column.type(**self._fields(column.type, where, value, missing=()))
            else:
                several = key == "version" and getattr(type_, "expands", False)
                read = self._read(where, reader(_Versions) if several else column.read, value)
                if read is not None:
                    found[column.field] = read
        for name in missing:
            key = type_.__struct_encode_fields__[type_.__struct_fields__.index(name)]
            if key not in raw:
                self.fault(f"{place}.{key}", f"is missing; expected {described(columns[key].type)}")
        return found

    def _cited(self, place: str, type_: type[row.Plain], found: dict[str, Any]) -> None:
        """Require that each id under `source` is one of the file's own `[source.ID]`, and that an authored row has one."""
        if "source" not in type_.__struct_fields__:
            return
        for id_ in found.get("source", ()):
            if id_ not in self.sources:
                self.fault(f"{place}.source", f"{quote(id_)} is not one of the [source.ID] tables of this file")
        inherited = type_.expands and self.head is not None and self.head.source
        if not found.get("source") and not self.overlay and not inherited:
            self.fault(f"{place}.source", "is missing: every row says where it comes from")

    def _made(self, type_: type[row.Plain], found: dict[str, Any]) -> Iterator[row.Plain]:
        """Make the row, for a framework one for each version that it lists, with what its framework says."""
        if not type_.expands:
            yield type_(**found)
            return
        versions, local, wheel = found.pop("version"), found.pop("local", None), found.get("wheel_version")
        found.pop("like", None)
        if self.head is not None:
            found.setdefault("source", self.head.source)
        if type_ is row.Build:
            found["framework"] = self.stem
            if self.head is not None and self.head.packages:
                found.setdefault("package", self.head.packages[0])
        for version in versions:
            whole = f"{version}+{local}" if local else version
            if type_ is row.Build:
                yield row.Build(**{**found, "version": version, "wheel_version": wheel or whole})
            else:
                yield type_(**{**found, "version": whole})

    def _shared(self, rows: dict[str, list[Any]], places: Sequence[int], lines: int) -> None:
        """Require that what a wheel's release and its metadata share by number is there: [[metadata]], [[files]] and lines."""
        known = {array: {entry.id for entry in rows.get(array, ())} for array in ("metadata", "files")}
        for position, release in enumerate(rows["release"] if "metadata" in rows else ()):
            ids = release.metadata.values() if isinstance(release.metadata, dict) else [release.metadata]
            for array, numbers in (("metadata", ids), ("files", [release.files])):
                for number in sorted({one for one in numbers if one is not None} - known[array]):
                    self.fault(
                        f"release[{places[position] if places else position}].{array}",
                        f"{number} is not the id of a [[{array}]] entry of this file",
                    )
        for position, entry in enumerate(rows.get("metadata", ())):
            for number in [one for one in entry.requires if isinstance(one, int) and one >= lines]:
                self.fault(f"metadata[{position}].requires", f"{number} is not the position of one of the lines of this file")


def _listed(type_: type[row.Plain], key: str, value: Any) -> list[Any]:
    """Return the values that a part of an identity means: each of several versions, any other as it is."""
    return value if type_.expands and key == "version" and isinstance(value, list) else [value]


def _key(key: str) -> str:
    return key if re.fullmatch(_BARE, key) else quote(key)


def _nearest(word: str, known: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word[:60], known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
