"""Frameworks of the universe: their builds, and the channels through which the CUDA libraries of a build may come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.model import Need
from cudnn_resolve.resolution import rule, runtime
from cudnn_resolve.resolution.bound import direct_needs
from cudnn_resolve.resolution.model import Candidate
from cudnn_resolve.resolution.package import (
    abi_range,
    bad_release,
    file_needs,
    name_of,
    requirement_need,
)
from cudnn_resolve.resolution.release import Release, parse_version
from cudnn_resolve.resolution.runtime import extras_of
from cudnn_resolve.resolution.standing import beside_needs
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from packaging.version import Version

    from cudnn_resolve.resolution.universe import Universe


def framework_candidates(universe: Universe, name: str) -> Iterator[Candidate]:
    """Builds of a framework for the wanted device, best first.

    What is installed; then the newest release; of one release the configured index before others, then the newest CUDA.
    """
    row = universe.book.framework(name)
    vendors = [own for package in row.packages if (own := universe.shelf.vendor(package)) is not None]
    builds = [build for build in (*vendors, *row.builds) if _suits_device(universe, build)]
    near = universe.near.get(name)
    position = {id(build): number for number, build in enumerate(builds)}

    native = universe.machine.native_cuda
    known = {build.version for build in builds if not is_vague(build)}

    locked = {name: universe.request.preferences.get(name) for name in universe.book.framework(name).packages}

    def key(build: Build) -> tuple[bool, bool, int, bool, bool, _Descending, bool, bool, tuple[int, int], int]:
        version = parse_version(build.version)
        assert version is not None
        keep = near is None and runtime.is_installed(universe, build)
        exact = keep and universe.machine.pip.get(build.package) == build.wheel_version
        cuda = (-build.cuda.major, -build.cuda.minor) if build.cuda else (0, 0)
        missing = unmet(universe, build) if keep else 0
        beyond = native is not None and build.cuda is not None and build.cuda > native
        other = build.index != "default"
        vague = is_vague(build) and build.version in known
        pinned = locked.get(build.package) == build.wheel_version
        return not keep, not exact, missing, not pinned, vague, _Descending(version), other, other and beyond, cuda, position[id(build)]

    usable = [build for build in builds if parse_version(build.version) is not None]
    if near is not None:
        usable = _by_distance(usable, near)
    else:
        usable.sort(key=key)
    for build in usable:
        yield Candidate(name=f"framework:{name}", version=build.wheel_version, kind="framework", payload=build, index=build.index)


def is_vague(build: Build) -> bool:
    """True for a GPU build whose wheel nobody read: its code or its pins are not known.

    Where another build of its version is known, every known build comes first.
    """
    if build.cuda is None:
        return False
    unread = build.delivery == "wheel" and build.extra is None and bool(build.loads)
    return unread or (not build.targets and build.capability_first is None)


class _Descending:
    """Sorts a value downwards."""

    __slots__ = ("value",)

    def __init__(self, value: Version) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def _by_distance(builds: list[Build], near: str) -> list[Build]:
    """Builds by how many releases lie between them and `near`, the newer of two equally far first."""
    versions = sorted({version for build in builds if (version := parse_version(build.version)) is not None})
    home = parse_version(near)
    if home is None:
        return builds
    place = sum(version < home for version in versions)
    rank = {version: number for number, version in enumerate(versions)}

    def key(build: Build) -> tuple[int, int, bool, tuple[int, int]]:
        version = parse_version(build.version)
        distance = rank[version] - place if version is not None else 0
        cuda = (-build.cuda.major, -build.cuda.minor) if build.cuda else (0, 0)
        return abs(distance), -distance, build.index != "default", cuda

    return sorted(builds, key=key)


def _suits_device(universe: Universe, build: Build) -> bool:
    if build.index != "default" and not universe.request.variant_indexes and not runtime.is_installed(universe, build):
        return False
    return (build.cuda is not None) == (universe.device_of(build.framework) == "gpu")


def unmet(universe: Universe, build: Build) -> int:
    """How many requirements of an installed build the environment does not meet.

    Of several builds of one version, the one with the fewest is the one that is there.
    """
    wheel = universe.build_candidate(build)
    if wheel is None:
        return 99
    installed = universe.machine.pip
    count = 0
    for requirement, extra in universe.shelf.requirements(wheel.payload, extras_of(build)):
        name = canonicalize_name(requirement.name)
        version = parse_version(installed.get(name, ""))
        component = universe.book.component(name)
        if name.startswith("tensorrt") or (build.delivery == "system" and extra is not None and component is not None):
            continue
        if version is None:
            count += 1
        elif component is not None:
            count += not abi_range(component, requirement.specifier)[1](version)
        else:
            count += not requirement.specifier.contains(version, prereleases=True)
    if build.delivery == "system" and build.cuda is not None:
        package = runtime.component_package(universe, "cudnn", build.cuda.major)
        count += _WHEELS_THERE if package in installed else 0
    return count


_WHEELS_THERE = 5
"""Weight of installed library wheels against a build that does without them."""


def framework_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """A framework's build needs its wheel; what the wheel needs of the machine is said first, which drops a hopeless one at once."""
    build: Build = candidate.payload
    wheel = universe.build_candidate(build)
    if wheel is not None:
        who = _who(wheel.payload, build)
        if not universe.allows(wheel.payload):
            texts = ", ".join(text for text, _ in universe.constraints[build.package])
            yield Need("index", lambda _: False, f"a constraint that allows it, and there is {texts}", who)
        yield from file_needs(universe, wheel.payload, who)
        if build.cuda is not None:
            yield from _machine_needs(universe, build, who)
    text = f"{build.package}=={build.wheel_version}"
    yield Need(name_of(build.package), lambda other: other is wheel, text, f"{text} is that build")


def build_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What the wheel of a framework's build needs of the machine, of CUDA and cuDNN, and of other packages."""
    release: Release = candidate.payload
    build = release.build
    assert build is not None
    who = _who(release, build)
    yield from file_needs(universe, release, who)
    if build.cuda is not None:
        yield from _cuda_needs(universe, build, who)
    apart = _separate(universe, build)
    asked = universe.added_extras(build.framework)
    extras = asked if build.cuda is None and build.extra != CPU else (*extras_of(build), *asked)
    universe.shelf.expect(release, extras)
    for requirement, of in universe.shelf.requirements(release, extras):
        name = canonicalize_name(requirement.name)
        brought = universe.book.component(name) is not None
        if of not in asked and apart and ((brought and (of is not None or build.delivery == "wheel")) or name.startswith("tensorrt")):
            continue
        yield requirement_need(universe, requirement, by=release, extra=of, who=who)
    yield from direct_needs(universe, release)


def _who(release: Release, build: Build) -> str:
    return f"{build.package} {release.text}" + (f" ({build.variant})" if "+" not in release.text else "")


def _separate(universe: Universe, build: Build) -> bool:
    """True where the build's own code stands alone and only its CUDA libraries come by an extra or by hand.

    Then other channels may take their place. An extra that brings code, too (JAX's plugins), is no such extra. TensorRT is
    an optional accelerator and not needed.
    """
    if build.delivery == "wheel" and runtime.lives_on_system(universe, build):
        return True
    if build.delivery != "wheel" or build.extra is None:
        return build.delivery == "system"
    if not extras_of(build):
        return False
    wheel = universe.build_candidate(build)
    if wheel is None:
        return False
    for requirement, extra in universe.shelf.requirements(wheel.payload, extras_of(build)):
        name = canonicalize_name(requirement.name)
        if extra is not None and universe.book.component(name) is None and not name.startswith("tensorrt"):
            return False
    return True


def _cuda_needs(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    assert build.cuda is not None
    book, machine = universe.book, universe.machine
    yield from _machine_needs(universe, build, who)
    if build.delivery == "bundled":
        yield from rule.library_needs(book, machine, build.cuda, who)
        yield runtime.cuda_limit(build.cuda, (), who)
        yield from _bundled_cudnn(universe, build, who)
    elif _separate(universe, build):
        yield _libraries_need(universe, build, who)
    else:
        yield _runtime_need(universe, build, who, ("pip",))
        yield from _cudnn_need(universe, build, who, ("pip",))
        yield from _loaded_needs(universe, build, who)


def _libraries_need(universe: Universe, build: Build, who: str) -> Need:
    """The need for a channel of the CUDA libraries: pip where the user asks for the extra that brings them as wheels."""
    extras = _asked_extras(universe, build) & set(extras_of(build))
    text = f"CUDA libraries for {who}" + (f" as pip wheels (extra {', '.join(sorted(extras))})" if extras else "")

    def test(other: Candidate) -> bool:
        return other.payload is build and (not extras or build.delivery != "wheel" or other.channel == "pip")

    return Need(f"libraries:{build.framework}", test, text, who, payload=build)


def _machine_needs(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """What a GPU build needs of driver and GPUs whatever else is chosen, and of the majors that all frameworks share."""
    assert build.cuda is not None
    book, machine = universe.book, universe.machine
    if build.driver is not None and universe.request.driver_policy == "strict":
        yield rule.at_least(build.driver, f"{who}: its documentation asks for it")
    yield from rule.card_driver_needs(book, machine)
    yield from rule.code_needs(book, machine, build, who)
    if not runtime.is_installed(universe, build):
        yield from beside_needs(universe, build, who)
    if build.delivery == "bundled":
        need = rule.driver_need(book, build.cuda, universe.request.driver_policy, who)
        if need is not None:
            yield need
    else:
        yield from _early_needs(universe, build, who)


def _early_needs(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """What any CUDA runtime that serves the build will need, said before one is chosen, so that a hopeless build is dropped at once.

    Frameworks share one CUDA major and one cuDNN major; only an installed one may live on libraries of its own.
    """
    assert build.cuda is not None
    need = rule.driver_need(universe.book, build.cuda, universe.request.driver_policy, who)
    if need is not None:
        yield need
    yield from rule.library_needs(universe.book, universe.machine, build.cuda, who, last_only=True)
    yield from runtime.early_limits(universe, build, who)
    if runtime.is_installed(universe, build):
        return
    yield _shared_major("CUDA", build.cuda.major, f"{who} is built with CUDA {build.cuda}")
    if build.cudnn is not None:
        yield _shared_major("cuDNN", build.cudnn.major, f"{who} is built with cuDNN {build.cudnn}")
        yield _file_major(build.cudnn.major, build.cuda.major, who)


def _file_major(soname: int, cuda: int, who: str) -> Need:
    """The need that every libcudnn of one name in the process is for one CUDA: the first that is loaded serves all."""
    text = str(cuda)
    because = f"{who} loads libcudnn.so.{soname} for CUDA {cuda}, and a process keeps the first library of a name"
    return Need(
        f"slot:libcudnn.so.{soname}", lambda other: other.payload == text, f"libcudnn.so.{soname} for CUDA {cuda}", because, payload=text
    )


def _shared_major(library: str, major: int, because: str) -> Need:
    text = str(major)
    return Need(f"slot:{library} major", lambda other: other.payload == text, f"{library} {major}", because, payload=text)


def _bundled_cudnn(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """The needs of the cuDNN inside a wheel, which nobody can replace."""
    if build.cudnn is None or build.cuda is None:
        return
    yield runtime.cudnn_limit(build.cudnn, who)
    if not runtime.is_installed(universe, build):
        yield _file_major(build.cudnn.major, build.cuda.major, who)
    book = universe.book
    length = len(build.cudnn.parts)
    for row in book.cudnn_builds():
        if row.version.parts[:length] == build.cudnn.parts and row.cuda_major == build.cuda.major:
            yield from rule.cudnn_hardware(book, universe.machine, row)
            return


def _runtime_need(universe: Universe, build: Build, who: str, allowed: tuple[str, ...], name: str = "cuda") -> Need:
    """The need for a CUDA runtime that serves the build: its major, not older than it can do with, the same library names.

    An older minor of the same major is let pass only for what is installed and lives on it already.
    """
    built = build.cuda
    assert built is not None
    floor = runtime.oldest_line(universe, build)
    libraries = [name for name in (build.loads or rule.LIBRARIES) if name in rule.LIBRARIES]
    lenient = runtime.is_installed(universe, build)
    answers: dict[str, bool] = {}

    def serves(cuda: CudaVersion, channel: str) -> bool:
        if cuda.major != built.major:
            return False
        if cuda < floor and not (lenient and channel == "system" and built.major >= 11):
            return False
        return rule.same_sonames(universe.book, built, cuda, libraries) is None

    def test(other: Candidate) -> bool:
        found: runtime.Runtime = other.payload
        if found.channel not in allowed:
            return False
        key = f"{found.channel} {found.line}"
        if key not in answers:
            answers[key] = serves(found.cuda, found.channel)
        return answers[key]

    lines = f">= {floor}, < {built.major + 1}" if built.major >= 11 else f"{built.line}"
    through = "" if len(allowed) > 1 else {"pip": " as pip wheels", "apt": " from apt", "system": " of the system"}[allowed[0]]
    return Need(name, test, f"CUDA {lines}{through}", f"{who} is built with CUDA {built}", payload=build)


def _cudnn_need(universe: Universe, build: Build, who: str, allowed: tuple[str, ...], name: str = "cudnn") -> Iterator[Need]:
    """The need for a cuDNN that serves the build: same major, minor at least as new, for the same CUDA major."""
    built = build.cudnn
    if built is None or build.cuda is None:
        return
    major = build.cuda.major
    text = f"cuDNN >= {built.major}.{built.minor}, < {built.major + 1} for CUDA {major}"
    because = f"{who} is built with cuDNN {built}; cuDNN must be of the same major and at least that minor"

    def test(other: Candidate) -> bool:
        row = other.payload
        return other.channel in allowed and row.cuda_major == major and row.version.serves(built)

    yield Need(name, test, text, because, payload=build)
    if allowed != ("pip",):
        return
    package = runtime.component_package(universe, "cudnn", major)
    if package is not None:

        def wheel(other: Candidate) -> bool:
            version = getattr(other.payload, "version", None)
            if version is None or other.kind == "unlisted":
                return False
            return version.major == built.major and version.minor >= built.minor and not bad_release(universe, package, other.payload)

        yield Need(name_of(package), wheel, f"{package} >= {built.major}.{built.minor}, < {built.major + 1}", because)


def _loaded_needs(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """The needs for the wheels of the libraries that a build loads, where its own requirements do not name them."""
    if build.cuda is None:
        return
    built = build.cuda
    for library in build.loads:
        package = runtime.component_package(universe, library, built.major)
        if package is None or library == "cudnn":
            continue

        def test(other: Candidate, package: str = package) -> bool:
            if other.kind == "unlisted" or bad_release(universe, package, other.payload):
                return False
            cuda = universe.book.cuda_of(package, other.payload.text)
            return cuda is None or cuda >= CudaVersion(built.line)

        yield Need(name_of(package), test, f"{package} of CUDA {built.line} or later", f"{who} loads {library}")


def library_candidates(universe: Universe, name: str, needs: Sequence[Need]) -> Iterator[Candidate]:
    """The channels for the CUDA libraries of the build that the needs are about, best first."""
    build: Build = needs[0].payload
    for channel in runtime.preferred(universe, build):
        candidate = Candidate(name=name, version=channel, kind="libraries", payload=build, channel=channel)
        yield universe.once((name, id(build), channel), candidate)


def library_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What a build needs where its CUDA libraries come through one channel."""
    build: Build = candidate.payload
    channel = candidate.channel or "pip"
    who = f"{build.package} {build.wheel_version}"
    allowed = ("system", "apt") if channel == "apt" else (channel,)
    apart = ":system" if channel != "pip" and _lives_apart(universe, build) else ""
    yield _runtime_need(universe, build, who, allowed, f"cuda{apart}")
    yield from _cudnn_need(universe, build, who, allowed, f"cudnn{apart}")
    if channel != "pip":
        return
    named: set[str] = set()
    wheel = universe.build_candidate(build)
    asked = _asked_extras(universe, build)
    if build.extra and wheel is not None:
        extras = extras_of(build)
        for requirement, extra in universe.shelf.requirements(wheel.payload, extras):
            package = canonicalize_name(requirement.name)
            if extra is None or universe.book.component(package) is None:
                continue
            named.add(package)
            yield requirement_need(universe, requirement, by=wheel.payload, extra=extra, who=who, binding=bool(asked & set(extras)))
    for need in _loaded_needs(universe, build, who):
        if need.name.removeprefix("pip:") not in named:
            yield need


def _lives_apart(universe: Universe, build: Build) -> bool:
    """True for a build that may have the system's libraries for itself: it is installed, or another one that is asked for is."""
    if runtime.is_installed(universe, build):
        return True
    return any(universe.holds(target.framework) for target in universe.request.targets if target.framework != build.framework)


def _asked_extras(universe: Universe, build: Build) -> set[str]:
    target = universe.target_of(build.framework)
    return set(target.extras) if target is not None else set()
