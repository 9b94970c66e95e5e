"""Unrequested installed frameworks, which constrain a resolution so that they go on working.

Such a framework holds the libraries that it loads, the bounds that the matrix knows, and the major versions of the packages that it
declares. Its other pins hold only in a request with `strict_installed`, because some frameworks declare more than they need. A framework
that cannot load holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.matrix.row import Build, CudnnBuild
from cudnn_resolve.resolution.candidate import Candidate, Kind, Need, PipCandidate, impossible, slot_need
from cudnn_resolve.resolution.channel import component_package, folder_serves, serves_cudnn, system_serves, wheels_serve
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.framework_bounds import bounds_of_installed
from cudnn_resolve.resolution.key import InstalledKey, Key, SlotKey, pip_key
from cudnn_resolve.resolution.pin_override import abi_range, contains
from cudnn_resolve.resolution.release import parse_requirement, parse_version

COMPILED_AGAINST = frozenset({"numpy"})
"""Packages whose C interface frameworks are compiled against, so that the declared requirement is exact."""
OTHER_DEVICES = ("cpu", "rocm", "xpu")
"""Prefixes of local versions of builds without CUDA."""


class Hold(Struct, frozen=True, kw_only=True):
    """What an installed framework needs of a package, installed or planned."""

    package: str
    test: Callable[[Version], bool]
    text: str
    """What it accepts, `nvidia-cudnn-cu12>=9.1,<10`."""
    because: str
    """`torch 2.6.0 is built with cuDNN 9.1`."""
    declared: SpecifierSet | None = None
    """What it declares, if it accepts more."""
    library: bool = False
    """True for a CUDA library that the framework loads."""
    met: bool = True
    """False if the environment does not meet it: a plan meets it if possible, and breaks nothing if not."""


class UnrequestedFramework(Struct, frozen=True, kw_only=True):
    """An installed framework that the request does not name."""

    framework: str
    package: str
    version: str
    build: Build | None
    """None if the matrix does not have it."""
    libraries: str
    """Where its CUDA libraries are: `pip`, `system`, `bundled`, or `none`."""
    is_linked: bool
    """True if its import fails without its CUDA libraries."""
    may_break: bool
    """True if the user accepts that it breaks."""
    holds: tuple[Hold, ...]
    requires: tuple[Requirement, ...]
    """Its declared requirements with a version."""

    @property
    def who(self) -> str:
        """`torch 2.6.0`."""
        return f"{self.package} {self.version}"

    @property
    def owner(self) -> str:
        """Display name in needs: `torch 2.6.0 (installed)`."""
        return f"{self.who} (installed)"

    @property
    def works(self) -> bool:
        """False if its import fails now."""
        return self.libraries != "none" or not self.is_linked

    @property
    def is_protected(self) -> bool:
        """True if it must go on working."""
        return self.works and not self.may_break

    @property
    def names(self) -> frozenset[str]:
        """Its package and the packages that it holds."""
        return frozenset({self.package, *(hold.package for hold in self.holds)})

    def broken_by(self, versions: Mapping[str, str]) -> str | None:
        """Why it no longer works with these versions; None if it does."""
        for hold in self.holds:
            if not hold.met:
                continue
            version = parse_version(versions.get(hold.package, ""))
            if version is None:
                return f"{hold.because}; {hold.package} is removed"
            if not hold.test(version):
                return f"{hold.because}; {hold.package} becomes {version}"
        return None

    def breakage(self, versions: Mapping[str, str]) -> str | None:
        """Message that it no longer works with these versions; None if it does."""
        because = self.broken_by(versions)
        effect = "will no longer import" if self.is_linked else "will no longer work as before"
        return because and f"{self.who} {effect}: {because}"


class InstalledFrameworks(Kind[InstalledKey, Candidate]):
    """Installed frameworks that the request names neither by a target nor by a companion."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def make(self, key: InstalledKey) -> Iterator[Candidate]:
        """The only candidate: it stays."""
        yield Candidate(key=key, version="installed")

    @cached_property
    def unrequested(self) -> tuple[UnrequestedFramework, ...]:
        """All unrequested installed frameworks."""
        context, installed = self._context, self._context.machine.pip
        found: list[UnrequestedFramework] = []
        for name in context.book.frameworks() if installed else ():
            packages = [package for package in context.book.distributions(name) if package in installed]
            if packages and not self._is_requested(name):
                found += [_describe(context, name, package) for package in packages]
        return tuple(found)

    def _is_requested(self, framework: str) -> bool:
        """True if the request names the framework, one of its distributions or a companion."""
        book, request = self._context.book, self._context.request
        if any(target.framework == framework for target in request.targets):
            return True
        names = {*book.distributions(framework), *map(canonicalize_name, book.head(framework).companions)}
        return any(line.name in names for line in request.requirements if not line.constraint)

    @cached_property
    def protected(self) -> tuple[UnrequestedFramework, ...]:
        """Unrequested frameworks that must go on working."""
        return tuple(framework for framework in self.unrequested if framework.is_protected)

    @cached_property
    def held(self) -> Mapping[Key, Sequence[Need]]:
        """Needs of the protected frameworks, by package; they apply once something else needs the package."""
        found: dict[Key, list[Need]] = {}
        for framework in self.protected:
            for hold in framework.holds:
                key = pip_key(hold.package)
                found.setdefault(key, []).append(_hold_need(key, hold, framework.owner))
                slot = self._context.shared_slot(hold.package) if hold.library and hold.met else None
                if slot is not None:
                    because = f"{framework.who} uses {hold.package} {self._context.machine.pip[hold.package]}"
                    text = f"the files of {hold.package} to remain"
                    need = slot_need(SlotKey(slot), hold.package, text, because, requested_by=framework.owner)
                    found.setdefault(need.key, []).append(need)
        return found

    def beside_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs of a new build that installed frameworks have its CUDA major, like frameworks that are requested together."""
        for framework in self.protected:
            if framework.build is not None and has_other_cuda(framework, (build,)):
                yield _removal_need(
                    framework,
                    f"{who} is built with CUDA {build.cuda}, {framework.who} with CUDA {framework.build.cuda}; "
                    "frameworks of one environment share one major",
                )

    def apt_needs(self, row: CudnnBuild) -> Iterator[Need]:
        """Needs of a cuDNN from apt, which replaces the system's of its major: no installed framework depends on the latter."""
        for framework in self.protected:
            built = framework.build.cudnn if framework.build is not None and framework.libraries == "system" else None
            if built is None or row.version.major != built.major:
                continue
            cuda = framework.build.cuda if framework.build is not None else None
            if not row.version.serves(built) or (cuda is not None and cuda.major != row.cuda_major):
                yield _removal_need(framework, f"{framework.who} is built with cuDNN {built} and uses the system's")


def _removal_need(framework: UnrequestedFramework, because: str) -> Need:
    """Need that an installed framework is removed, which never happens."""
    return impossible(InstalledKey(framework.framework), f"the installed {framework.who} to be removed", because)


def _hold_need(key: Key, hold: Hold, owner: str) -> Need:
    def test(candidate: PipCandidate) -> bool:
        return candidate.release is None or hold.test(candidate.release.version)

    return Need(key, test, hold.text, hold.because, declared=hold.declared, requested_by=owner)


def _describe(context: Context, name: str, package: str) -> UnrequestedFramework:
    version = context.machine.pip[package]
    build = installed_build(context, package, version)
    framework = UnrequestedFramework(
        framework=name,
        package=package,
        version=version,
        build=build,
        libraries=_library_channel(context, build) if build is not None else "none",
        is_linked=build is not None and build.cuda is not None and build.delivery == "wheel" and build.extra is None,
        may_break=name in context.request.allow_break,
        holds=(),
        requires=tuple(_requires(context, package)),
    )
    return replace(framework, holds=tuple(_holds(context, framework))) if framework.works else framework


def _holds(context: Context, framework: UnrequestedFramework) -> Iterator[Hold]:
    if framework.build is not None and framework.libraries == "pip":
        yield from _cudnn_hold(context, framework.build, framework.who)
    yield from _bound_holds(context, framework.framework, framework.package)
    for requirement in framework.requires:
        hold = _requirement_hold(context, requirement, framework.who)
        if hold is not None:
            yield hold


def installed_build(context: Context, package: str, version: str) -> Build | None:
    """The CUDA build of an installed framework; None if it has none.

    Identified by its variant if the version names it, otherwise as the one whose code and libraries are installed.
    """
    vendor = context.releases.vendor(package)
    parsed = parse_version(version)
    if vendor is not None or parsed is None or (parsed.local or "").startswith(OTHER_DEVICES):
        return vendor
    names = (parsed.public, parsed.base_version)
    builds = [
        build
        for build in context.book.builds_of(package)
        if build.version in names
        and build.cuda is not None
        and (not build.arch or context.machine.arch in build.arch)
        and all(_is_met(context, requirement) for requirement in context.plugins_of(build))  # its GPU code may come from an extra
        and _pins_local(context, build, exact=False)
    ]
    builds = [build for build in builds if _pins_local(context, build, exact=True)] or builds
    exact = [build for build in builds if build.wheel_version == version or build.variant == parsed.local]
    with_libraries = [build for build in exact or builds if _library_channel(context, build) != "none"]
    return next(iter(with_libraries or exact or builds), None)


def _pins_local(context: Context, build: Build, *, exact: bool) -> bool:
    """False if a build pins a local version, as jax pins the CUDA of its jaxlib, and none is installed, or not that one."""
    for requirement, _ in context.requirements_of(build):
        installed = context.machine.pip.get(canonicalize_name(requirement.name))
        for part in requirement.specifier if installed is not None else ():
            if "+" in part.version and (installed != part.version if exact else "+" not in str(installed)):
                return False
    return True


def is_frozen(context: Context) -> bool:
    """True for a complete set of packages, such as `pip freeze` prints: with CUDA libraries and the other requirements of its frameworks.

    A list that only pins a cuDNN next to a framework leaves the rest to the installer.
    """
    book, packages = context.book, context.machine.pip
    if not any(book.component(name) for name in packages):
        return False
    for name, version in packages.items():
        build = installed_build(context, name, version)
        requirements = context.requirements_of(build) if build is not None else ()
        required = (canonicalize_name(requirement.name) for requirement, extra in requirements if extra is None)
        others = {package for package in required if book.component(package) is None}
        if others and not others & packages.keys():
            return False
    return True


def _library_channel(context: Context, build: Build) -> str:
    """Where an installed build finds its CUDA libraries: `bundled`, `pip`, `system` or `none`."""
    if build.delivery == "bundled":
        return "bundled"
    if wheels_serve(context, build):
        return "pip"
    return "system" if system_serves(context, build) else "none"


def _requires(context: Context, package: str) -> Iterator[Requirement]:
    """Requirements with a version of an installed package: as read on the machine, otherwise from the matrix."""
    lines = context.machine.requires.get(package)
    if lines is None:
        release = context.releases.installed(package)
        lines = (release.details.requires or ()) if release is not None else ()
    for line in lines:
        requirement = parse_requirement(line)
        if requirement is not None and str(requirement.specifier) and context.metadata.applies(requirement):
            yield requirement


def _cudnn_hold(context: Context, build: Build, who: str) -> Iterator[Hold]:
    if build.cudnn is None or build.cuda is None or folder_serves(context, build):
        return
    package = component_package(context.book, "cudnn", build.cuda.major)
    built = build.cudnn
    if package is not None:
        because = f"{who} is built with cuDNN {built.major}.{built.minor}"
        text = f"{package}>={built.major}.{built.minor},<{built.major + 1}"
        yield Hold(package=package, test=lambda version: serves_cudnn(str(version), built), text=text, because=because, library=True)


def _bound_holds(context: Context, framework: str, package: str) -> Iterator[Hold]:
    """Bounds of the matrix on packages that meet them now or are not installed."""
    for who, bound in bounds_of_installed(context.book, framework, package, context.machine.pip):
        met = _is_met(context, bound.requirement)
        if met or bound.package not in context.machine.pip:
            test, text = contains(bound.requirement.specifier), bound.row.requirement
            yield Hold(package=bound.package, test=test, text=text, because=f"{who}: {bound.row.reason}", met=met)


def _requirement_hold(context: Context, requirement: Requirement, who: str) -> Hold | None:
    """What a declared requirement holds; None if the environment already violates it and the framework works nevertheless."""
    name = canonicalize_name(requirement.name)
    specifier = requirement.specifier
    because = f"{who} requires {requirement.name}{specifier}"
    component = context.book.component(name)
    installed = parse_version(context.machine.pip.get(name, ""))
    if component is not None and not context.request.strict_pins:
        range_text, test = abi_range(component, specifier)
        if installed is None:
            test = _or_other_major(specifier, test)
        elif not test(installed):
            return None
        text, met = f"{name}{range_text}", installed is not None
        return Hold(package=name, test=test, text=text, because=because, declared=specifier, library=True, met=met)
    met = _is_met(context, requirement)
    is_exact = component is not None or name in COMPILED_AGAINST or context.request.strict_installed
    if is_exact and (met or installed is None or (context.request.strict_installed and _is_too_old(specifier, installed))):
        text = f"{name}{specifier}"
        return Hold(package=name, test=contains(specifier), text=text, because=because, library=component is not None, met=met)
    if is_exact or not met or installed is None:
        return None
    major = installed.major

    def has_no_new_major(version: Version) -> bool:
        return version.major <= major or specifier.contains(version, prereleases=True)

    return Hold(package=name, test=has_no_new_major, text=f"no newer major of {name}", because=because, declared=specifier)


def _or_other_major(specifier: SpecifierSet, test: Callable[[Version], bool]) -> Callable[[Version], bool]:
    """Extend the test of a missing library wheel: one of another major has other file names, which the framework does not load."""
    majors = {version.major for part in specifier if (version := parse_version(part.version.removesuffix(".*"))) is not None}
    return lambda version: version.major not in majors or test(version)


def _is_too_old(specifier: SpecifierSet, version: Version) -> bool:
    """True for a version below the lower bound of a specifier."""
    floors = (parse_version(part.version) for part in specifier if part.operator in (">=", ">", "~="))
    return any(floor is not None and version < floor for floor in floors)


def _is_met(context: Context, requirement: Requirement) -> bool:
    installed = parse_version(context.machine.pip.get(canonicalize_name(requirement.name), ""))
    return installed is not None and requirement.specifier.contains(installed, prereleases=True)


def has_other_cuda(framework: UnrequestedFramework, builds: Iterable[Build]) -> bool:
    """True for an installed framework that uses another CUDA major than one of these builds."""
    cuda = framework.build.cuda if framework.build is not None and framework.libraries != "none" else None
    return cuda is not None and any(build.cuda is not None and build.cuda.major != cuda.major for build in builds)
