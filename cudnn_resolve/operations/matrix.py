"""`matrix`: overview of the tables, lookups in them, and the results of their check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.errors import UsageError, did_you_mean
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import find
from cudnn_resolve.matrix.row import Floor
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.operations.results import Result
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.digest import Digest, Entry
    from cudnn_resolve.report.text import Page

SCHEMA = "cudnn-resolve/matrix/1"
Stack = Literal["cudnn", "cuda", "driver", "gpu", "machine"]
STACK: tuple[Stack, ...] = ("cudnn", "cuda", "driver", "gpu", "machine")
_Rows = tuple[dict[str, Any], ...]
"""Rows with the columns of their tables."""


class _MatrixResult(Struct, Result, frozen=True, kw_only=True):
    """Base class of the results of `matrix`."""

    version: str
    """Version of the tables."""
    overlays: tuple[str, ...] = ()
    """Remarks on tables that override the shipped ones."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `matrix --format json`."""
        from cudnn_resolve.report.encode_json import plain as builtins

        return {"schema": SCHEMA, **{name: value for name, value in builtins(self).items() if name != "overlays" or value}}


class ListedFramework(Struct, frozen=True, kw_only=True):
    """A framework in the tables."""

    name: str
    title: str
    packages: tuple[str, ...]
    """Names of its distributions."""
    releases: str
    """Oldest and newest release, `1.13.1 to 2.9.0`."""
    builds: int


class MatrixListResult(_MatrixResult, frozen=True, kw_only=True):
    """Result of `matrix list`: everything that can be looked up."""

    frameworks: tuple[ListedFramework, ...]
    packages: tuple[str, ...]
    """Other packages that decide a stack."""


class ShownFramework(Struct, frozen=True, kw_only=True):
    """General facts about a framework."""

    name: str
    title: str
    packages: tuple[str, ...]
    companions: tuple[str, ...]


class DriverFloor(Struct, frozen=True, kw_only=True):
    """The oldest driver under each policy."""

    minor: str | None
    strict: str | None


class ShownBuild(Struct, frozen=True, kw_only=True):
    """A build of a framework: the columns of its table, and derived values."""

    version: str
    variant: str
    package: str
    wheel_version: str
    index: str
    pythons: tuple[str, ...]
    arch: tuple[str, ...]
    glibc: str | None
    date: str | None
    yanked: bool
    cuda_built: str | None
    cudnn_built: str | None
    driver_min: DriverFloor
    capabilities: tuple[str, ...]
    capability_first: str | None
    delivery: str
    finds: str
    loads: tuple[str, ...]
    extra: str | None
    requires: tuple[str, ...] | None
    companions: dict[str, str]
    source: tuple[str, ...]


class ShownSource(Struct, frozen=True, kw_only=True):
    """Where and when a row was read."""

    where: str
    read: str


class MatrixFrameworkResult(_MatrixResult, frozen=True, kw_only=True):
    """Result of `matrix show FRAMEWORK`: its builds, newest first."""

    framework: ShownFramework
    builds: tuple[ShownBuild, ...]
    bounds: _Rows
    traps: _Rows
    sources: dict[str, ShownSource | None]


class MatrixStackResult(_MatrixResult, frozen=True, kw_only=True):
    """Result of `matrix show` for `cudnn`, `cuda`, `driver`, `gpu` or `machine`: rows with the columns of their tables."""

    show: Stack
    builds: _Rows | UnsetType = UNSET
    releases: _Rows | UnsetType = UNSET
    minimums: _Rows | UnsetType = UNSET
    floors: _Rows | UnsetType = UNSET
    branches: _Rows | UnsetType = UNSET
    forward: _Rows | UnsetType = UNSET
    architectures: _Rows | UnsetType = UNSET
    places: _Rows | UnsetType = UNSET
    cards: _Rows | UnsetType = UNSET
    peaks: _Rows | UnsetType = UNSET


class LiveReport(Struct, frozen=True, kw_only=True):
    """Result of the comparison with an index."""

    rows: int
    """Number of rows that were compared."""
    faults: tuple[Fault, ...]
    unread: tuple[str, ...]
    """Rows that could not be compared, and why."""


class MatrixCheckResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `matrix check`: every fault in the tables."""

    faults: tuple[Fault, ...]
    tables: tuple[str, ...]
    """Folders that were checked."""
    live: LiveReport | None = None
    """Comparison with the index, if requested and the tables have no fault."""

    @property
    def status(self) -> Literal["ok", "faulty"]:
        """`faulty` for any fault, including a difference from the index."""
        return "faulty" if self.faults or (self.live is not None and self.live.faults) else "ok"

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `matrix check --format json`."""
        from cudnn_resolve.report.encode_json import plain as builtins

        live = {} if self.live is None else {"live": builtins(self.live)}
        return {"schema": SCHEMA, "status": self.status, "faults": builtins(self.faults), **live}


V_co = TypeVar("V_co", bound=_MatrixResult, covariant=True)


class Answer(Struct, Generic[V_co], frozen=True, kw_only=True):
    """A lookup in the tables, to be shown on a page and as a value, each made on demand."""

    book: Book
    show: Callable[[Page], None]
    value: Callable[[], V_co]


def everything(book: Book) -> Answer[MatrixListResult]:
    """All frameworks and packages."""
    from cudnn_resolve.report.matrix import show_list

    return Answer(book=book, show=lambda page: show_list(page, book), value=partial(_list, book))


def _list(book: Book) -> MatrixListResult:
    from cudnn_resolve.report.matrix import span

    frameworks = [book.framework(name) for name in book.frameworks()]
    return MatrixListResult(
        version=book.version,
        overlays=book.remarks,
        frameworks=tuple(
            ListedFramework(
                name=framework.name,
                title=framework.title,
                packages=framework.packages,
                releases=span(framework.builds),
                builds=len(framework.builds),
            )
            for framework in frameworks
        ),
        packages=book.packages(),
    )


def look_up(book: Book, name: str, which: str | None) -> Answer[MatrixFrameworkResult | MatrixStackResult]:
    """Look up a framework, or its releases in `which`; or `cudnn`, `cuda`, `driver`, `gpu` or `machine`.

    UsageError for an unknown name or release.
    """
    stack = {"cudnn": _cudnn, "cuda": _cuda, "driver": _driver, "gpu": _gpu, "machine": _machine}.get(name)
    return stack(book, which) if stack is not None else _framework(book, name, which)


def _framework(book: Book, name: str, which: str | None) -> Answer[MatrixFrameworkResult]:
    from cudnn_resolve.matrix.digest import digest
    from cudnn_resolve.report.matrix import show_framework, show_release, span

    try:
        found = digest(book, name, None if which is None else _specifier(which))
    except KeyError:
        hint = did_you_mean(book.nearest(name)) or f"the names are {', '.join((*book.frameworks(), *STACK))}"
        raise UsageError(f"the matrix knows no framework {name!r}", code="framework-unknown", hint=hint) from None
    if not found.entries:
        known = span(found.framework.builds)
        raise UsageError(f"no release of {found.framework.name} is {which}", code="version-unknown", hint=f"the matrix knows {known}")
    show = partial(show_framework, found=found) if which is None else partial(show_release, book=book, found=found)
    return Answer(book=book, show=show, value=partial(shown, book, found))


def shown(book: Book, found: Digest) -> MatrixFrameworkResult:
    """A framework with the selected builds."""
    framework = found.framework
    table = f"framework/{framework.name}"
    sources = {id_: book.source(table, id_) for id_ in sorted({id_ for entry in found.entries for id_ in entry.build.source})}
    return MatrixFrameworkResult(
        version=book.version,
        overlays=book.remarks,
        framework=ShownFramework(name=framework.name, title=framework.title, packages=framework.packages, companions=framework.companions),
        builds=tuple(map(_build, found.entries)),
        bounds=_rows(framework.bounds),
        traps=_rows(book.traps(framework.name)),
        sources={id_: ShownSource(where=source.where, read=source.read) if source else None for id_, source in sources.items()},
    )


def _build(entry: Entry) -> ShownBuild:
    build = entry.build
    same = ("version", "variant", "package", "wheel_version", "index", "arch", "glibc", "yanked", "delivery", "finds", "loads", "extra")
    return ShownBuild(
        **{name: getattr(build, name) for name in (*same, "source")},
        pythons=entry.pythons,
        date=entry.date,
        cuda_built=_text(build.cuda),
        cudnn_built=_text(build.cudnn),
        driver_min=DriverFloor(minor=_text(entry.driver_minor), strict=_text(entry.driver_strict)),
        capabilities=tuple(map(str, build.targets)),
        capability_first=_text(build.capability_first),
        requires=entry.requires,
        companions=dict(entry.companions),
    )


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _stack(book: Book, part: Stack, show: Callable[[Page], None], rows: Callable[[], dict[str, _Rows]]) -> Answer[MatrixStackResult]:
    """Lookup of one part of the stack: how it is shown, and its rows by array."""
    return Answer(book=book, show=show, value=lambda: MatrixStackResult(version=book.version, overlays=book.remarks, show=part, **rows()))


def _cudnn(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_cudnn

    builds = [build for build in book.cudnn_builds() if which is None or str(build.version) in _specifier(which)]
    _require_rows(builds, "cuDNN", which, str(book.cudnn_builds()[0].version), str(book.cudnn_builds()[-1].version))
    return _stack(book, "cudnn", lambda page: show_cudnn(page, builds), lambda: {"builds": _rows(builds)})


def _cuda(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_cuda

    releases = [release for release in book.cuda_releases() if which is None or str(release.cuda) in _specifier(which)]
    _require_rows(releases, "CUDA", which, str(book.cuda_releases()[0].cuda), str(book.cuda_releases()[-1].cuda))

    def rows() -> dict[str, _Rows]:
        drivers = [minimum for minimum in book.minimums() if any(minimum.cuda == release.cuda for release in releases)]
        majors = {release.cuda.major for release in releases}
        floors = [floor for floor in book.rows(Floor) if floor.cuda_major in majors]
        return {"releases": _rows(releases), "minimums": _rows(drivers), "floors": _rows(floors)}

    return _stack(book, "cuda", lambda page: show_cuda(page, book, releases), rows)


def _driver(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_driver, show_drivers

    if which is None:
        return _stack(book, "driver", lambda page: show_drivers(page, book.branches()), lambda: {"branches": _rows(book.branches())})
    try:
        driver = DriverVersion(which.removeprefix("R"))
    except ValueError:
        raise UsageError(f"{which!r} is not a driver version", code="driver-version", hint="such as 550.54.15, 550 or R550") from None
    branches = [branch for branch in book.branches() if branch.number == driver.major]
    forward = [row for row in book.forward() if row.base == driver.major]
    return _stack(
        book, "driver", lambda page: show_driver(page, book, driver), lambda: {"branches": _rows(branches), "forward": _rows(forward)}
    )


def _gpu(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_gpu, show_gpus

    if which is None:
        return _stack(
            book, "gpu", lambda page: show_gpus(page, book.architectures()), lambda: {"architectures": _rows(book.architectures())}
        )
    card = book.card(which)
    try:
        capability = card.capability if card else Capability.parse(which)
    except ValueError:
        hint = did_you_mean(book.nearest_cards(which)) or "a card such as T4, or a compute capability such as 8.9 or sm_89"
        raise UsageError(f"the matrix knows no GPU {which!r}", code="gpu-unknown", hint=hint) from None
    architecture = book.architecture(capability)
    if architecture is None:
        known = ", ".join(str(row.capability) for row in book.architectures())
        raise UsageError(f"the matrix knows no compute capability {capability}", code="gpu-unknown", hint=f"it knows {known}")

    def rows() -> dict[str, _Rows]:
        peaks = book.peaks_of(card) if card else ()
        return {
            "architectures": _rows([architecture]),
            "cards": _rows([card] if card else [other for other in book.cards() if other.capability == capability]),
            "peaks": tuple({**plain(peak), "confidence": "memory" if book.is_from_memory(peak) else None} for peak in peaks),
        }

    return _stack(book, "gpu", lambda page: show_gpu(page, book, capability, card), rows)


def _machine(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.operations.machine_facts import facts_of_place, places
    from cudnn_resolve.report.matrix_stack import show_places

    found = places(book)
    if which is not None:
        facts_of_place(which, book)  # rejects an unknown name with the nearest ones
        place = find(found, which)
        found = (place,) if place is not None else ()
    return _stack(book, "machine", lambda page: show_places(page, found), lambda: {"places": _rows(found)})


def _rows(rows: Sequence[Struct]) -> _Rows:
    return tuple(plain(list(rows)))


def _specifier(text: str) -> Any:
    from packaging.specifiers import InvalidSpecifier

    from cudnn_resolve.requirement.target import version_filter

    try:
        return version_filter(text)
    except InvalidSpecifier:
        hint = "such as 2.15, 2.15.1 or '>=2.4,<2.6'"
        raise UsageError(f"{text!r} is neither a version nor a version specifier", code="version-specifier", hint=hint) from None


def _require_rows(found: Sequence[Any], what: str, which: str | None, first: str, last: str) -> None:
    if not found:
        raise UsageError(f"the matrix knows no {what} {which}", code="version-unknown", hint=f"it knows {first} to {last}")
