"""`matrix`: what the tables hold, one thing of them, and whether they are sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.errors import UsageError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import find
from cudnn_resolve.matrix.position import Fault
from cudnn_resolve.matrix.row import Floor
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.operations.results import Result
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.digest import Digest, Entry

SCHEMA = "cudnn-resolve/matrix/1"
Stack = Literal["cudnn", "cuda", "driver", "gpu", "machine"]
STACK: tuple[Stack, ...] = ("cudnn", "cuda", "driver", "gpu", "machine")
_Rows = tuple[dict[str, Any], ...]
"""Rows in the columns of their tables."""


class _MatrixResult(Struct, Result, frozen=True, kw_only=True):
    """What the results of `matrix` have in common."""

    version: str
    """That of the tables."""
    overlays: tuple[str, ...] = ()
    """The rows that lie over the shipped tables, in words."""

    def to_json(self) -> dict[str, Any]:
        """The object that `matrix --format json` prints."""
        from cudnn_resolve.report.json import plain as builtins

        return {"schema": SCHEMA, **{name: one for name, one in builtins(self).items() if name != "overlays" or one}}


class ListedFramework(Struct, frozen=True, kw_only=True):
    """A framework that the tables know."""

    name: str
    title: str
    packages: tuple[str, ...]
    """Its distributions."""
    releases: str
    """The oldest and the newest, `1.13.1 to 2.9.0`."""
    builds: int


class MatrixListResult(_MatrixResult, frozen=True, kw_only=True):
    """What `matrix list` returns: everything that can be looked up."""

    frameworks: tuple[ListedFramework, ...]
    packages: tuple[str, ...]
    """Other packages that decide a stack."""


class ShownFramework(Struct, frozen=True, kw_only=True):
    """The head of a framework."""

    name: str
    title: str
    packages: tuple[str, ...]
    companions: tuple[str, ...]


class DriverFloor(Struct, frozen=True, kw_only=True):
    """The oldest driver under each policy."""

    minor: str | None
    strict: str | None


class ShownBuild(Struct, frozen=True, kw_only=True):
    """A build of a framework in the columns of its table, and what follows from it."""

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
    """Where a row was read, and when."""

    where: str
    read: str


class MatrixFrameworkResult(_MatrixResult, frozen=True, kw_only=True):
    """What `matrix show FRAMEWORK` returns: its builds, the newest first."""

    framework: ShownFramework
    builds: tuple[ShownBuild, ...]
    bounds: _Rows
    traps: _Rows
    sources: dict[str, ShownSource | None]


class MatrixStackResult(_MatrixResult, frozen=True, kw_only=True):
    """What `matrix show cudnn`, `cuda`, `driver` or `gpu` returns: rows in the columns of the tables that speak of it."""

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
    """What the comparison with an index found."""

    rows: int
    """That were compared."""
    faults: tuple[Fault, ...]
    unread: tuple[str, ...]
    """What could not be compared, and why."""


class MatrixCheckResult(Struct, Result, frozen=True, kw_only=True):
    """What `matrix check` returns: every fault of the tables."""

    faults: tuple[Fault, ...]
    tables: tuple[str, ...]
    """The folders that were looked through."""
    live: LiveReport | None = None
    """The comparison with the index, where it was asked for and the tables are sound."""

    @property
    def status(self) -> Literal["ok", "faulty"]:
        """`faulty` where there is a fault, or a row that is not as the index says."""
        return "faulty" if self.faults or (self.live is not None and self.live.faults) else "ok"

    def to_json(self) -> dict[str, Any]:
        """The object that `matrix check --format json` prints."""
        from cudnn_resolve.report.json import plain as builtins

        live = {} if self.live is None else {"live": builtins(self.live)}
        return {"schema": SCHEMA, "status": self.status, "faults": builtins(self.faults), **live}


V_co = TypeVar("V_co", bound=_MatrixResult, covariant=True)


class Answer(Struct, Generic[V_co], frozen=True, kw_only=True):
    """An answer of the tables, as a text and as a value; the one that nobody asks for is not made."""

    book: Book
    text: Callable[..., str]
    """The answer in a `style` and a `width`."""
    value: Callable[[], V_co]


def everything(book: Book) -> Answer[MatrixListResult]:
    """Frameworks and tables."""
    from cudnn_resolve.report.matrix import render_list

    return Answer(book=book, text=partial(render_list, book), value=partial(_list, book))


def _list(book: Book) -> MatrixListResult:
    from cudnn_resolve.report.matrix import span

    frameworks = [book.framework(name) for name in book.frameworks()]
    return MatrixListResult(
        version=book.version,
        overlays=book.remarks,
        frameworks=tuple(
            ListedFramework(name=one.name, title=one.title, packages=one.packages, releases=span(one.builds), builds=len(one.builds))
            for one in frameworks
        ),
        packages=book.packages(),
    )


def look_up(book: Book, name: str, which: str | None) -> Answer[MatrixFrameworkResult | MatrixStackResult]:
    """A framework, or its releases in `which`; or what the tables say of `cudnn`, `cuda`, `driver` or `gpu`.

    UsageError where the tables know nothing of that name or release.
    """
    stack = {"cudnn": _cudnn, "cuda": _cuda, "driver": _driver, "gpu": _gpu, "machine": _machine}.get(name)
    return stack(book, which) if stack is not None else _framework(book, name, which)


def _framework(book: Book, name: str, which: str | None) -> Answer[MatrixFrameworkResult]:
    from cudnn_resolve.matrix.digest import digest
    from cudnn_resolve.report.matrix import render_framework, render_release, span

    try:
        found = digest(book, name, None if which is None else _specifier(which))
    except KeyError:
        near = book.nearest(name)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join((*book.frameworks(), *STACK))}"
        raise UsageError(f"the matrix knows no framework {name!r}", code="framework-unknown", hint=hint) from None
    if not found.entries:
        known = span(found.framework.builds)
        raise UsageError(f"no release of {found.framework.name} is {which}", code="version-unknown", hint=f"the matrix knows {known}")
    draw = partial(render_framework, found) if which is None else partial(render_release, book, found)
    return Answer(book=book, text=draw, value=partial(shown, book, found))


def shown(book: Book, found: Digest) -> MatrixFrameworkResult:
    """A framework with the builds that were asked for."""
    framework = found.framework
    table = f"framework/{framework.name}"
    sources = {id_: book.source(table, id_) for id_ in sorted({id_ for one in found.entries for id_ in one.build.source})}
    return MatrixFrameworkResult(
        version=book.version,
        overlays=book.remarks,
        framework=ShownFramework(name=framework.name, title=framework.title, packages=framework.packages, companions=framework.companions),
        builds=tuple(map(_build, found.entries)),
        bounds=_rows(framework.bounds),
        traps=_rows(book.traps(framework.name)),
        sources={id_: ShownSource(where=one.where, read=one.read) if one else None for id_, one in sources.items()},
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


def _stack(book: Book, show: Stack, text: Callable[..., str], rows: Callable[[], dict[str, _Rows]]) -> Answer[MatrixStackResult]:
    """What the tables say of one part of the stack: drawn by `text`, and as the rows of their arrays."""
    return Answer(book=book, text=text, value=lambda: MatrixStackResult(version=book.version, overlays=book.remarks, show=show, **rows()))


def _cudnn(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import render_cudnn

    builds = [one for one in book.cudnn_builds() if which is None or str(one.version) in _specifier(which)]
    _some(builds, "cuDNN", which, str(book.cudnn_builds()[0].version), str(book.cudnn_builds()[-1].version))
    return _stack(book, "cudnn", partial(render_cudnn, builds), lambda: {"builds": _rows(builds)})


def _cuda(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import render_cuda

    releases = [one for one in book.cuda_releases() if which is None or str(one.cuda) in _specifier(which)]
    _some(releases, "CUDA", which, str(book.cuda_releases()[0].cuda), str(book.cuda_releases()[-1].cuda))

    def rows() -> dict[str, _Rows]:
        drivers = [one for one in book.minimums() if any(one.cuda == each.cuda for each in releases)]
        majors = {each.cuda.major for each in releases}
        floors = [floor for floor in book.rows(Floor) if floor.cuda_major in majors]
        return {"releases": _rows(releases), "minimums": _rows(drivers), "floors": _rows(floors)}

    return _stack(book, "cuda", partial(render_cuda, book, releases), rows)


def _driver(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import render_driver, render_drivers

    if which is None:
        return _stack(book, "driver", partial(render_drivers, book.branches()), lambda: {"branches": _rows(book.branches())})
    try:
        driver = DriverVersion(which.removeprefix("R"))
    except ValueError:
        raise UsageError(f"{which!r} is not a driver version", code="driver-version", hint="such as 550.54.15, 550 or R550") from None
    branches = [one for one in book.branches() if one.number == driver.major]
    forward = [one for one in book.forward() if one.base == driver.major]
    draw = partial(render_driver, book, driver)
    return _stack(book, "driver", draw, lambda: {"branches": _rows(branches), "forward": _rows(forward)})


def _gpu(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.report.matrix_stack import render_gpu, render_gpus

    if which is None:
        return _stack(book, "gpu", partial(render_gpus, book.architectures()), lambda: {"architectures": _rows(book.architectures())})
    card = book.card(which)
    try:
        capability = card.capability if card else Capability.parse(which)
    except ValueError:
        near = book.nearest_cards(which)
        hint = f"did you mean {' or '.join(near)}?" if near else "a card such as T4, or a compute capability such as 8.9 or sm_89"
        raise UsageError(f"the matrix knows no GPU {which!r}", code="gpu-unknown", hint=hint) from None
    architecture = book.architecture(capability)
    if architecture is None:
        known = ", ".join(str(one.capability) for one in book.architectures())
        raise UsageError(f"the matrix knows no compute capability {capability}", code="gpu-unknown", hint=f"it knows {known}")

    def rows() -> dict[str, _Rows]:
        peaks = book.peaks_of(card) if card else ()
        return {
            "architectures": _rows([architecture]),
            "cards": _rows([card] if card else [one for one in book.cards() if one.capability == capability]),
            "peaks": tuple({**plain(one), "confidence": "memory" if book.from_memory("gpu/peak", one.source) else None} for one in peaks),
        }

    return _stack(book, "gpu", partial(render_gpu, book, capability, card), rows)


def _machine(book: Book, which: str | None) -> Answer[MatrixStackResult]:
    from cudnn_resolve.operations.machine_facts import facts_of_place, places
    from cudnn_resolve.report.matrix_stack import render_places

    found = places(book)
    if which is not None:
        facts_of_place(which, book)  # a name that nobody knows is told with the nearest
        found = tuple(one for one in (find(found, which),) if one is not None)
    return _stack(book, "machine", partial(render_places, found), lambda: {"places": _rows(found)})


def _rows(rows: Sequence[Struct]) -> _Rows:
    return tuple(plain(list(rows)))


def _specifier(text: str) -> Any:
    from packaging.specifiers import InvalidSpecifier

    from cudnn_resolve.requirement.derive import version_filter

    try:
        return version_filter(text)
    except InvalidSpecifier:
        hint = "such as 2.15, 2.15.1 or '>=2.4,<2.6'"
        raise UsageError(f"{text!r} is neither a version nor a version specifier", code="version-specifier", hint=hint) from None


def _some(found: Sequence[Any], what: str, which: str | None, first: str, last: str) -> None:
    if not found:
        raise UsageError(f"the matrix knows no {what} {which}", code="version-unknown", hint=f"it knows {first} to {last}")
