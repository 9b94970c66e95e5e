"""The tables of `matrices/`: each is a struct whose fields are its arrays of rows, and a compiled table is that struct as MessagePack."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import force_setattr

from cudnn_resolve.matrix import row, symptom
from cudnn_resolve.matrix.column import Day, Identifier, Requirement
from cudnn_resolve.matrix.named_machine import Place
from cudnn_resolve.matrix.wheel_content import MeasuredBuild, WheelEvidence
from cudnn_resolve.version import Capability, CodeTarget, Dotted

P = TypeVar("P", bound=Struct)
Arrays = dict[str, type[row.Plain]]
_ARCHITECTURES = ("x86_64", "aarch64")
_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")


class Removal(Struct, frozen=True, kw_only=True):
    """A row of an overlay with `remove = true`: it takes away every row that has these parts of the identity."""

    array: str
    position: int
    parts: dict[str, list[Any]]
    """Column to the values that it means, as TOML writes them: several where it lists versions."""


class Table(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of tables, checked: `[framework]` of a framework, the sources, and in the fields of its kind the rows."""

    arrays: ClassVar[Arrays] = {}
    """Name of each array to the type of its rows."""

    framework: row.Head | None = None
    read: Day | None = None
    """The day on which a harvested table was read."""
    source: dict[Identifier, row.Source] = {}
    lines: tuple[Requirement, ...] = ()
    """Requirements that several `[[metadata]]` of a wheel table share, by their position."""
    places: dict[str, tuple[int, ...]] = {}
    """Array to the positions of its rows in the file, where they are not those in the array."""
    removals: tuple[Removal, ...] = ()


class BuildOutline(Struct, frozen=True):
    """What a list of frameworks says of a build."""

    version: str
    cuda: str | None = None
    cudnn: str | None = None


class Outline(Struct, frozen=True):
    """The table of a framework as far as a list of frameworks needs it."""

    framework: row.Head | None = None
    build: tuple[BuildOutline, ...] = ()


class Top(Struct, frozen=True):
    """The head of a table without its rows."""

    framework: row.Head | None = None


def _table(**arrays: type[row.Plain]) -> type[Table]:
    fields = [(array, tuple[type_, ...], ()) for array, type_ in arrays.items()]  # type: ignore[valid-type]
    return defstruct("Table", fields, bases=(Table,), namespace={"arrays": arrays}, frozen=True, kw_only=True, omit_defaults=True)  # type: ignore[return-value]


TABLES: dict[str, type[Table]] = {
    "driver/branch": _table(branch=row.Branch),
    "driver/minimum": _table(minimum=row.Minimum, floor=row.Floor),
    "driver/forward": _table(forward=row.Forward),
    "gpu/architecture": _table(architecture=row.Architecture),
    "gpu/card": _table(card=row.Card),
    "gpu/peak": _table(peak=row.Peak),
    "gpu/place": _table(place=Place),
    "cuda/release": _table(release=row.CudaRelease),
    "cuda/soname": _table(soname=row.Soname),
    "cuda/component": _table(component=row.Component),
    "cuda/wheel": _table(wheel=row.CudaWheel),
    "cudnn/release": _table(build=row.CudnnBuild),
    "advisory": _table(advisory=row.Advisory),
    "trap": _table(trap=row.Trap),
    "package/slot": _table(slot=row.Slot),
    "apt/repository": _table(repository=row.Repository),
    "apt/package": _table(package=row.AptPattern),
    "index": _table(index=row.Index),
    "framework/*": _table(build=row.Build, bound=row.Bound, release=row.ExtraRelease),
    "wheel/*": _table(metadata=row.Metadata, files=row.WheelFiles, release=row.WheelRelease),
    "symptom/*": _table(symptom=symptom.Symptom, cause=symptom.Cause, remedy=symptom.Help, clue=symptom.Clue),
    "evidence/*": _table(wheel=WheelEvidence),
    "measured/*": _table(build=MeasuredBuild),
}
"""Table name to its struct; `framework/*` stands for one file each."""


def table_type(name: str) -> type[Table] | None:
    """Return the struct of the table `cudnn/release` or `framework/torch`; None where no table has such a name."""
    folder, slash, rest = name.partition("/")
    if slash and rest and not set("*/") & set(rest) and f"{folder}/*" in TABLES:
        return TABLES[f"{folder}/*"]
    return None if name.endswith("*") else TABLES.get(name)


def row_type(name: str, array: str) -> type[row.Plain]:
    """Return the type of the rows of one array; KeyError where there is no such table or array."""
    table = table_type(name)
    if table is None:
        raise KeyError(name)
    return table.arrays[array]


def arrays_of(name: str) -> tuple[str, ...]:
    """Return the names of the arrays of rows in a table."""
    table = table_type(name)
    return tuple(table.arrays) if table else ()


def encode(table: Table) -> bytes:
    """Write a table as MessagePack."""
    return msgspec.msgpack.encode(table, enc_hook=str)


def decode_table(name: str, content: bytes) -> Table:
    """Read what `encode` wrote; ValueError where it is something else."""
    table: Table = _decoded(table_type(name), content)
    return table


def decode_part(part: type[P], content: bytes) -> P:
    """Read of what `encode` wrote as much as a struct has: what is left out costs a thirtieth. ValueError where it is something else."""
    return _decoded(part, content)  # type: ignore[no-any-return]


@cache
def array_alone(row_type: type[row.Plain], array: str) -> type[Struct]:
    """Return the part that one array of such rows is of any table; to make a type and its decoder takes longer than to read most arrays."""
    return defstruct("Part", [(array, tuple[row_type, ...], ())], frozen=True)  # type: ignore[valid-type]


def plain(value: Any) -> Any:
    """Return rows as plain lists, tables and texts in the columns of their TOML; what is as by default is left out."""
    if isinstance(value, Struct):
        names = value.__struct_fields__
        defaults = (msgspec.NODEFAULT,) * (len(names) - len(value.__struct_defaults__)) + value.__struct_defaults__
        known = zip(value.__struct_encode_fields__, [getattr(value, name) for name in names], defaults, strict=True)
        return {column: plain(one) for column, one, default in known if default is msgspec.NODEFAULT or one != default}
    if isinstance(value, Dotted | Capability | CodeTarget):
        return str(value)
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def extras_of(wheels: Any) -> Iterator[str]:
    """Yield the extras of a wheel table: those that a requirement names, and those that none does."""
    for entry in wheels.metadata:
        yield from entry.extras
    for line in (*wheels.lines, *(line for entry in wheels.metadata for line in entry.requires if isinstance(line, str))):
        yield from _EXTRA.findall(line)


def link(table: Any) -> None:
    """Give each release of a wheel table what the ids under `files` and `metadata` mean."""
    lines = {one.id: tuple(table.lines[line] if isinstance(line, int) else line for line in one.requires) for one in table.metadata}
    files = {one.id: one for one in table.files}
    shared = {number: dict.fromkeys(_ARCHITECTURES, requires) for number, requires in lines.items()}
    for one in table.release:
        if one.files is not None:
            force_setattr(one, "requires_python", files[one.files].requires_python)
            force_setattr(one, "tags", files[one.files].tags)
        if isinstance(one.metadata, dict):
            force_setattr(one, "requires", {arch: lines[number] for arch, number in one.metadata.items()})
        elif one.metadata is not None:
            force_setattr(one, "requires", shared[one.metadata])


def _decoded(type_: Any, content: bytes) -> Any:
    try:
        return _decoder(type_).decode(content)
    except msgspec.DecodeError as error:  # no ValueError before msgspec 0.20
        raise ValueError(str(error)) from None


@cache
def _decoder(type_: Any) -> Any:
    return msgspec.msgpack.Decoder(type_, dec_hook=made)


def made(type_: Any, text: Any) -> Any:
    """Make a version of its text, one for equal texts; versions are values."""
    found = _MADE.get((type_, text))
    if found is None:
        found = _MADE[type_, text] = type_(text)
    return found


_MADE: dict[tuple[Any, Any], Any] = {}
