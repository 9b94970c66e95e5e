"""The CUDA runtime that an environment loads, through one channel: pip wheels, apt packages, or the toolkits that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.target import is_exact
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import CudaCandidate, Kind, Need
from cudnn_resolve.resolution.channel import MAJORS, channels, channels_of_system, component_package, preferred
from cudnn_resolve.resolution.key import CUDA, CUDA_LIMIT, ROOT, CudaKey
from cudnn_resolve.resolution.release import extras_of
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build, CudaRelease
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.release import Release


class CudaOrder(NamedTuple):
    """How a CUDA line compares with others, the first criterion counting most; smaller is better."""

    channel: int
    is_not_installed: bool
    is_beyond_driver: bool
    line: tuple[int, int]


class CudaRuntimes(Kind[CudaKey, CudaCandidate]):
    """CUDA runtimes: lines of the toolkit through the channels that the request allows."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self._pins: dict[int, bool] = {}
        self._orders: dict[tuple[object, ...], list[CudaCandidate]] = {}

    def make(self, key: CudaKey) -> Iterator[CudaCandidate]:
        """Every CUDA line that some allowed channel has; for that of the system, beside wheels, what is there and what apt has.

        The installed wheels are there in any case: what looks for wheels first loads these.
        """
        allowed = channels_of_system(self.context) if key.of_system else channels(self.context)
        if "pip" not in allowed:
            yield from (_line(one.line, key=key, channel="pip", releases=(str(one),)) for one in self._installed())
        for channel in allowed:
            if channel == "pip":
                yield from self._of_wheels()
            elif channel == "system":
                for toolkit in self.context.machine.toolkits:
                    if toolkit.version and toolkit.source != "pip":
                        line = CudaVersion(toolkit.version).line
                        yield _line(line, key=key, channel=channel, releases=(toolkit.version,), path=toolkit.path)
            else:
                yield from self._of_apt(key)

    def _of_wheels(self) -> Iterator[CudaCandidate]:
        book = self.context.book
        for major in MAJORS:
            package = component_package(book, "cudart", major)
            if package is None:
                continue
            lines: dict[str, list[str]] = {}
            for release in self.context.releases.of(package):
                cuda = book.cuda_of(package, release.text)
                if cuda is not None and release.fit.arch:
                    lines.setdefault(cuda.line, []).append(str(cuda))
            for line, releases in lines.items():
                yield _line(line, key=CUDA, channel="pip", releases=tuple(reversed(releases)))

    def _of_apt(self, key: CudaKey) -> Iterator[CudaCandidate]:
        """CUDA lines of the distribution's own repository, then those that only the repositories of its older releases carry.

        Library packages of an older release run on a newer one, because glibc keeps its old interfaces. Where the distribution is not
        known, nothing is excluded.
        """
        seen: set[str] = set()
        for number, repository in enumerate(repositories(self.context)):
            lines: dict[str, list[str]] = {}
            for release in _carried(self.context, repository):
                if release.line not in seen:
                    lines.setdefault(release.line, []).append(str(release.cuda))
            seen.update(lines)
            foreign = number > 0 and self.context.machine.os is not None
            for line, releases in lines.items():
                yield _line(line, key=key, channel="apt", releases=tuple(releases), repository=repository, foreign=foreign)

    def ordered(self, key: CudaKey, needs: Sequence[Need]) -> Iterable[CudaCandidate]:
        """CUDA lines, best first: the preferred channel; what is installed; where builds pin, the oldest; the newest the driver knows."""
        chosen = self.context.cuda
        order = (key, chosen.version if chosen is not None else None, *map(id, needs))
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = self._ordered(key, needs)
        return found

    def _ordered(self, key: CudaKey, needs: Sequence[Need]) -> list[CudaCandidate]:
        rank = {channel: number for number, channel in enumerate(preferred(self.context))}
        pinned = any(self._pins_libraries(need.build) for need in needs if need.build is not None and need.build.cuda is not None)
        installed = self._installed_line()
        native = self.context.machine.native_cuda

        def order(candidate: CudaCandidate) -> CudaOrder:
            cuda = candidate.cuda
            beyond = native is not None and cuda > CudaVersion(native.line)
            ascending = pinned or beyond or native is None
            return CudaOrder(
                channel=rank.get(candidate.channel, 9),
                is_not_installed=cuda.line != installed,
                is_beyond_driver=not pinned and beyond,
                line=(cuda.major, cuda.minor) if ascending else (-cuda.major, -cuda.minor),
            )

        return sorted(self.candidates(key, needs), key=order)

    def _pins_libraries(self, build: Build) -> bool:
        """True where the wheel of a build, or its extra, pins CUDA libraries exactly: then CUDA stays as near as it can."""
        answer = self._pins.get(id(build))
        if answer is None:
            answer = self._pins[id(build)] = any(
                is_exact(requirement.specifier) and self.context.book.component(canonicalize_name(requirement.name)) is not None
                for requirement, _ in self.context.requirements_of(build)
            )
        return answer

    def _installed_line(self) -> str | None:
        """CUDA line of the installed runtime wheel that is to stay."""
        found = next(self._installed(), None) if self.context.request.prefer == "installed" else None
        return found.line if found is not None else None

    def _installed(self) -> Iterator[CudaVersion]:
        """The CUDA of each installed runtime wheel."""
        context = self.context
        for major in MAJORS:
            package = component_package(context.book, "cudart", major)
            version = context.machine.pip.get(package or "")
            cuda = context.book.cuda_of(package, version) if package and version else None
            if cuda is not None:
                yield cuda

    def needs(self, candidate: CudaCandidate) -> Iterator[Need]:
        """What a CUDA runtime needs of the driver, of the GPUs and of the user's limit."""
        book, machine, request = self.context.book, self.context.machine, self.context.request
        who = f"CUDA {candidate.version}"
        need = compatibility.driver_need(book, candidate.cuda, request.driver_policy, who)
        if need is not None:
            yield need
        if candidate.channel == "apt" and request.channel == "auto":
            yield Need(ROOT, lambda other: other.value is not False, "a user who may become root", f"{who} comes from apt")
        yield from compatibility.library_needs(book, machine, candidate.cuda, who)
        if candidate.channel != "system":
            yield from compatibility.jetson_needs(book, machine, candidate.cuda, who)
        yield cuda_limit(candidate.cuda, candidate.releases, who)

    def oldest_line(self, build: Build) -> CudaVersion:
        """The oldest CUDA line whose runtime serves a build.

        That which it was built with, unless its own metadata gives a lower bound instead of a pin for the runtime library (JAX does):
        then its authors vouch for older ones.
        """
        assert build.cuda is not None
        book = self.context.book
        line = CudaVersion(build.cuda.line)
        own = self.context.release_of(build)
        package = component_package(book, "cudart", build.cuda.major)
        if own is None or package is None:
            return line
        extras = extras_of(build)
        for release in (own, *self._plugins(own, extras)):
            for requirement, _ in self.context.metadata.requirements(release, (*extras, "with-cuda")):
                if canonicalize_name(requirement.name) != package or is_exact(requirement.specifier):
                    continue
                for one in requirement.specifier:
                    bound = book.cuda_of(package, one.version) if one.operator == ">=" else None
                    if bound is not None and bound.major == line.major:
                        return min(line, CudaVersion(bound.line))
        return line

    def _plugins(self, release: Release, extras: tuple[str, ...]) -> Iterator[Release]:
        """Releases of the packages that an extra adds to a framework's own code, the newest that it accepts of each."""
        context = self.context
        for requirement, extra in context.metadata.requirements(release, extras):
            name = canonicalize_name(requirement.name)
            if extra is None or context.book.component(name) is not None:
                continue
            if context.request.source is not None and context.book.package(name) is None:
                continue  # what the matrix does not know says nothing of CUDA, and asking for it would cost a download
            newest = (one for one in context.releases.of(name) if requirement.specifier.contains(one.version, prereleases=True))
            yield from (one for one in (next(newest, None),) if one is not None)


def _line(line: str, **parts: Any) -> CudaCandidate:
    return CudaCandidate(version=line, cuda=CudaVersion(line), **parts)


def cuda_limit(cuda: CudaVersion, releases: Sequence[str], who: str) -> Need:
    """The need that the user's limit on CUDA allows this line, or one of its releases."""
    return compatibility.limit_need(CUDA_LIMIT, f"CUDA {cuda.line}", (cuda.line, *releases), f"{who} is that CUDA")


def _carried(context: Context, repository: str) -> list[CudaRelease]:
    """The releases that a repository carries: those that name it, or where none does, those within its span."""
    releases = context.book.cuda_releases()
    named = [one for one in releases if repository in one.repositories]
    row = next((one for one in context.book.repositories() if one.name == repository), None)
    if named or row is None or row.cuda_first is None:
        return named
    last = row.cuda_last
    return [one for one in releases if one.repositories and row.cuda_first <= one.cuda and (last is None or one.line <= last.line)]


def repositories(context: Context) -> list[str]:
    """Names of the apt repositories that could serve, the distribution's own first, then older ones, the newest of them first."""
    machine = context.machine
    rows = [row for row in context.book.repositories() if not machine.arch or row.arch == machine.arch]
    if machine.os is None:
        return [row.name for row in reversed(rows) if row.os.startswith("ubuntu")]
    distribution = _distribution(machine.os)
    own = _release_of(machine.os)
    family = [row for row in rows if _distribution(row.os) == distribution and _release_of(row.os) <= own]
    if not any(row.os == machine.os for row in family):
        return []
    return [row.name for row in sorted(family, key=lambda row: _release_of(row.os), reverse=True)]


def _distribution(name: str) -> str:
    """`ubuntu` of `ubuntu22.04`."""
    return name.rstrip("0123456789.")


def _release_of(name: str) -> tuple[int, ...]:
    """(22, 4) of `ubuntu22.04`."""
    text = name[len(_distribution(name)) :]
    return tuple(int(part) for part in text.split(".") if part)
