"""`matrix`: overview of the tables, lookups in them, and the results of their check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.errors import UsageError, did_you_mean
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import find
from cudnn_resolve.matrix.row import Floor, Forward
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.operations.results import Result
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.digest import Digest, Entry
    from cudnn_resolve.report.text import Page

Stack = Literal["cudnn", "cuda", "driver", "gpu", "machine"]
STACK: tuple[Stack, ...] = get_args(Stack)
_Rows = tuple[dict[str, Any], ...]
"""Rows with the columns of their tables."""


class _MatrixResult(Struct, Result, frozen=True, kw_only=True):
    """Base class of the results of `matrix`."""

    schema: Literal["cudnn-resolve/matrix/1"] = "cudnn-resolve/matrix/1"
    version: str
    """Version of the tables."""
    overlays: tuple[str, ...] = ()
    """Remarks on tables that override the shipped ones."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `matrix --format json`."""
        from cudnn_resolve.report.encode_json import encoded

        return {name: value for name, value in encoded(self).items() if name != "overlays" or value}


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


class MatrixCheckDocument(Struct, frozen=True, kw_only=True):
    """`matrix check --format json`: every fault in the tables."""

    schema: Literal["cudnn-resolve/matrix/1"] = "cudnn-resolve/matrix/1"
    status: Literal["ok", "faulty"]
    faults: tuple[Fault, ...]
    live: LiveReport | UnsetType = UNSET


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
        from cudnn_resolve.report.encode_json import encoded

        return encoded(MatrixCheckDocument(status=self.status, faults=self.faults, live=UNSET if self.live is None else self.live))


V_co = TypeVar("V_co", bound=_MatrixResult, covariant=True)


class Answer(Struct, Result, Generic[V_co], frozen=True, kw_only=True):
    """A lookup in the tables, to be shown on a page and as a value, each made on demand."""

    show: Callable[[Page], None]
    value: Callable[[], V_co]
    overlays: tuple[str, ...] = ()
    """Remarks on tables that override the shipped ones, unless the text has them."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `matrix --format json`."""
        return self.value().to_json()


def everything(book: Book) -> Answer[MatrixListResult]:
    """All frameworks and packages."""
    from cudnn_resolve.report.matrix import show_list

    return Answer(show=partial(show_list, book=book), value=partial(_list, book))


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
    return Answer(show=show, value=partial(shown, book, found), overlays=book.remarks)


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


def _stack(book: Book, part: Stack, show: Callable[[Page], None], **rows: Sequence[Any]) -> Answer[MatrixStackResult]:
    """Lookup of one part of the stack: how it is shown, and its rows by array."""

    def value() -> MatrixStackResult:
        arrays: dict[str, Any] = {name: _rows(found) for name, found in rows.items()}
        return MatrixStackResult(version=book.version, overlays=book.remarks, show=part, **arrays)

    return Answer(show=show, value=value, overlays=book.remarks)


def _cudnn(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_cudnn

    builds = [build for build in book.cudnn_builds() if which is None or str(build.version) in _specifier(which)]
    _require_rows(builds, "cuDNN", which, str(book.cudnn_builds()[0].version), str(book.cudnn_builds()[-1].version))
    return _stack(book, "cudnn", partial(show_cudnn, builds=builds), builds=builds)


def _cuda(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_cuda

    releases = [release for release in book.cuda_releases() if which is None or str(release.cuda) in _specifier(which)]
    _require_rows(releases, "CUDA", which, str(book.cuda_releases()[0].cuda), str(book.cuda_releases()[-1].cuda))
    minimums = [minimum for minimum in book.minimums() if any(minimum.cuda == release.cuda for release in releases)]
    majors = {release.cuda.major for release in releases}
    floors = [floor for floor in book.rows(Floor) if floor.cuda_major in majors]
    show = partial(show_cuda, book=book, releases=releases)
    return _stack(book, "cuda", show, releases=releases, minimums=minimums, floors=floors)


def _driver(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_driver, show_drivers

    if which is None:
        return _stack(book, "driver", partial(show_drivers, branches=book.branches()), branches=book.branches())
    try:
        driver = DriverVersion(which.removeprefix("R"))
    except ValueError:
        raise UsageError(f"{which!r} is not a driver version", code="driver-version", hint="such as 550.54.15, 550 or R550") from None
    branches = [branch for branch in book.branches() if branch.number == driver.major]
    forward = [row for row in book.rows(Forward) if row.base == driver.major]
    return _stack(book, "driver", partial(show_driver, book=book, driver=driver), branches=branches, forward=forward)


def _gpu(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import show_gpu, show_gpus

    if which is None:
        show = partial(show_gpus, architectures=book.architectures())
        return _stack(book, "gpu", show, architectures=book.architectures())
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
    cards = [card] if card else [other for other in book.cards() if other.capability == capability]
    peaks = [
        {**plain(peak), "confidence": "memory" if book.is_from_memory(peak) else None} for peak in (book.peaks_of(card) if card else ())
    ]
    show = partial(show_gpu, book=book, capability=capability, card=card)
    return _stack(book, "gpu", show, architectures=[architecture], cards=cards, peaks=peaks)


def _machine(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.operations.machine_facts import facts_of_place, places
    from cudnn_resolve.report.matrix_stack import show_places

    found = places(book)
    if which is not None:
        facts_of_place(which, book)  # rejects an unknown name with the nearest ones
        place = find(found, which)
        found = (place,) if place is not None else ()
    return _stack(book, "machine", partial(show_places, places=found), places=found)


def _rows(rows: Sequence[Any]) -> _Rows:
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
