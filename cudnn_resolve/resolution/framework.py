"""Frameworks in the universe: their builds, and the order of preference."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.model import Target
from cudnn_resolve.requirement.target import accepts, target_reason
from cudnn_resolve.resolution.build import Builds, describe_wheel
from cudnn_resolve.resolution.candidate import BuildCandidate, Kind, Need, impossible
from cudnn_resolve.resolution.candidate_order import BuildOrder, NearestOrder
from cudnn_resolve.resolution.channel import component_package, is_installed
from cudnn_resolve.resolution.key import INDEX, FrameworkKey, pip_key
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.pin_override import abi_range
from cudnn_resolve.resolution.release import parse_version, row_version

_UNUSED_WHEELS = 5
"""Unmet requirements that installed library wheels count as for a build that does not use them."""


class Frameworks(Kind[FrameworkKey, BuildCandidate]):
    """Frameworks: their builds for the requested device."""

    def __init__(self, builds: Builds) -> None:
        super().__init__()
        self._builds = builds
        self._context = builds.context

    def make(self, key: FrameworkKey) -> Iterator[BuildCandidate]:
        """Builds of a framework, best first: installed, then newest; within a release that of the configured index."""
        context = self._context
        framework = context.book.framework(key.name)
        vendors = [build for package in framework.packages if (build := context.releases.vendor(package)) is not None]
        builds = [build for build in (*vendors, *framework.builds) if self._is_wanted(build)]
        nearest_to = context.nearest_to.get(key.name)
        for build in self._sort(builds) if nearest_to is None else _sort_by_distance(builds, nearest_to):
            yield BuildCandidate(key=key, version=build.wheel_version, build=build)

    def _is_wanted(self, build: Build) -> bool:
        """True for a build for the requested device from an allowed index."""
        context = self._context
        if build.index != "default" and not context.request.variant_indexes and not is_installed(context, build):
            return False
        return (build.cuda is not None) == (context.device_of(build.framework) == "gpu")

    def _sort(self, builds: list[Build]) -> list[Build]:
        context, machine = self._context, self._context.machine
        native = machine.native_cuda
        read = {build.version for build in builds if not is_vague(build)}
        rank = {version: number for number, version in enumerate(sorted({row_version(build.version) for build in builds}, reverse=True))}
        self_contained = {(build.version, build.index) for build in builds if build.delivery == "wheel"}

        def order(place: int, build: Build) -> BuildOrder:
            installed = is_installed(context, build)
            is_elsewhere = build.index != "default"
            return BuildOrder(
                is_not_installed=not installed,
                is_other_variant=not installed or machine.pip.get(build.package) != build.wheel_version,
                unmet=self.unmet(build) if installed else 0,
                is_not_locked=context.request.preferences.get(build.package) != build.wheel_version,
                is_vague=build.version in read and is_vague(build),
                version=rank[row_version(build.version)],
                is_elsewhere=is_elsewhere,
                is_beyond_driver=is_elsewhere and native is not None and build.cuda is not None and build.cuda > native,
                uses_system=build.delivery == "system" and (build.version, build.index) in self_contained,
                cuda=_newest_cuda(build),
                place=place,
            )

        orders = sorted((order(place, build), place) for place, build in enumerate(builds))
        return [builds[place] for _, place in orders]

    def unmet(self, build: Build) -> int:
        """Number of requirements of an installed build that the environment does not meet.

        Of several builds of the installed version, the one with the fewest is taken for the installed one.
        """
        if self._context.releases.of_build(build) is None:
            return 99
        book, installed = self._context.book, self._context.machine.pip
        count = 0
        for requirement, extra in self._context.requirements_of(build):
            name = canonicalize_name(requirement.name)
            version = parse_version(installed.get(name, ""))
            component = book.component(name)
            if name.startswith("tensorrt") or (build.delivery == "system" and extra is not None and component is not None):
                continue
            if version is None:
                count += 1
            elif component is not None:
                count += not abi_range(component, requirement.specifier)[1](version)
            else:
                count += not requirement.specifier.contains(version, prereleases=True)
        if build.delivery == "system" and build.cuda is not None and component_package(book, "cudnn", build.cuda.major) in installed:
            count += _UNUSED_WHEELS
        return count

    def needs(self, candidate: BuildCandidate) -> Iterator[Need]:
        """Need for the build's wheel, after the wheel's needs of the machine, which drop a hopeless build early."""
        context, build = self._context, candidate.build
        wheel = self._builds.packages.wheel_of(build)
        if wheel is not None:
            who = describe_wheel(wheel.release, build)
            if not context.allows(wheel.release):
                texts = ", ".join(text for text, _ in context.constraints[build.package])
                yield impossible(INDEX, "a constraint that allows it", f"{who} is outside of {texts}")
            yield from file_needs(context, wheel.release, who)
            if build.cuda is not None:
                yield from self._builds.machine_needs(build, who)
        text = f"{build.package}=={build.wheel_version}"
        yield Need(pip_key(build.package), lambda other: other is wheel, text, f"{text} is that build", restates=True)


def target_need(target: Target, book: Book) -> Need:
    """Need of a target."""
    key = FrameworkKey(target.framework)
    return Need(key, lambda candidate: accepts(target, candidate.build, book), target.text, target_reason(target))


def is_vague(build: Build) -> bool:
    """True for a GPU build whose wheel was not read, so that its GPU code or its pins are unknown."""
    if build.cuda is None:
        return False
    has_unknown_pins = build.delivery == "wheel" and build.extra is None and bool(build.loads)
    return has_unknown_pins or (not build.targets and build.capability_first is None)


def _sort_by_distance(builds: list[Build], text: str) -> list[Build]:
    """Sort builds by the number of releases between them and a version; of two equally far the newer first."""
    center, versions = Version(text), sorted({row_version(build.version) for build in builds})
    place = sum(version < center for version in versions)
    distances = {version: number - place for number, version in enumerate(versions)}

    def order(build: Build) -> NearestOrder:
        distance = distances[row_version(build.version)]
        return NearestOrder(abs(distance), -distance, build.index != "default", _newest_cuda(build))

    return sorted(builds, key=order)


def _newest_cuda(build: Build) -> tuple[int, int]:
    return (-build.cuda.major, -build.cuda.minor) if build.cuda else (0, 0)
