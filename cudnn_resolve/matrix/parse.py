"""Parser of a table's TOML into typed rows; reports every fault of the file at once, each with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.column import SINGLE, Day, Identifier, PackageName, Requirement, Text, Version
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import Removal, Table, arrays_of, table_type
from cudnn_resolve.matrix.toml import quote
from cudnn_resolve.matrix.value import columns_of, described, is_class, reader, required

MOST_ROWS = 50000
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_TOP_LEVEL_KEYS = {"framework": ("framework", "like"), "wheel": ("package", "lines"), "evidence": ("package",), "measured": ("package",)}
"""Folder to the keys that its files may have besides sources and arrays of rows."""
_Versions = Annotated[tuple[Version, ...], SINGLE]


def compile_table(name: str, raw: Mapping[str, Any], *, file: str, overlay: bool = False) -> tuple[Table, tuple[Fault, ...]]:
    """Return the table `name` and its faults; a table with faults must not be used.

    `overlay` allows `remove = true`, and rows, heads and files that omit what the table below them gives.
    """
    type_ = table_type(name)
    if type_ is None:
        return Table(), (Fault(file=file, place="", message=f"there is no table {quote(name)}"),)
    parser = _Parser(type_, name, file, overlay=overlay)
    table = parser.table(dict(raw))
    return table, tuple(parser.faults)


class _Parser:
    """One pass over one file, collecting `faults`."""

    def __init__(self, type_: type[Table], name: str, file: str, *, overlay: bool) -> None:
        self.type, self.file, self.overlay = type_, file, overlay
        self.arrays = arrays_of(name)
        self.folder, _, self.stem = name.partition("/")
        self.faults: list[Fault] = []
        self.sources: dict[str, row.Source] = {}
        self.head: row.Head | None = None
        self.like: dict[str, dict[str, Any]] = {}

    def fault(self, place: str, message: str) -> None:
        self.faults.append(Fault(file=self.file, place=place, message=message))

    def table(self, raw: dict[str, Any]) -> Table:
        """Parse the whole file, emptying `raw`."""
        read = self._read_day(raw)
        self._sources(raw.pop("source", {}))
        if self.folder == "framework":
            self._framework(raw)
        if self.folder in ("wheel", "evidence", "measured"):
            self._named("package", self._value("package", PackageName, raw.pop("package", None)))
        lines = self._value("lines", tuple[Requirement, ...], raw.pop("lines", [])) if self.folder == "wheel" else ()
        rows: dict[str, list[Any]] = {}
        places: dict[str, tuple[int, ...]] = {}
        removals: list[Removal] = []
        for array, row_type in self.arrays.items():
            found = list(self._rows(array, row_type, raw.pop(array, [])))
            removals += [entry for _, entry in found if isinstance(entry, Removal)]
            kept = [(position, entry) for position, entry in found if not isinstance(entry, Removal)]
            rows[array] = [entry for _, entry in kept]
            if any(position != index for index, (position, _) in enumerate(kept)):
                places[array] = tuple(position for position, _ in kept)
        if self.folder == "wheel":
            self._references(rows, places.get("release", ()), len(lines or ()))
        known = ["origin", "source", *rows, *_TOP_LEVEL_KEYS.get(self.folder, ())]
        for key in raw:
            self.fault(_key(key), f"is not part of this table{_suggestion(key, known)}")
        if not self.overlay and not any(rows.values()) and not self.faults:
            self.fault("", "holds no rows")
        if self.faults:
            return self.type()
        arrays: Any = {array: tuple(found) for array, found in rows.items()}
        return self.type(
            framework=self.head, read=read, source=self.sources, lines=lines or (), places=places, removals=tuple(removals), **arrays
        )

    def _read_day(self, raw: dict[str, Any]) -> str | None:
        """Check `origin`, and return the day on which a harvested table was read."""
        origin = raw.pop("origin", None)
        if origin is None and self.overlay:
            return None
        if self._value("origin", Literal["authored", "harvested"], origin) != "harvested":
            return None
        self._value("script", Text, raw.pop("script", None))
        day: str | None = self._value("read", Day, raw.pop("read", None))
        return day

    def _value(self, place: str, type_: Any, value: object) -> Any:
        """Return the value, or None after reporting that it is missing or wrong."""
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
        columns = row.Source.__struct_fields__
        for id_, entry in raw.items():
            place = f"source.{_key(id_)}"
            self._value(place, Identifier, id_)
            if not isinstance(entry, dict):
                self.fault(place, f"{quote(entry)} is not a table")
                continue
            for key in [key for key in entry if key not in columns]:
                dotted = f"{id_}.{key}"
                hint = f'; write an id with a dot as [source."{dotted}"]' if isinstance(entry[key], dict) and dotted.isprintable() else ""
                self.fault(f"{place}.{_key(key)}", f"is not a column{hint or _suggestion(key, list(columns))}")
            known = {key: value for key, value in entry.items() if key in columns}
            found = self._fields(row.Source, place, known, missing=("where", "read"))
            if found.keys() >= {"where", "read"}:
                self.sources[id_] = row.Source(**found)
            elif id_ not in self.sources:
                self.sources[id_] = row.Source(where="", read="")

        for id_ in [id_ for id_, source in self.sources.items() if source.default][1:]:
            self.fault(f"source.{_key(id_)}.default", "is set twice: one source is that of rows that name none")

    def _framework(self, raw: dict[str, Any]) -> None:
        """Parse `[framework]` and `[like.ID]`."""
        head = raw.pop("framework", None)
        if head is not None or not self.overlay:
            found = self._row("framework", row.Head, head, missing=() if self.overlay else ("name", "title", "packages"))
            self._named("framework.name", found.get("name"))
            self.head = row.Head(**found)
        likes = raw.pop("like", {})
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

    def _rows(self, array: str, row_type: type[row.Plain], raw: object) -> Iterator[tuple[int, Any]]:
        """Yield the position of each entry with a row or removal made of it."""
        if not isinstance(raw, list) or len(raw) > MOST_ROWS:
            self.fault(array, f"is not an array of tables [[{array}]] of at most {MOST_ROWS} rows")
            return
        for position, entry in enumerate(raw):
            place = f"{array}[{position}]"
            if self.overlay and isinstance(entry, dict) and entry.get("remove") is True:
                yield position, self._removal(array, position, row_type, entry)
                continue
            for single in self._split_versions(place, entry) if row_type is row.WheelRelease else (entry,):
                found = self._row(place, row_type, single, missing=required(row_type))
                before = len(self.faults)
                self._cited(place, row_type, found)
                if len(self.faults) == before and found.keys() >= set(required(row_type)):
                    yield from ((position, made) for made in self._made(row_type, found))

    def _removal(self, array: str, position: int, row_type: type[row.Plain], entry: dict[str, Any]) -> Removal:
        columns = {key: value for key, value in entry.items() if key != "remove"}
        self._row(f"{array}[{position}]", row_type, columns, missing=row_type.identity[:1])
        known = columns_of(row_type)
        parts = {}
        for key, value in columns.items():
            if key in known and known[key].field in row_type.identity + row_type.apart:
                several = row_type.expands and key == "version" and isinstance(value, list)
                parts[key] = value if several else [value]
        return Removal(array=array, position=position, parts=parts)

    def _split_versions(self, place: str, entry: object) -> Sequence[object]:
        """Return one entry per release of a row in a wheel table, which may list several versions with their days."""
        versions = entry.get("version") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(versions, list):
            return (entry,)
        days = entry.get("date", [None] * len(versions))
        if not isinstance(days, list) or len(days) != len(versions):
            self.fault(f"{place}.date", f"is not a list of {len(versions)} days, one for each version")
            return ()
        shared = {key: value for key, value in entry.items() if key not in ("version", "date")}
        pairs = zip(versions, days, strict=True)
        return [{"version": version, **({"date": day} if day is not None else {}), **shared} for version, day in pairs]

    def _row(self, place: str, row_type: type[row.Plain], raw: object, *, missing: tuple[str, ...]) -> dict[str, Any]:
        """Return the valid fields of a row, with those of its `[like.ID]`."""
        if not isinstance(raw, dict):
            self.fault(place, f"{quote(raw)} is not a table of columns" if raw is not None else "is missing")
            return {}
        if row_type.expands and isinstance(raw.get("like"), str):
            if raw["like"] not in self.like:
                self.fault(f"{place}.like", f"{quote(raw['like'])} is not one of the [like.ID] tables of this file")
            raw = {**self.like.get(raw["like"], {}), **raw}
        return self._fields(row_type, place, raw, missing=missing)

    def _fields(self, type_: type[Struct], place: str, raw: dict[str, Any], *, missing: tuple[str, ...]) -> dict[str, Any]:
        columns, found = columns_of(type_), {}
        for key, value in raw.items():
            where = f"{place}.{_key(key)}"
            column = columns.get(key)
            if key == "remove" and self.overlay:
                self._value(where, bool, value)
            elif column is None:
                self.fault(where, f"is not a column{_suggestion(key, list(columns))}")
            elif isinstance(value, dict) and is_class(column.type) and issubclass(column.type, Struct):
                found[column.field] = column.type(**self._fields(column.type, where, value, missing=()))
            else:
                several = key == "version" and getattr(type_, "expands", False)
                content = self._read(where, reader(_Versions) if several else column.read, value)
                if content is not None:
                    found[column.field] = content
        for name in missing:
            key = type_.__struct_encode_fields__[type_.__struct_fields__.index(name)]
            if key not in raw:
                self.fault(f"{place}.{key}", f"is missing; expected {described(columns[key].type)}")
        return found

    def _cited(self, place: str, row_type: type[row.Plain], found: dict[str, Any]) -> None:
        """Require that an authored row has a source, and that each is a `[source.ID]` of the file."""
        if "source" not in row_type.__struct_fields__:
            return
        for id_ in found.get("source", ()):
            if id_ not in self.sources:
                self.fault(f"{place}.source", f"{quote(id_)} is not one of the [source.ID] tables of this file")
        default = tuple(id_ for id_, source in self.sources.items() if source.default)
        if default:
            found.setdefault("source", default)
        inherited = row_type.expands and self.head is not None and self.head.source
        if not found.get("source") and not self.overlay and not inherited:
            self.fault(f"{place}.source", "is missing: every row needs a source")

    def _made(self, row_type: type[row.Plain], found: dict[str, Any]) -> Iterator[row.Plain]:
        """Make the row, in a framework table one for each version that it lists, with the defaults of its head."""
        if not row_type.expands:
            yield row_type(**found)
            return
        versions, local, wheel = found.pop("version"), found.pop("local", None), found.get("wheel_version")
        found.pop("like", None)
        if self.head is not None:
            found.setdefault("source", self.head.source)
        if row_type is row.Build:
            found["framework"] = self.stem
            if self.head is not None and self.head.packages:
                found.setdefault("package", self.head.packages[0])
        for version in versions:
            whole = f"{version}+{local}" if local else version
            if row_type is row.Build:
                yield row.Build(**{**found, "version": version, "wheel_version": wheel or whole})
            else:
                yield row_type(**{**found, "version": whole})

    def _references(self, rows: dict[str, list[Any]], places: Sequence[int], lines: int) -> None:
        """Require that the numbers in a wheel table refer to a [[metadata]] or [[files]] entry, or to one of its lines."""
        known = {array: {entry.id for entry in rows[array]} for array in ("metadata", "files")}
        for position, release in enumerate(rows["release"]):
            ids = release.metadata.values() if isinstance(release.metadata, dict) else [release.metadata]
            for array, numbers in (("metadata", ids), ("files", [release.files])):
                for number in sorted({number for number in numbers if number is not None} - known[array]):
                    self.fault(
                        f"release[{places[position] if places else position}].{array}",
                        f"{number} is not the id of a [[{array}]] entry of this file",
                    )
        for position, entry in enumerate(rows["metadata"]):
            for number in entry.requires:
                if isinstance(number, int) and number >= lines:
                    self.fault(f"metadata[{position}].requires", f"{number} is not the position of one of the lines of this file")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else quote(key)


def _suggestion(word: str, known: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(word[:60], known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
