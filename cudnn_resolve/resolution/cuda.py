"""The CUDA runtime of an environment, through one channel: pip wheels, apt packages, or installed toolkits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.row import Build, CudaRelease, Repository
from cudnn_resolve.requirement.target import is_exact
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import CudaCandidate, Kind, Need
from cudnn_resolve.resolution.candidate_order import CudaOrder
from cudnn_resolve.resolution.channel import CUDA_MAJORS, allowed_channels, component_package, system_channels
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import CUDA, ROOT, CudaKey
from cudnn_resolve.resolution.release import Release, extras_of
from cudnn_resolve.version import CudaVersion


class CudaRuntimes(Kind[CudaKey, CudaCandidate]):
    """CUDA runtimes: toolkit lines through the allowed channels."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def make(self, key: CudaKey) -> Iterator[CudaCandidate]:
        """Every CUDA line of the allowed channels; for that of the system: installed toolkits and apt.

        The installed wheels are always included: a framework that looks for wheels first loads these.
        """
        channels = system_channels(self.context) if key.of_system else allowed_channels(self.context)
        if "pip" not in channels:
            for cuda in self._installed():
                yield _candidate(cuda.line, key=key, channel="pip", releases=(str(cuda),))
        for channel in channels:
            if channel == "pip":
                yield from self._from_wheels()
            elif channel == "system":
                yield from self._from_toolkits(key)
            else:
                yield from self._from_apt(key)

    def _from_wheels(self) -> Iterator[CudaCandidate]:
        book = self.context.book
        for major in CUDA_MAJORS:
            package = component_package(book, "cudart", major)
            if package is None:
                continue
            lines: dict[str, list[str]] = {}
            for release in self.context.releases.of(package):
                cuda = book.cuda_of(package, release.text)
                if cuda is not None and release.details.fit.arch:
                    lines.setdefault(cuda.line, []).append(str(cuda))
            for line, releases in lines.items():
                yield _candidate(line, key=CUDA, channel="pip", releases=tuple(reversed(releases)))

    def _from_toolkits(self, key: CudaKey) -> Iterator[CudaCandidate]:
        for toolkit in self.context.machine.toolkits:
            if toolkit.version and toolkit.source != "pip":
                line = CudaVersion(toolkit.version).line
                yield _candidate(line, key=key, channel="system", releases=(toolkit.version,), path=toolkit.path)

    def _from_apt(self, key: CudaKey) -> Iterator[CudaCandidate]:
        """Lines in the distribution's own repository, then those that only repositories of its older releases have.

        Library packages of an older release run on a newer one, because glibc is backward compatible. An unknown distribution excludes
        nothing.
        """
        seen: set[str] = set()
        for number, repository in enumerate(repositories(self.context)):
            lines: dict[str, list[str]] = {}
            for release in _releases_in(self.context, repository):
                if release.line not in seen:
                    lines.setdefault(release.line, []).append(str(release.cuda))
            seen.update(lines)
            is_foreign = number > 0 and self.context.machine.os is not None
            for line, releases in lines.items():
                yield _candidate(line, key=key, channel="apt", releases=tuple(releases), repository=repository, foreign=is_foreign)

    def ordered(self, key: CudaKey, needs: Sequence[Need]) -> Iterable[CudaCandidate]:
        """CUDA lines, best first: preferred channel, installed, oldest if a build pins libraries, newest that the driver supports."""
        rank = {channel: number for number, channel in enumerate(allowed_channels(self.context))}
        is_pinned = any(self._pins_libraries(need.build) for need in needs if need.build is not None and need.build.cuda is not None)
        installed = next(self._installed(), None) if self.context.request.prefer == "installed" else None
        native = self.context.machine.native_cuda

        def order(candidate: CudaCandidate) -> CudaOrder:
            cuda = candidate.cuda
            is_beyond = native is not None and cuda > CudaVersion(native.line)
            is_oldest_first = is_pinned or is_beyond or native is None
            return CudaOrder(
                channel=rank.get(candidate.channel, 9),
                is_not_installed=installed is None or cuda.line != installed.line,
                is_beyond_driver=not is_pinned and is_beyond,
                line=(cuda.major, cuda.minor) if is_oldest_first else (-cuda.major, -cuda.minor),
            )

        return sorted(self.candidates(key, needs), key=order)

    def _pins_libraries(self, build: Build) -> bool:
        """True if the wheel of a build, or its extra, pins CUDA libraries exactly: then CUDA stays as close as possible."""
        return any(
            is_exact(requirement.specifier) and self.context.book.component(canonicalize_name(requirement.name)) is not None
            for requirement, _ in self.context.requirements_of(build)
        )

    def _installed(self) -> Iterator[CudaVersion]:
        """CUDA of each installed runtime wheel."""
        context = self.context
        for major in CUDA_MAJORS:
            package = component_package(context.book, "cudart", major)
            version = context.machine.pip.get(package or "")
            cuda = context.book.cuda_of(package, version) if package and version else None
            if cuda is not None:
                yield cuda

    def needs(self, candidate: CudaCandidate) -> Iterator[Need]:
        """What a CUDA runtime needs of the driver, the GPUs and the user's limit."""
        book, machine, request = self.context.book, self.context.machine, self.context.request
        who = f"CUDA {candidate.version}"
        yield from compatibility.driver_needs(book, candidate.cuda, request.driver_policy, who)
        if candidate.channel == "apt" and request.channel == "auto":
            yield Need(ROOT, lambda root: root.value is not False, "root access", f"{who} comes from apt")
        yield from compatibility.library_needs(book, machine, candidate.cuda, who)
        if candidate.channel != "system":
            yield from compatibility.jetson_needs(book, machine, candidate.cuda, who)
        yield compatibility.cuda_limit(candidate.cuda, candidate.releases, "it limits the CUDA of the environment")

    def oldest_line(self, build: Build) -> CudaVersion:
        """The oldest CUDA line whose runtime works for a build.

        That which it was built with, unless its metadata gives a lower bound instead of a pin for the runtime library (JAX does):
        then its authors vouch for older ones.
        """
        assert build.cuda is not None
        book = self.context.book
        line = CudaVersion(build.cuda.line)
        release = self.context.releases.of_build(build)
        package = component_package(book, "cudart", build.cuda.major)
        if release is None or package is None:
            return line
        extras = extras_of(build)
        for declaring in (release, *self._plugins(build)):
            for requirement, _ in self.context.metadata.requirements(declaring, (*extras, "with-cuda")):
                if canonicalize_name(requirement.name) != package or is_exact(requirement.specifier):
                    continue
                for part in requirement.specifier:
                    bound = book.cuda_of(package, part.version) if part.operator == ">=" else None
                    if bound is not None and bound.major == line.major:
                        return min(line, CudaVersion(bound.line))
        return line

    def _plugins(self, build: Build) -> Iterator[Release]:
        """Newest accepted release of each package with framework code that an extra adds."""
        context = self.context
        for requirement in context.plugins_of(build):
            name = canonicalize_name(requirement.name)
            if context.request.source is not None and not context.book.is_harvested(name):
                continue  # a package outside the matrix says nothing about CUDA, and its metadata would cost a download
            for plugin in context.releases.of(name):
                if requirement.specifier.contains(plugin.version, prereleases=True):
                    yield plugin
                    break


def _candidate(line: str, **fields: Any) -> CudaCandidate:
    return CudaCandidate(version=line, cuda=CudaVersion(line), **fields)


def _releases_in(context: Context, repository: str) -> list[CudaRelease]:
    """CUDA releases in an apt repository: those that name it, otherwise those within its range."""
    releases = context.book.cuda_releases()
    naming = [release for release in releases if repository in release.repositories]
    row = next((row for row in context.book.rows(Repository) if row.name == repository), None)
    if naming or row is None or row.cuda_first is None:
        return naming
    first, last = row.cuda_first, row.cuda_last
    return [
        release for release in releases if release.repositories and first <= release.cuda and (last is None or release.line <= last.line)
    ]


def repositories(context: Context) -> list[str]:
    """Names of the usable apt repositories: the distribution's own first, then those of older releases, newest first."""
    machine = context.machine
    rows = [row for row in context.book.rows(Repository) if not machine.arch or row.arch == machine.arch]
    if machine.os is None:
        return [row.name for row in reversed(rows) if row.os.startswith("ubuntu")]
    distribution, release = _split_os(machine.os)
    usable = []
    for row in rows:
        row_distribution, row_release = _split_os(row.os)
        if row_distribution == distribution and row_release <= release:
            usable.append((row_release, row))
    if not any(row.os == machine.os for _, row in usable):
        return []
    return [row.name for _, row in sorted(usable, key=lambda found: found[0], reverse=True)]


def _split_os(name: str) -> tuple[str, tuple[int, ...]]:
    """Split `ubuntu22.04` into `ubuntu` and (22, 4)."""
    distribution = name.rstrip("0123456789.")
    return distribution, tuple(int(part) for part in name[len(distribution) :].split(".") if part)
