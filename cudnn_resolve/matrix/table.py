"""The tables of `matrices/`: their columns, and the columns that make up the key of a row.

The key is what must be unique in a table, and what a row of an overlay replaces. It is written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.matrix import column as kind
from cudnn_resolve.matrix import row, symptom
from cudnn_resolve.matrix.column import Column, Kind, many, one_of

CHANNELS_OF_LIBRARIES = ("wheel", "bundled", "system", "none")
ARCHITECTURES = ("x86_64", "aarch64", "ppc64le")


class Form(Struct, frozen=True, kw_only=True):
    """One kind of row: the TOML array that holds it, its row type, its columns, and the fields of its key."""

    array: str
    type: type[Any]
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    apart: tuple[str, ...] = ()
    """Fields by which rows of one key may differ in one table; a row of an overlay replaces them all."""
    expands: bool = False
    """True where a row may list several versions and leave out what its framework says."""
    derived: tuple[Column, ...] = ()
    """Fields that no file holds: worked out from the others of a row when the table is compiled."""
    derive: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    """Plain fields of a row that was checked to its derived ones."""

    def column(self, field: str) -> Column:
        """The column of a field of the row; KeyError where the table has none."""
        for one in self.columns:
            if one.field == field:
                return one
        raise KeyError(field)


class TableForm(Struct, frozen=True, kw_only=True):
    """One table: its name (`framework/*` stands for one file each), what its head holds, and its arrays of rows."""

    name: str
    arrays: tuple[Form, ...]
    head: Form | None = None
    """Columns of the table that is named like the file's folder (`[framework]`), or, with array "", of the file's top level."""
    dates: bool = False
    """True where a table `[date]` says the day of each version."""

    def form(self, array: str) -> Form:
        """The form of one array; KeyError where the table has none of that name."""
        for one in self.arrays:
            if one.array == array:
                return one
        raise KeyError(array)


SOURCE = Column(name="source", field="source", kind=many(kind.IDENTIFIER, lone=True))
NOTE = Column(name="note", field="note", kind=kind.TEXT)
DATE = Column(name="date", field="date", kind=kind.DATE)


def _need(name: str, what: Kind, field: str | None = None) -> Column:
    return Column(name=name, field=field or name, kind=what, required=True)


def _may(name: str, what: Kind, field: str | None = None) -> Column:
    return Column(name=name, field=field or name, kind=what)


def _form(array: str, type_: type[Any], key: str, *columns: Column) -> Form:
    return Form(array=array, type=type_, key=tuple(key.split()), columns=(*columns, NOTE, SOURCE))


def _wheel_form(array: str, type_: type[Any], key: str, *columns: Column) -> Form:
    every = (*columns, *_wheel_columns(), NOTE, SOURCE)
    return Form(array=array, type=type_, key=tuple(key.split()), columns=every, apart=("arch", "pythons"), expands=True)


def _driver_tables() -> tuple[TableForm, ...]:
    branch = _form(
        "branch",
        row.Branch,
        "name",
        _need("name", kind.IDENTIFIER),
        _need("number", kind.COUNT),
        _need("cuda", kind.CUDA_LINE),
        _may("type", kind.TEXT),
        _may("status", kind.TEXT),
        _may("eol", kind.DATE),
    )
    minimum = _form(
        "minimum",
        row.Minimum,
        "cuda",
        _need("cuda", kind.CUDA),
        _need("driver", kind.DRIVER),
        _may("bundled", kind.DRIVER),
        DATE,
    )
    floor = _form("floor", row.Floor, "cuda_major", _need("cuda_major", kind.COUNT), _need("first", kind.DRIVER))
    forward = _form(
        "forward",
        row.Forward,
        "package base",
        _need("package", kind.PACKAGE),
        _need("cuda", kind.CUDA_LINE),
        _may("branch", kind.BRANCH),
        _need("base", kind.BRANCH),
        _need("classes", many(kind.IDENTIFIER)),
        _need("status", kind.TEXT),
    )
    return (
        TableForm(name="driver/branch", arrays=(branch,)),
        TableForm(name="driver/minimum", arrays=(minimum, floor)),
        TableForm(name="driver/forward", arrays=(forward,)),
    )


def _gpu_tables() -> tuple[TableForm, ...]:
    architecture = _form(
        "architecture",
        row.Architecture,
        "capability",
        _need("capability", kind.CAPABILITY),
        _need("name", kind.TEXT),
        _need("cuda_first", kind.CUDA_LINE),
        _may("cuda_last", kind.CUDA_LINE),
        _may("driver_first", kind.BRANCH),
        _may("driver_last", kind.BRANCH),
        _may("cudnn_first", kind.CUDNN),
        _may("cudnn_last", kind.CUDNN),
        _may("fp32_lanes", kind.COUNT),
        _may("tegra", kind.FLAG),
    )
    card = _form(
        "card",
        row.Card,
        "name",
        _need("name", kind.TEXT),
        _may("alias", many(kind.TEXT)),
        _need("capability", kind.CAPABILITY),
        _need("class", one_of("datacenter", "workstation", "geforce", "tegra"), "kind"),
        _may("memory_gib", kind.NUMBER),
    )
    peak = _form(
        "peak",
        row.Peak,
        "name",
        _need("name", kind.TEXT),
        _may("alias", many(kind.TEXT)),
        _need("fp32", kind.NUMBER),
        *(_may(name, kind.NUMBER) for name in ("tf32", "fp16", "bf16")),
    )
    return (
        TableForm(name="gpu/architecture", arrays=(architecture,)),
        TableForm(name="gpu/card", arrays=(card,)),
        TableForm(name="gpu/peak", arrays=(peak,)),
    )


def _cuda_tables() -> tuple[TableForm, ...]:
    release = _form(
        "release",
        row.CudaRelease,
        "cuda",
        _need("cuda", kind.CUDA),
        _need("line", kind.LINE),
        _may("repositories", many(kind.IDENTIFIER)),
        DATE,
    )
    soname = _form(
        "soname",
        row.Soname,
        "library first",
        _need("library", kind.IDENTIFIER),
        _need("soname", kind.IDENTIFIER),
        _need("first", kind.CUDA_LINE),
        _may("last", kind.CUDA_LINE),
    )
    component = _form(
        "component",
        row.Component,
        "package library cuda_major",
        _need("library", kind.IDENTIFIER),
        _need("cuda_major", kind.COUNT),
        _need("package", kind.PACKAGE),
        _need("abi", one_of("minor", "major", "exact")),
        _need("slot", kind.IDENTIFIER),
        _need("lib_dir", kind.DIRECTORY),
    )
    wheel = _form(
        "wheel",
        row.CudaWheel,
        "package version cuda",
        _need("package", kind.PACKAGE),
        _need("version", kind.VERSION),
        _need("cuda", kind.CUDA),
    )
    return (
        TableForm(name="cuda/release", arrays=(release,)),
        TableForm(name="cuda/soname", arrays=(soname,)),
        TableForm(name="cuda/component", arrays=(component,)),
        TableForm(name="cuda/wheel", arrays=(wheel,)),
    )


def _cudnn_table() -> TableForm:
    build = _form(
        "build",
        row.CudnnBuild,
        "version cuda_major",
        _need("version", kind.CUDNN),
        _need("cuda_major", kind.COUNT),
        _may("cuda_built", kind.CUDA),
        _may("cuda_first", kind.CUDA_LINE),
        _may("cuda_last", kind.CUDA_LINE),
        _need("soname", kind.COUNT),
        _may("capability", many(kind.CAPABILITY)),
        _may("driver", kind.DRIVER),
        _may("parts", many(kind.IDENTIFIER)),
        _may("wheel", kind.PACKAGE),
        _may("apt.package", kind.PACKAGE, "apt_package"),
        _may("apt.version", kind.IDENTIFIER, "apt_version"),
        _may("apt_basis", kind.TEXT),
        DATE,
    )
    return TableForm(name="cudnn/release", arrays=(replace(build, apart=("cuda_first",)),))


def _remark_tables() -> tuple[TableForm, ...]:
    advisory = _form(
        "advisory",
        row.Advisory,
        "id",
        _need("id", kind.IDENTIFIER),
        _need("package", kind.PACKAGE),
        _need("versions", kind.SPECIFIER),
        _need("action", one_of("avoid", "warn")),
        _may("capability", many(kind.CAPABILITY)),
        _may("frameworks", many(kind.PACKAGE)),
        _need("summary", kind.TEXT),
        _may("remedy", kind.TEXT),
    )
    trap = _form(
        "trap",
        row.Trap,
        "id",
        _need("id", kind.IDENTIFIER),
        _need("framework", kind.PACKAGE),
        _need("versions", kind.SPECIFIER),
        _need("kind", kind.IDENTIFIER),
        _need("summary", kind.TEXT),
        _may("remedy", kind.TEXT),
        _need("action", one_of("warn", "note")),
    )
    slot = _form("slot", row.Slot, "slot", _need("slot", kind.IDENTIFIER), _need("packages", many(kind.PACKAGE)))
    return (
        TableForm(name="advisory", arrays=(advisory,)),
        TableForm(name="trap", arrays=(trap,)),
        TableForm(name="package/slot", arrays=(slot,)),
    )


def _place_tables() -> tuple[TableForm, ...]:
    repository = _form(
        "repository",
        row.Repository,
        "os arch",
        _need("os", kind.IDENTIFIER),
        _need("name", kind.IDENTIFIER),
        _need("arch", one_of(*ARCHITECTURES)),
        _need("url", kind.URL),
        _may("cuda_first", kind.CUDA_LINE),
        _may("cuda_last", kind.CUDA_LINE),
        _may("keyring", kind.TEXT),
        _may("key", kind.TEXT),
        _may("key_file", kind.TEXT),
    )
    pattern = _form(
        "package",
        row.AptPattern,
        "library first",
        _need("library", kind.IDENTIFIER),
        _need("name", kind.APT_PATTERN),
        _need("version", kind.APT_PATTERN),
        _need("line_first", kind.CUDA_LINE, "first"),
        _may("line_last", kind.CUDA_LINE, "last"),
    )
    index = _form(
        "index",
        row.Index,
        "id",
        _need("id", kind.IDENTIFIER),
        _need("url", kind.URL),
        _need("kind", one_of("simple", "find-links")),
        _may("serves", many(kind.PACKAGE)),
    )
    return (
        TableForm(name="apt/repository", arrays=(repository,)),
        TableForm(name="apt/package", arrays=(pattern,)),
        TableForm(name="index", arrays=(index,)),
    )


def _wheel_columns() -> tuple[Column, ...]:
    """What a build of a framework and a release on another index say alike about their wheel."""
    return (
        _may("pythons", many(kind.PYTHON)),
        _may("arch", many(one_of(*ARCHITECTURES))),
        _may("glibc", kind.GLIBC),
        DATE,
        _may("local", kind.IDENTIFIER),
        _may("yanked", kind.FLAG),
        _may("cuda", kind.CUDA),
        _may("cudnn", kind.CUDNN),
        _may("delivery", one_of(*CHANNELS_OF_LIBRARIES)),
        _may("finds", one_of("rpath", "runpath", "self", "none")),
        _may("loads", many(kind.IDENTIFIER)),
        _may("capability", many(kind.TARGET), "targets"),
        _may("requires", many(kind.REQUIREMENT)),
        _may("requires_like", one_of("default")),
    )


def _framework_build() -> Form:
    return _wheel_form(
        "build",
        row.Build,
        "version variant package index",
        _need("version", many(kind.VERSION, lone=True)),
        _need("variant", kind.IDENTIFIER),
        _may("package", kind.PACKAGE),
        _may("wheel_version", kind.VERSION),
        _may("index", kind.IDENTIFIER),
        _may("sonames", kind.SONAMES),
        _may("capability_aarch64", many(kind.TARGET), "targets_aarch64"),
        _may("capability_first", kind.CAPABILITY),
        _may("extra", kind.IDENTIFIER),
        _may("driver", kind.DRIVER),
    )


def _framework_table() -> TableForm:
    head = _form(
        "framework",
        row.Framework,
        "name",
        _need("name", kind.PACKAGE),
        _need("title", kind.TEXT),
        _may("aliases", many(kind.PACKAGE)),
        _need("packages", many(kind.PACKAGE)),
        _may("gpu_package", kind.PACKAGE),
        _may("companions", many(kind.PACKAGE)),
        _may("other_accelerators", many(kind.TEXT)),
    )
    bound = _form(
        "bound",
        row.Bound,
        "versions requirement package",
        _need("versions", kind.SPECIFIER),
        _need("requirement", kind.REQUIREMENT),
        _need("reason", kind.TEXT),
        _may("package", kind.PACKAGE),
    )
    extra = _wheel_form(
        "release",
        row.ExtraRelease,
        "version package index",
        _need("version", many(kind.VERSION, lone=True)),
        _need("package", kind.PACKAGE),
        _need("index", kind.IDENTIFIER),
        _may("requires_python", kind.SPECIFIER),
    )
    return TableForm(name="framework/*", head=head, dates=True, arrays=(_framework_build(), bound, extra))


def _wheel_table() -> TableForm:
    head = Form(array="", type=row.Package, key=("package",), columns=(_need("package", kind.PACKAGE),))
    metadata = Form(
        array="metadata",
        type=row.Metadata,
        key=("id",),
        columns=(
            _need("id", kind.COUNT),
            _may("requires", many(kind.REQUIREMENT)),
            _may("extras", many(kind.TEXT)),
        ),
    )
    release = Form(
        array="release",
        type=row.WheelRelease,
        key=("version",),
        columns=(
            _need("version", kind.VERSION),
            DATE,
            _may("yanked", kind.FLAG),
            _may("requires_python", kind.SPECIFIER),
            _may("tags", many(kind.TEXT)),
            _may("metadata", kind.METADATA, "requires"),
        ),
    )
    return TableForm(name="wheel/*", head=head, arrays=(metadata, release))


def _anchors(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The texts by which lines for the patterns of a symptom are chosen."""
    from cudnn_resolve.matrix.anchor import anchors_of
    from cudnn_resolve.matrix.message import expand

    found = (anchors_of(expand(one), begins=plain.get("span", 1) > 1) for one in plain.get("pattern", ()))
    return {"anchor": list(dict.fromkeys(anchor for each in found for anchor in each))}


def _symptom_table() -> TableForm:
    message = _form(
        "symptom",
        symptom.Symptom,
        "id",
        _need("id", kind.IDENTIFIER),
        _need("pattern", many(kind.MESSAGE, lone=True)),
        _need("role", one_of("proves", "suggests", "excludes", "effect", "context", "harmless")),
        _need("sample", many(kind.LINES, lone=True)),
        _may("cause", kind.IDENTIFIER),
        _may("weight", kind.PERCENT),
        _may("feature", kind.IDENTIFIER),
        _may("when", many(kind.COMPARISON, lone=True)),
        _may("needs", many(kind.IDENTIFIER, lone=True)),
        _may("unless", many(kind.IDENTIFIER, lone=True)),
        _may("span", kind.COUNT),
        _may("mild", kind.FLAG),
        _may("summary", kind.TEXT),
        _may("framework", kind.IDENTIFIER),
        _may("versions", kind.SPECIFIER),
    )
    cause = _form(
        "cause",
        symptom.Cause,
        "id",
        _need("id", kind.IDENTIFIER),
        _need("title", kind.TEXT),
        _need("severity", one_of("error", "warning", "info")),
        _need("summary", kind.TEXT),
        _may("explains", many(kind.IDENTIFIER)),
        _may("confused", many(kind.IDENTIFIER)),
        _may("decide", kind.TEXT),
    )
    remedy = _form(
        "remedy",
        symptom.Help,
        "cause id",
        _need("cause", kind.IDENTIFIER),
        _need("id", kind.IDENTIFIER),
        _need("text", kind.TEXT),
        _may("command", kind.TEXT),
        _may("needs", many(kind.IDENTIFIER, lone=True)),
        _may("unless", many(kind.IDENTIFIER, lone=True)),
    )
    message = replace(message, derived=(_need("anchor", many(kind.TEXT)),), derive=_anchors)
    return TableForm(name="symptom/*", arrays=(message, cause, remedy))


TABLES: dict[str, TableForm] = {
    one.name: one
    for one in (
        *_driver_tables(),
        *_gpu_tables(),
        *_cuda_tables(),
        _cudnn_table(),
        *_remark_tables(),
        *_place_tables(),
        _framework_table(),
        _wheel_table(),
        _symptom_table(),
    )
}


def table_form(name: str) -> TableForm | None:
    """The form of the table `cudnn/release` or `framework/torch`, None where no table has such a name."""
    folder, slash, rest = name.partition("/")
    if slash and rest and not set("*/") & set(rest) and f"{folder}/*" in TABLES:
        return TABLES[f"{folder}/*"]
    return None if name.endswith("*") else TABLES.get(name)
