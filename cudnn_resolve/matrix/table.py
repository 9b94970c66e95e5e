"""The tables of `matrices/`: the arrays of rows in each file, and the structs that compiled tables are MessagePack of."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import force_setattr

from cudnn_resolve.matrix import row, symptom
from cudnn_resolve.matrix.column import Day, Identifier, Requirement
from cudnn_resolve.matrix.named_machine import Place
from cudnn_resolve.matrix.wheel_content import MeasuredBuild, WheelEvidence
from cudnn_resolve.version import Capability, CodeTarget, Dotted

PartT = TypeVar("PartT", bound=Struct)
"""A table, or a part of it: a struct with some of its fields."""
Arrays = dict[str, type[row.Plain]]
"""Array of a table to the type of its rows."""
TABLES: dict[str, Arrays] = {
    "driver/branch": {"branch": row.Branch},
    "driver/minimum": {"minimum": row.Minimum, "floor": row.Floor},
    "driver/forward": {"forward": row.Forward},
    "gpu/architecture": {"architecture": row.Architecture},
    "gpu/card": {"card": row.Card},
    "gpu/peak": {"peak": row.Peak},
    "gpu/place": {"place": Place},
    "cuda/release": {"release": row.CudaRelease},
    "cuda/soname": {"soname": row.Soname},
    "cuda/component": {"component": row.Component},
    "cuda/wheel": {"wheel": row.CudaWheel},
    "cudnn/release": {"build": row.CudnnBuild},
    "advisory": {"advisory": row.Advisory},
    "trap": {"trap": row.Trap},
    "package/slot": {"slot": row.Slot},
    "package/removed": {"removed": row.RemovedName},
    "apt/repository": {"repository": row.Repository},
    "apt/package": {"package": row.AptPattern},
    "index": {"index": row.Index},
    "framework/*": {"build": row.Build, "bound": row.Bound, "release": row.ExtraRelease},
    "wheel/*": {"metadata": row.Metadata, "files": row.WheelFiles, "release": row.WheelRelease},
    "symptom/*": {"symptom": symptom.Symptom, "cause": symptom.Cause, "remedy": symptom.RemedyRow, "clue": symptom.Clue},
    "evidence/*": {"wheel": WheelEvidence},
    "measured/*": {"build": MeasuredBuild},
}
"""Arrays of each table; `framework/*` stands for every file of the folder."""
_PLACES = {row_type: (table, array) for table, arrays in TABLES.items() for array, row_type in arrays.items()}
_ARCHITECTURES = ("x86_64", "aarch64")
_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")


class Removal(Struct, frozen=True, kw_only=True):
    """Overlay row with `remove = true`: removes every row with these parts of the identity."""

    array: str
    position: int
    parts: dict[str, list[Any]]
    """Column to matching values, as written in TOML; several where the row lists versions."""


class Table(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One checked file; the subclass for its kind adds one field of rows per array."""

    framework: row.Head | None = None
    read: Day | None = None
    """Day on which a harvested table was read."""
    source: dict[Identifier, row.Source] = {}
    lines: tuple[Requirement, ...] = ()
    """Requirements shared by several `[[metadata]]` entries of a wheel table, referenced by position."""
    places: dict[str, tuple[int, ...]] = {}
    """Positions in the file of the rows of an array, where they differ from those in the field."""
    removals: tuple[Removal, ...] = ()


class BuildOutline(Struct, frozen=True):
    """Columns of a build that a list of frameworks shows."""

    version: str
    cuda: str | None = None
    cudnn: str | None = None


class Top(Struct, frozen=True):
    """Part of a framework table above its rows."""

    framework: row.Head | None = None


class Tables(Protocol):
    """Source of tables: the shipped ones, or those of an overlay."""

    def names(self) -> Sequence[str]:
        """Names of all tables, such as `cudnn/release` and `framework/torch`."""

    def load(self, name: str) -> Table:
        """Load and check one table; MatrixError if it is malformed."""

    def part(self, name: str, part: type[PartT]) -> PartT | None:
        """Load only the fields of a table that a struct has; None if only the whole table is available."""

    def path(self, name: str) -> str:
        """File of a table, for messages."""

    def version(self) -> str:
        """Short text that changes with the content of any table."""

    @property
    def remark(self) -> str:
        """Origin of the rows, repeated in every answer; empty for the shipped tables."""


def arrays_of(name: str) -> Arrays:
    """Return the arrays of the table `cudnn/release` or `framework/torch`; empty for an unknown table."""
    return TABLES.get(_kind(name), {})


def table_type(name: str) -> type[Table] | None:
    """Return the struct of a table, or None for an unknown one."""
    kind = _kind(name)
    return _struct(kind) if kind in TABLES else None


def place_of(row_type: type[row.Plain], stem: str = "") -> tuple[str, str]:
    """Return the table and array that hold rows of a type; `stem` is the file, for tables of one file each (`framework/torch`)."""
    table, array = _PLACES[row_type]
    return table.replace("*", stem), array


def encode(table: Table) -> bytes:
    """Serialize a table as MessagePack."""
    return msgspec.msgpack.encode(table, enc_hook=str)


def decode_part(part: type[PartT], content: bytes) -> PartT:
    """Read a table written by `encode`, or only some of its fields: skipping one costs a thirtieth of reading it.

    ValueError for anything else.
    """
    try:
        return _decoder(part).decode(content)  # type: ignore[no-any-return]
    except msgspec.DecodeError as error:  # no ValueError before msgspec 0.20
        raise ValueError(str(error)) from None


@cache
def array_alone(row_type: type[Struct], array: str) -> type[Struct]:
    """Return the part of a table that is one array; cached, since making a type and its decoder takes longer than reading most arrays."""
    return defstruct("Part", [(array, tuple[row_type, ...], ())], frozen=True)  # type: ignore[valid-type]


def plain(value: Any) -> Any:
    """Convert rows to lists, dicts and strings keyed by TOML column; columns with their default value are left out."""
    if isinstance(value, Struct):
        names = value.__struct_fields__
        defaults = (msgspec.NODEFAULT,) * (len(names) - len(value.__struct_defaults__)) + value.__struct_defaults__
        columns = zip(value.__struct_encode_fields__, [getattr(value, name) for name in names], defaults, strict=True)
        return {column: plain(content) for column, content, default in columns if default is msgspec.NODEFAULT or content != default}
    if isinstance(value, Dotted | Capability | CodeTarget):
        return str(value)
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def extras_of(wheels: Any) -> Iterator[str]:
    """Yield the extras of a wheel table: those named by a requirement, and those without one."""
    for entry in wheels.metadata:
        yield from entry.extras
    for line in (*wheels.lines, *(line for entry in wheels.metadata for line in entry.requires if isinstance(line, str))):
        yield from _EXTRA.findall(line)


def link(table: Any) -> None:
    """Resolve the `files` and `metadata` ids of each release in a wheel table, in place."""
    lines = {entry.id: tuple(table.lines[line] if isinstance(line, int) else line for line in entry.requires) for entry in table.metadata}
    files = {entry.id: entry for entry in table.files}
    shared = {number: dict.fromkeys(_ARCHITECTURES, requires) for number, requires in lines.items()}
    for release in table.release:
        if release.files is not None:
            force_setattr(release, "requires_python", files[release.files].requires_python)
            force_setattr(release, "tags", files[release.files].tags)
        if isinstance(release.metadata, dict):
            force_setattr(release, "requires", {arch: lines[number] for arch, number in release.metadata.items()})
        elif release.metadata is not None:
            force_setattr(release, "requires", shared[release.metadata])


@cache
def intern_version(version_type: Any, text: Any) -> Any:
    """Parse a version, returning the same object for equal texts; versions are immutable."""
    return version_type(text)


def _kind(name: str) -> str:
    """Return the key of TABLES for a table, `framework/*` for `framework/torch`; "" for names that no file can have."""
    folder, slash, stem = name.partition("/")
    if slash and stem and not set("*/") & set(stem) and f"{folder}/*" in TABLES:
        return f"{folder}/*"
    return "" if name.endswith("*") else name


@cache
def _struct(kind: str) -> type[Table]:
    fields = [(array, tuple[row_type, ...], ()) for array, row_type in TABLES[kind].items()]  # type: ignore[valid-type]
    return defstruct("Table", fields, bases=(Table,), frozen=True, kw_only=True, omit_defaults=True)  # type: ignore[return-value]


@cache
def _decoder(type_: Any) -> Any:
    return msgspec.msgpack.Decoder(type_, dec_hook=intern_version)  # type: ignore[arg-type] # takes any two hashable values
