"""Installed frameworks that nobody asked for: what they live on is a constraint.

It holds the libraries that it loads, the bounds that the matrix knows, and the major versions of the packages that it declares. Its other
pins hold only in a request with `strict_installed`, because some frameworks declare more than they need. A framework that cannot load holds
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.resolution.candidate import Candidate, Kind, Need, PipCandidate, slot_need
from cudnn_resolve.resolution.channel import component_package, folder_serves, system_serves, wheels_serve
from cudnn_resolve.resolution.key import InstalledKey, Key, SlotKey, pip_key
from cudnn_resolve.resolution.pin_override import abi_range, contains
from cudnn_resolve.resolution.release import parse_requirement, parse_version
from cudnn_resolve.version import CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Bound, Build, CudnnBuild
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.context import Context


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


class UnrequestedFramework(Struct, frozen=True, kw_only=True):
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


def installed_name(one: UnrequestedFramework) -> str:
    """How a need names an installed framework that has it: `torch 2.6.0 (installed)`."""
    return f"{one.who} (installed)"


class InstalledFrameworks(Kind[InstalledKey, Candidate]):
    """The installed frameworks that the request does not name, neither by a target nor by a package that is built for them."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def make(self, key: InstalledKey) -> Iterator[Candidate]:
        """The one candidate: that it stays."""
        yield Candidate(key=key, version="installed")

    @cached_property
    def unrequested(self) -> tuple[UnrequestedFramework, ...]:
        """All of them."""
        context, installed = self._context, self._context.machine.pip
        out = []
        for name in context.book.frameworks() if installed else ():
            packages = context.book.distributions(name)
            if not any(one in installed for one in packages):
                continue
            companions = context.book.head(name).companions
            if _is_asked(context.request, name, {*packages, *map(canonicalize_name, companions)}):
                continue
            out += [_unasked(context, name, package) for package in packages if package in installed]
        return tuple(out)

    @cached_property
    def protected(self) -> tuple[UnrequestedFramework, ...]:
        """Those that must go on working."""
        return tuple(one for one in self.unrequested if one.works and not one.may_break)

    @cached_property
    def held(self) -> Mapping[Key, Sequence[Need]]:
        """What they need of each package of the universe, for whoever asks for that package."""
        out: dict[Key, list[Need]] = {}
        for one in self.protected:
            who = installed_name(one)
            for hold in one.holds:
                key = pip_key(hold.package)
                out.setdefault(key, []).append(_hold_need(key, hold, who))
                slot = self._context.shared_slot(hold.package) if hold.library and hold.met else None
                if slot is not None:
                    lives = f"{one.who} lives on {hold.package} {self._context.machine.pip[hold.package]}"
                    need = slot_need(SlotKey(slot), hold.package, f"the files of {hold.package} to stay", lives, requested_by=who)
                    out.setdefault(need.key, []).append(need)
        return out

    def beside_needs(self, build: Build, who: str) -> Iterator[Need]:
        """The needs of a new build that installed frameworks are of its CUDA major, as frameworks are that are asked for together."""
        for one in self.protected:
            if one.build is not None and is_apart(one, (build,)):
                yield _leaving(
                    one,
                    f"{who} is built with CUDA {build.cuda}, {one.who} with CUDA {one.build.cuda}; "
                    "frameworks of one environment share one major",
                )

    def apt_needs(self, row: CudnnBuild) -> Iterator[Need]:
        """The needs of a cuDNN from apt, which replaces the one of its major: that no installed framework lives on that."""
        for one in self.protected:
            built = one.build.cudnn if one.build is not None and one.libraries == "system" else None
            if built is None or row.version.major != built.major:
                continue
            cuda = one.build.cuda if one.build is not None else None
            if not row.version.serves(built) or (cuda is not None and cuda.major != row.cuda_major):
                yield _leaving(one, f"{one.who} is built with cuDNN {built} and lives on the system's")


def _leaving(one: UnrequestedFramework, because: str) -> Need:
    """The need that an installed framework goes, which it does not."""
    return Need(InstalledKey(one.framework), lambda _: False, f"the installed {one.who} to go", because)


def _hold_need(key: Key, hold: Hold, who: str) -> Need:
    def test(other: PipCandidate) -> bool:
        return other.release is None or hold.test(other.release.version)

    return Need(key, test, hold.text, hold.because, declared=hold.declared, requested_by=who)


def _is_asked(request: Request, framework: str, packages: set[str]) -> bool:
    if any(target.framework == framework for target in request.targets):
        return True
    lines = (parse_requirement(extra.text) for extra in request.requirements if not extra.constraint)
    return any(line is not None and canonicalize_name(line.name) in packages for line in lines)


def _unasked(context: Context, framework: str, package: str) -> UnrequestedFramework:
    version = context.machine.pip[package]
    build = installed_build(context, framework, package, version)
    libraries = _libraries(context, build) if build is not None else "none"
    is_linked = build is not None and build.cuda is not None and build.delivery == "wheel" and build.extra is None
    who = f"{package} {version}"
    requires = tuple(_requires(context, package, version))
    found = UnrequestedFramework(
        framework=framework,
        package=package,
        version=version,
        build=build,
        libraries=libraries,
        is_linked=is_linked,
        may_break=framework in context.request.allow_break,
        holds=(),
        requires=requires,
    )
    if not found.works:
        return found
    holds = [*_cudnn_hold(context, build, libraries, who), *_bound_holds(context, framework, package)]
    holds += [hold for one in requires if (hold := _requirement_hold(context, one, who)) is not None]
    return replace(found, holds=tuple(holds))


def installed_build(context: Context, framework: str, package: str, version: str) -> Build | None:
    """The CUDA build of an installed framework, None where it is none.

    By its variant where the version tells it, else the one whose own code and libraries are there.
    """
    own = context.releases.vendor(package)
    parsed = parse_version(version)
    if own is not None or parsed is None or (parsed.local or "").startswith(OTHER_DEVICES):
        return own
    names = (parsed.public, parsed.base_version)
    builds = [
        one
        for one in context.book.framework(framework).builds
        if one.package == package
        and one.version in names
        and one.cuda is not None
        and (not one.arch or context.machine.arch in one.arch)
        and _has_code(context, one)
    ]
    exact = [one for one in builds if one.wheel_version == version or one.variant == parsed.local]
    served = [one for one in exact or builds if _libraries(context, one) != "none"]
    return next(iter(served or exact or builds), None)


def is_frozen(context: Context) -> bool:
    """True for packages among which are the CUDA libraries of their frameworks and what these require besides, as `pip freeze` has them.

    A list that pins a cuDNN beside a framework leaves the rest to the installer.
    """
    book, packages = context.book, context.machine.pip
    if not any(book.component(name) for name in packages):
        return False
    for name, version in packages.items():
        framework = book.framework_of(name)
        build = installed_build(context, framework, name, version) if framework is not None else None
        needed = (canonicalize_name(one.name) for one, extra in context.requirements_of(build) if extra is None) if build else ()
        plain = {one for one in needed if book.component(one) is None}
        if plain and not plain & packages.keys():
            return False
    return True


OTHER_DEVICES = ("cpu", "rocm", "xpu")
"""How local parts of versions begin that are built for something else than CUDA."""


def _has_code(context: Context, build: Build) -> bool:
    """False for a build whose GPU code comes by an extra (JAX's plugins, jaxlib's variants) that is not installed."""
    return all(_is_met(context, requirement) for requirement in context.plugins_of(build))


def _libraries(context: Context, build: Build) -> str:
    """Where an installed build finds its CUDA libraries now."""
    if build.delivery == "bundled":
        return "bundled"
    if wheels_serve(context, build):
        return "pip"
    return "system" if system_serves(context, build) else "none"


def _requires(context: Context, package: str, version: str) -> Iterator[Requirement]:
    """What an installed package declares of others: as read on the machine, else as the matrix knows it."""
    lines = context.machine.requires.get(package)
    if lines is None:
        releases = (one for one in context.releases.of(package) if version == one.text or version == str(one.version))
        found = next(releases, None)
        lines = context.metadata.requires(found) if found is not None and found.requires is not None else ()
    for line in lines:
        requirement = parse_requirement(line)
        if requirement is not None and str(requirement.specifier) and context.metadata.applies(line):
            yield requirement


def _cudnn_hold(context: Context, build: Build | None, libraries: str, who: str) -> Iterator[Hold]:
    if build is None or build.cudnn is None or build.cuda is None or libraries != "pip" or folder_serves(context, build):
        return
    package = component_package(context.book, "cudnn", build.cuda.major)
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


def _bound_holds(context: Context, framework: str, package: str) -> Iterator[Hold]:
    """What the matrix knows to break this version of a framework, of packages that are in bounds now or not there yet."""
    for who, bound, requirement in bounds_of_installed(context.book, framework, package, context.machine.pip):
        name = canonicalize_name(requirement.name)
        met = _is_met(context, requirement)
        if met or name not in context.machine.pip:
            because = f"{who}: {bound.reason}"
            yield Hold(package=name, test=contains(requirement.specifier), text=bound.requirement, because=because, met=met)


def bounds_of_installed(book: Book, framework: str, package: str, versions: Mapping[str, str]) -> Iterator[tuple[str, Bound, Requirement]]:
    """The bounds that a framework has in an environment, each with who has it: `torch 2.6.0`, or the package beside it that is there."""
    for bound in book.bounds(framework):
        owner = bound.package or package
        version, requirement = parse_version(versions.get(owner, "")), parse_requirement(bound.requirement)
        if version is None or requirement is None:
            continue
        if SpecifierSet(bound.versions).contains(version.base_version, prereleases=True):
            yield f"{owner} {versions[owner]}", bound, requirement


def _requirement_hold(context: Context, requirement: Requirement, who: str) -> Hold | None:
    """What a declared requirement holds; nothing where the environment breaks it already and the framework works all the same."""
    name = canonicalize_name(requirement.name)
    because = f"{who} requires {requirement.name}{requirement.specifier}"
    spec = requirement.specifier
    component = context.book.component(name)
    here = parse_version(context.machine.pip.get(name, ""))
    if component is not None and not context.request.strict_pins:
        lowest, test = abi_range(component, spec)
        if here is None:
            test = _or_other_major(spec, test)
        elif not test(here):
            return None
        return Hold(package=name, test=test, text=f"{name}{lowest}", because=because, declared=spec, library=True, met=here is not None)
    met = _is_met(context, requirement)
    strict = component is not None or name in _COMPILED_AGAINST or context.request.strict_installed
    if strict and (met or here is None or (context.request.strict_installed and _is_too_old(spec, here))):
        return Hold(package=name, test=contains(spec), text=f"{name}{spec}", because=because, library=component is not None, met=met)
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


def _is_met(context: Context, requirement: Requirement) -> bool:
    here = parse_version(context.machine.pip.get(canonicalize_name(requirement.name), ""))
    return here is not None and requirement.specifier.contains(here, prereleases=True)


def broken_by(one: UnrequestedFramework, versions: Mapping[str, str]) -> str | None:
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


def is_apart(one: UnrequestedFramework, builds: Iterable[Build]) -> bool:
    """True for an installed framework that lives on another CUDA major than one of these builds."""
    own = one.build.cuda if one.build is not None and one.libraries != "none" else None
    return own is not None and any(build.cuda is not None and build.cuda.major != own.major for build in builds)
