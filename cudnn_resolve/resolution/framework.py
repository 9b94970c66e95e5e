"""Frameworks of the universe: which builds there are, and which of them come first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.target import accepts, target_reason
from cudnn_resolve.resolution.build import Builds, described
from cudnn_resolve.resolution.candidate import BuildCandidate, Kind, Need
from cudnn_resolve.resolution.channel import component_package, is_installed
from cudnn_resolve.resolution.key import INDEX, FrameworkKey, pip_key
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.pin_override import abi_range
from cudnn_resolve.resolution.release import parse_version

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Target

_WHEELS_THERE = 5
"""Weight of installed library wheels against a build that does without them."""


class BuildOrder(NamedTuple):
    """How a build compares with others of its framework, the first criterion counting most; smaller is better."""

    is_not_installed: bool
    is_other_variant: bool
    """Installed is another variant of its version."""
    unmet: int
    """Requirements of an installed build that the environment does not meet."""
    is_not_locked: bool
    is_vague: bool
    """Nobody read its wheel, and that of another build of its version somebody did."""
    version: int
    """Its place among those of its framework, the newest first."""
    is_elsewhere: bool
    """It is not on the configured index."""
    is_beyond_driver: bool
    """It is elsewhere, and of a newer CUDA than the driver itself supports."""
    leaves_out: bool
    """It takes what lies on the machine, and another build of its version brings all that it uses (`cuda13-local` beside `cuda12`)."""
    cuda: tuple[int, int]
    """The newest first."""
    place: int


class NearestOrder(NamedTuple):
    """How a build compares with others where one near a version is wanted: smaller is better."""

    releases_between: int
    newer_first: int
    is_elsewhere: bool
    cuda: tuple[int, int]


class Frameworks(Kind[FrameworkKey, BuildCandidate]):
    """Frameworks: their builds for the wanted device."""

    def __init__(self, builds: Builds) -> None:
        super().__init__()
        self._builds = builds
        self._context = builds.context

    def make(self, key: FrameworkKey) -> Iterator[BuildCandidate]:
        """Builds of a framework, best first: what is installed, then the newest; of one release that of the configured index."""
        context = self._context
        row = context.book.framework(key.name)
        vendors = [own for package in row.packages if (own := context.releases.vendor(package)) is not None]
        builds = [build for build in (*vendors, *row.builds) if self._suits(build) and parse_version(build.version) is not None]
        near = context.near.get(key.name)
        for build in self._ordered(builds) if near is None else _nearest(builds, near):
            yield BuildCandidate(key=key, version=build.wheel_version, build=build)

    def _suits(self, build: Build) -> bool:
        context = self._context
        if build.index != "default" and not context.request.variant_indexes and not is_installed(context, build):
            return False
        return (build.cuda is not None) == (context.device_of(build.framework) == "gpu")

    def _ordered(self, builds: list[Build]) -> list[Build]:
        context, machine = self._context, self._context.machine
        native = machine.native_cuda
        read = {build.version for build in builds if not is_vague(build)}
        versions = {text: version for text in {build.version for build in builds} if (version := parse_version(text)) is not None}
        newest = {version: number for number, version in enumerate(sorted(set(versions.values()), reverse=True))}
        whole = {(build.version, build.index) for build in builds if build.delivery == "wheel"}

        def order(place: int, build: Build) -> BuildOrder:
            installed = is_installed(context, build)
            elsewhere = build.index != "default"
            return BuildOrder(
                is_not_installed=not installed,
                is_other_variant=not installed or machine.pip.get(build.package) != build.wheel_version,
                unmet=self.unmet(build) if installed else 0,
                is_not_locked=context.request.preferences.get(build.package) != build.wheel_version,
                is_vague=build.version in read and is_vague(build),
                version=newest[versions[build.version]],
                is_elsewhere=elsewhere,
                is_beyond_driver=elsewhere and native is not None and build.cuda is not None and build.cuda > native,
                leaves_out=build.delivery == "system" and (build.version, build.index) in whole,
                cuda=_newest_cuda(build),
                place=place,
            )

        orders = sorted((order(place, build), place) for place, build in enumerate(builds))
        return [builds[place] for _, place in orders]

    def unmet(self, build: Build) -> int:
        """How many requirements of an installed build the environment does not meet.

        Of several builds of one version, the one with the fewest is the one that is there.
        """
        if self._context.release_of(build) is None:
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
            count += _WHEELS_THERE
        return count

    def needs(self, candidate: BuildCandidate) -> Iterator[Need]:
        """A build needs its wheel; what the wheel needs of the machine is said first, which drops a hopeless one at once."""
        context, build = self._context, candidate.build
        wheel = self._builds.packages.wheel_of(build)
        if wheel is not None:
            who = described(wheel.release, build)
            if not context.allows(wheel.release):
                texts = ", ".join(text for text, _ in context.constraints[build.package])
                yield Need(INDEX, lambda _: False, f"a constraint that allows it, and there is {texts}", who)
            yield from file_needs(context, wheel.release, who)
            if build.cuda is not None:
                yield from self._builds.machine_needs(build, who)
        text = f"{build.package}=={build.wheel_version}"
        yield Need(pip_key(build.package), lambda other: other is wheel, text, f"{text} is that build")


def target_need(target: Target, book: Book) -> Need:
    """The need behind one target."""

    def test(candidate: BuildCandidate) -> bool:
        return accepts(target, candidate.build, book)

    return Need(FrameworkKey(target.framework), test, target.text, target_reason(target))


def is_vague(build: Build) -> bool:
    """True for a GPU build whose wheel nobody read: its code or its pins are not known.

    Where another build of its version is known, every known build comes first.
    """
    if build.cuda is None:
        return False
    unread = build.delivery == "wheel" and build.extra is None and bool(build.loads)
    return unread or (not build.targets and build.capability_first is None)


def _nearest(builds: list[Build], near: str) -> list[Build]:
    """Builds by how many releases lie between them and `near`, the newer of two equally far first."""
    known = {build.version: version for build in builds if (version := parse_version(build.version)) is not None}
    home = parse_version(near)
    if home is None:
        return builds
    versions = sorted(set(known.values()))
    place = sum(version < home for version in versions)
    distance = {version: number - place for number, version in enumerate(versions)}

    def order(build: Build) -> NearestOrder:
        here = distance[known[build.version]]
        return NearestOrder(abs(here), -here, build.index != "default", _newest_cuda(build))

    return sorted(builds, key=order)


def _newest_cuda(build: Build) -> tuple[int, int]:
    return (-build.cuda.major, -build.cuda.minor) if build.cuda else (0, 0)
