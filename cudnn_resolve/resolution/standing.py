"""Installed frameworks that nobody asked for: what they live on is a constraint.

Held are the libraries that such a framework loads, what the matrix knows to break it, and new majors of packages beyond what it declares.
Its other pins hold only where an answer is found that keeps them, too (`Request.careful`): some declare more than they need. A framework
that cannot load as it is holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.requirement.model import Need
from cudnn_resolve.resolution import runtime
from cudnn_resolve.resolution.package import abi_range, name_of
from cudnn_resolve.resolution.release import parse_requirement, parse_version
from cudnn_resolve.version import CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Candidate, Resolution
    from cudnn_resolve.resolution.universe import Universe


_COMPILED_AGAINST = frozenset({"numpy"})
"""Packages whose C interface frameworks are compiled against: what is declared of them is no caution."""


class Hold(Struct, frozen=True, kw_only=True):
    """What an installed framework needs of one package, whether that is installed or comes with a plan."""

    package: str
    test: Callable[[Version], bool]
    text: str
    """What it accepts, `nvidia-cudnn-cu12>=9.1,<10`."""
    because: str
    """`torch 2.6.0 is built with cuDNN 9.1`."""
    declared: SpecifierSet | None = None
    """What it declares, where it accepts more."""
    library: bool = False
    """True for a CUDA library that the framework loads."""
    met: bool = True
    """False for what the environment does not meet yet: a plan meets it where it can, and breaks nothing where it cannot."""


class Standing(Struct, frozen=True, kw_only=True):
    """An installed framework that nobody asked for."""

    framework: str
    package: str
    version: str
    build: Build | None
    """None for one that the matrix does not know."""
    libraries: str
    """Where its CUDA libraries are: `pip`, `system`, `bundled`, or `none`."""
    is_linked: bool
    """True where it cannot be imported without its CUDA libraries."""
    may_break: bool
    """True where the user accepts that it breaks."""
    holds: tuple[Hold, ...]
    requires: tuple[Requirement, ...]
    """What it declares of other packages."""

    @property
    def who(self) -> str:
        """`torch 2.6.0`."""
        return f"{self.package} {self.version}"

    @property
    def works(self) -> bool:
        """False where it cannot be imported as it is."""
        return self.libraries != "none" or not self.is_linked

    @property
    def names(self) -> frozenset[str]:
        """The packages that it consists of and holds."""
        return frozenset({self.package, *(hold.package for hold in self.holds)})


def standing_frameworks(universe: Universe) -> tuple[Standing, ...]:
    """The installed frameworks that the request does not name, neither by a target nor by a package that is built for them."""
    installed = universe.machine.pip
    out = []
    for name in universe.book.frameworks() if installed else ():
        packages = universe.book.distributions(name)
        if not any(one in installed for one in packages):
            continue
        companions = universe.book.head(f"framework/{name}").get("companions", ())
        if _is_asked(universe.request, name, {*packages, *map(canonicalize_name, companions)}):
            continue
        out += [_standing(universe, name, package) for package in packages if package in installed]
    return tuple(out)


def _is_asked(request: Request, framework: str, packages: set[str]) -> bool:
    if any(target.framework == framework for target in request.targets):
        return True
    lines = (parse_requirement(extra.text) for extra in request.extras if not extra.constraint)
    return any(line is not None and canonicalize_name(line.name) in packages for line in lines)


def _standing(universe: Universe, framework: str, package: str) -> Standing:
    version = universe.machine.pip[package]
    build = _installed_build(universe, framework, package, version)
    libraries = _libraries(universe, build) if build is not None else "none"
    is_linked = build is not None and build.cuda is not None and build.delivery == "wheel" and build.extra is None
    who = f"{package} {version}"
    requires = tuple(_requires(universe, package, version))
    found = Standing(
        framework=framework,
        package=package,
        version=version,
        build=build,
        libraries=libraries,
        is_linked=is_linked,
        may_break=framework in universe.request.allow_break,
        holds=(),
        requires=requires,
    )
    if not found.works:
        return found
    holds = [*_cudnn_hold(universe, build, libraries, who), *_bound_holds(universe, framework, package, version)]
    holds += [hold for one in requires if (hold := _requirement_hold(universe, one, who)) is not None]
    return replace(found, holds=tuple(holds))


def _installed_build(universe: Universe, framework: str, package: str, version: str) -> Build | None:
    """The CUDA build of an installed framework, None where it is none.

    By its variant where the version tells it, else the one whose own code and libraries are there.
    """
    own = universe.shelf.vendor(package)
    parsed = parse_version(version)
    if own is not None or parsed is None or (parsed.local or "").startswith(_OTHER_DEVICES):
        return own
    builds = [
        one
        for one in universe.book.framework(framework).builds
        if one.package == package
        and one.version in (parsed.public, parsed.base_version)
        and one.cuda is not None
        and (not one.arch or universe.machine.arch in one.arch)
        and _has_code(universe, one)
    ]
    exact = [one for one in builds if one.wheel_version == version or one.variant == parsed.local]
    served = [one for one in exact or builds if _libraries(universe, one) != "none"]
    return next(iter(served or exact or builds), None)


_OTHER_DEVICES = ("cpu", "rocm", "xpu")
"""How local parts of versions begin that are built for something else than CUDA."""


def _has_code(universe: Universe, build: Build) -> bool:
    """False for a build whose GPU code comes by an extra (JAX's plugins, jaxlib's variants) that is not installed."""
    extras = runtime.extras_of(build)
    wheel = universe.build_candidate(build) if extras else None
    if wheel is None:
        return True
    for requirement, extra in universe.shelf.requirements(wheel.payload, extras):
        name = canonicalize_name(requirement.name)
        brought = extra is not None and universe.book.component(name) is None and not name.startswith("tensorrt")
        if brought and not _is_met(universe, requirement):
            return False
    return True


def _libraries(universe: Universe, build: Build) -> str:
    """Where an installed build finds its CUDA libraries now."""
    if build.delivery == "bundled":
        return "bundled"
    if runtime.wheels_serve(universe, build):
        return "pip"
    return "system" if runtime.system_serves(universe, build) else "none"


def _requires(universe: Universe, package: str, version: str) -> Iterator[Requirement]:
    """What an installed package declares of others: as read on the machine, else as the matrix knows it."""
    shelf = universe.shelf
    lines = universe.machine.requires.get(package)
    if lines is None:
        releases = (one for one in shelf.releases(package) if version in (one.text, str(one.version)))
        found = next(releases, None)
        lines = shelf.requires(found) if found is not None and found.requires is not None else ()
    for line in lines:
        requirement = parse_requirement(line)
        if requirement is not None and str(requirement.specifier) and shelf.applies(line):
            yield requirement


def _cudnn_hold(universe: Universe, build: Build | None, libraries: str, who: str) -> Iterator[Hold]:
    if build is None or build.cudnn is None or build.cuda is None or libraries != "pip":
        return
    package = runtime.component_package(universe, "cudnn", build.cuda.major)
    built = build.cudnn
    if package is None:
        return

    def test(version: Version) -> bool:
        try:
            return CudnnVersion(str(version)).serves(built)
        except ValueError:
            return False

    because = f"{who} is built with cuDNN {built.major}.{built.minor}"
    text = f"{package}>={built.major}.{built.minor},<{built.major + 1}"
    yield Hold(package=package, test=test, text=text, because=because, library=True)


def _bound_holds(universe: Universe, framework: str, package: str, version: str) -> Iterator[Hold]:
    """What the matrix knows to break this version of a framework, of packages that are in bounds now or not there yet."""
    parsed = parse_version(version)
    if parsed is None:
        return
    for bound in universe.book.bounds(framework):
        if bound.package not in (None, package):
            continue
        if bound.versions and not SpecifierSet(bound.versions).contains(parsed.base_version, prereleases=True):
            continue
        requirement = parse_requirement(bound.requirement)
        if requirement is None:
            continue
        name = canonicalize_name(requirement.name)
        met = _is_met(universe, requirement)
        if met or name not in universe.machine.pip:
            because = f"{package} {version}: {bound.reason}"
            yield Hold(package=name, test=_within(requirement.specifier), text=bound.requirement, because=because, met=met)


def _requirement_hold(universe: Universe, requirement: Requirement, who: str) -> Hold | None:
    """What a declared requirement holds; nothing where the environment breaks it already and the framework works all the same."""
    name = canonicalize_name(requirement.name)
    because = f"{who} requires {requirement.name}{requirement.specifier}"
    spec = requirement.specifier
    component = universe.book.component(name)
    here = parse_version(universe.machine.pip.get(name, ""))
    if component is not None and not universe.request.strict_pins:
        lowest, test = abi_range(component, spec)
        if here is None:
            test = _or_other_major(spec, test)
        elif not test(here):
            return None
        return Hold(package=name, test=test, text=f"{name}{lowest}", because=because, declared=spec, library=True, met=here is not None)
    met = _is_met(universe, requirement)
    strict = component is not None or name in _COMPILED_AGAINST or universe.request.careful
    if strict and (met or here is None or (universe.request.careful and _is_too_old(spec, here))):
        return Hold(package=name, test=_within(spec), text=f"{name}{spec}", because=because, library=component is not None, met=met)
    if strict or not met or here is None:
        return None
    major = here.major

    def no_new_major(version: Version) -> bool:
        return version.major <= major or spec.contains(version, prereleases=True)

    return Hold(package=name, test=no_new_major, text=f"{name} without a new major", because=because, declared=spec)


def _or_other_major(spec: SpecifierSet, test: Callable[[Version], bool]) -> Callable[[Version], bool]:
    """The test of a library wheel that is not there: one of another major has files of other names, which the framework does not load."""
    majors = {version.major for one in spec if (version := parse_version(one.version.removesuffix(".*"))) is not None}
    return lambda version: version.major not in majors or test(version)


def _is_too_old(spec: SpecifierSet, version: Version) -> bool:
    """True for a version below the oldest that a specifier admits."""
    floors = (parse_version(one.version) for one in spec if one.operator in (">=", ">", "~="))
    return any(floor is not None and version < floor for floor in floors)


def _is_met(universe: Universe, requirement: Requirement) -> bool:
    here = parse_version(universe.machine.pip.get(canonicalize_name(requirement.name), ""))
    return here is not None and requirement.specifier.contains(here, prereleases=True)


def _within(spec: SpecifierSet) -> Callable[[Version], bool]:
    return lambda version: spec.contains(version, prereleases=True)


def hold_needs(universe: Universe) -> dict[str, tuple[Need, ...]]:
    """What installed frameworks need of each package of the universe, for whoever asks for that package."""
    out: dict[str, list[Need]] = {}
    for one in universe.standing:
        who = f"{one.who} (installed)"
        for hold in one.holds:
            out.setdefault(name_of(hold.package), []).append(_hold_need(hold, who))
            slot = universe.book.slot(hold.package)
            if hold.library and hold.met and slot is not None and universe.book.owners(slot) > 1:
                lives = f"{one.who} lives on {hold.package} {universe.machine.pip[hold.package]}"
                out.setdefault(f"slot:{slot}", []).append(_slot_need(slot, hold.package, lives, who))
    return {name: tuple(needs) for name, needs in out.items()}


def _hold_need(hold: Hold, who: str) -> Need:
    def test(other: Candidate) -> bool:
        return other.kind == "unlisted" or hold.test(other.payload.version)

    return Need(name_of(hold.package), test, hold.text, hold.because, declared=hold.declared, requested_by=who)


def _slot_need(slot: str, owner: str, because: str, who: str) -> Need:
    text = f"the files of {owner} to stay"
    return Need(f"slot:{slot}", lambda other: other.payload == owner, text, because, requested_by=who, payload=owner)


def broken_by(one: Standing, versions: Mapping[str, str]) -> str | None:
    """Why a framework no longer works once these versions are installed, None where nothing that it lives on goes."""
    for hold in one.holds:
        if not hold.met:
            continue
        version = parse_version(versions.get(hold.package, ""))
        if version is None:
            return f"{hold.because}; {hold.package} is removed"
        if not hold.test(version):
            return f"{hold.because}; {hold.package} becomes {version}"
    return None


def versions_after(book: Book, found: Resolution) -> dict[str, str]:
    """Version of every package once a resolution is carried out; what must make room for another owner of its files is gone."""
    pinned = {pin.name: pin.version for pin in found.pip if pin.version is not None}
    owned = {slot for name in pinned if (slot := book.slot(name)) is not None}
    kept = {name: version for name, version in found.machine.pip.items() if book.slot(name) not in owned}
    return {**kept, **pinned}


def is_apart(one: Standing, builds: Iterable[Build]) -> bool:
    """True for an installed framework that lives on another CUDA major than one of these builds."""
    own = one.build.cuda if one.build is not None and one.libraries != "none" else None
    return own is not None and any(build.cuda is not None and build.cuda.major != own.major for build in builds)


def beside_needs(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """The needs of a new build that installed frameworks are of its CUDA major, as frameworks are that are asked for together."""
    for one in universe.standing:
        if one.build is None or not is_apart(one, (build,)):
            continue
        because = (
            f"{who} is built with CUDA {build.cuda}, {one.who} with CUDA {one.build.cuda}; frameworks of one environment share one major"
        )
        yield Need(f"installed:{one.framework}", lambda _: False, f"the installed {one.who} to go", because)


def apt_needs(universe: Universe, row: CudnnBuild) -> Iterator[Need]:
    """The needs of a cuDNN from apt, which replaces the one of its major: that no installed framework lives on that."""
    for one in universe.standing:
        built = one.build.cudnn if one.build is not None and one.libraries == "system" else None
        if built is None or row.version.major != built.major:
            continue
        cuda = one.build.cuda if one.build is not None else None
        if not row.version.serves(built) or (cuda is not None and cuda.major != row.cuda_major):
            because = f"{one.who} is built with cuDNN {built} and lives on the system's"
            yield Need(f"installed:{one.framework}", lambda _: False, f"the installed {one.who} to go", because)
