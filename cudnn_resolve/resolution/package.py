"""Pip packages of the universe: NVIDIA's library wheels, companions, direct dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.extra import named_extras
from cudnn_resolve.requirement.target import is_exact, names_prerelease
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import (
    CudnnCandidate,
    Kind,
    LazyList,
    Need,
    PipCandidate,
    WheelCandidate,
    slot_need,
)
from cudnn_resolve.resolution.evidence import evidence_needs
from cudnn_resolve.resolution.framework_bounds import bound_needs
from cudnn_resolve.resolution.key import ARCH, CUDA, CUDA_LIMIT, CUDNN, CUDNN_LIMIT, GLIBC, INDEX, PYTHON, PipKey, SlotKey, pip_key
from cudnn_resolve.resolution.pin_override import is_version, requirement_need, within
from cudnn_resolve.resolution.release import SDIST, Release, parse_requirement, parse_version, specifier
from cudnn_resolve.resolution.tag import pythons_of
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import RequirementLine
    from cudnn_resolve.resolution.context import Context

_UNKNOWN = 500
"""How far a release whose CUDA nobody knows is from any line: further than every known one of its major."""


class LibraryOrder(NamedTuple):
    """How a release of a CUDA library wheel compares with others, the first criterion counting most; smaller is better."""

    is_not_installed: bool
    is_not_locked: bool
    pins_left: int
    from_chosen_cuda: int
    place: int


class PipPackages(Kind[PipKey, PipCandidate]):
    """Pip packages: their releases."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self._of_release: dict[tuple[int, PipKey], PipCandidate] = {}
        self._orders: dict[tuple[object, ...], LazyList[PipCandidate]] = {}

    def make(self, key: PipKey) -> Iterator[PipCandidate]:
        """Releases of a pip package, newest first; one candidate without a version where the matrix lists none."""
        context, name = self.context, key.name
        framework = context.book.framework_of(name)
        asked = framework is None or context.target_of(framework) is not None
        known = False
        for release in context.releases.of(name) if asked else context.releases.plain(name):
            known = True
            if context.allows(release):
                yield self.candidate_of(release, key)
        open_ended = context.offers.is_offline and context.book.package(name) is None and name not in context.request.direct
        if open_ended and context.closed and context.offers.is_known(name):
            context.is_cut = True
            return
        if open_ended or (not known and not context.offers.is_answered(name)):
            yield PipCandidate(key=key, version=context.machine.pip.get(name) or "unpinned", release=None)

    def candidate_of(self, release: Release, key: PipKey | None = None) -> PipCandidate:
        """Return the candidate of a release, for a package with extras where the key has some."""
        key = key or pip_key(release.package)
        found = self._of_release.get((id(release), key))
        if found is None:
            if release.build is not None and not key.extras:
                found = WheelCandidate(key=key, version=release.text, release=release, build=release.build)
            else:
                found = PipCandidate(key=key, version=release.text, release=release)
            self._of_release[id(release), key] = found
        return found

    def wheel_of(self, build: Build) -> WheelCandidate | None:
        """Return the wheel of a framework's build."""
        release = self.context.release_of(build)
        found = self.candidate_of(release) if release is not None else None
        return found if isinstance(found, WheelCandidate) else None

    def ordered(self, key: PipKey, needs: Sequence[Need]) -> Iterable[PipCandidate]:
        """Releases of a pip package, best first: installed, then as the wheels' own pins say, then newest.

        A library wheel that leaves a pin goes as little beyond it as it must; one that nobody pins is taken from the CUDA release
        that the solve has chosen.
        """
        line = self.context.cuda
        order = (key, line.version if line is not None else None, *map(id, needs))
        found = self._orders.get(order)
        if found is None:
            found = self._orders[order] = LazyList(iter(self._ordered(key, needs)))
        return found

    def _ordered(self, key: PipKey, needs: Sequence[Need]) -> Iterable[PipCandidate]:
        context, package = self.context, key.name
        found = self.candidates(key, needs)
        first = next(iter(found), None)
        if first is None or first.release is None:
            return found
        locked = context.request.preferences.get(package)
        installed = context.machine.pip.get(package) if context.request.prefer == "installed" else None
        if context.book.component(package) is not None:
            return self._ordered_library(found, needs, installed, locked)
        is_near = (context.book.framework_of(package) or "") in context.near
        first_ones = [] if is_near else [version for version in (installed, locked) if version is not None]
        return _first(found, first_ones) if first_ones else found

    def _ordered_library(
        self, found: Iterable[PipCandidate], needs: Sequence[Need], installed: str | None, locked: str | None
    ) -> list[PipCandidate]:
        context = self.context
        listed = [(candidate, candidate.release) for candidate in found if candidate.release is not None]
        pins = [need.declared for need in needs if need.declared is not None]
        pins += [pin for pin in context.late_pins.get(listed[0][1].package, ()) if pin not in pins]
        line = context.cuda.cuda if context.cuda is not None else None
        exact = any(map(is_exact, pins))

        def order(place: int, release: Release) -> LibraryOrder:
            cuda = context.book.cuda_of(release.package, release.text)
            return LibraryOrder(
                is_not_installed=installed is None or not is_version(release, installed),
                is_not_locked=locked is None or not is_version(release, locked),
                pins_left=sum(not pin.contains(release.version, prereleases=True) for pin in pins),
                from_chosen_cuda=0 if exact or line is None else _apart(cuda, line) if cuda is not None else _UNKNOWN,
                place=-place if exact else place,
            )

        orders = [(order(place, release), candidate) for place, (candidate, release) in enumerate(listed)]
        unlisted = [candidate for candidate in found if candidate.release is None]
        return [candidate for _, candidate in sorted(orders, key=lambda one: one[0])] + unlisted

    def must_not_build(self, candidate: PipCandidate) -> bool:
        """True for a candidate that would be built from source although it is of compiled code: any wheel that may be taken is better."""
        release = candidate.release
        return release is not None and self.context.is_from_source(release) and self.context.releases.is_compiled(release.package)

    def wheels_first(self, candidates: Iterable[PipCandidate]) -> Iterator[PipCandidate]:
        """Return the same candidates, those that would be built from source last; but what is installed or locked keeps its place.

        Before these come releases without GPU code for the machine, where another release has some.
        """
        idle, late = [], []
        for candidate in candidates:
            if candidate.release is not None and self.context.is_from_source(candidate.release):
                late.append(candidate)
            elif candidate.release is not None and self.context.is_idle(candidate.release):
                idle.append(candidate)
            else:
                yield candidate
        yield from idle
        yield from late

    def needs(self, candidate: PipCandidate) -> Iterator[Need]:
        """What a release needs; the bounds of the matrix hold for the package without extras."""
        release = candidate.release
        if release is None:
            return
        if candidate.key.extras:
            base = self.candidate_of(release)
            because = f"{candidate.key.full_name} is that package"
            yield Need(base.key, lambda other: other is base, f"{release.package}=={release.text}", because)
        else:
            yield from bound_needs(self.context, release)
        yield from self.own_needs(release, candidate.key.extras)

    def own_needs(self, release: Release, extras: tuple[str, ...]) -> Iterator[Need]:
        """What a release needs itself: files for this machine, its files to itself, and what its metadata requires."""
        context = self.context
        who = f"{release.package} {release.text}"
        context.metadata.prefetch_metadata(release)
        if not extras:
            yield from file_needs(context, release, who)
        yield from _component_needs(context, release, who)
        if not extras:
            yield from evidence_needs(context.book, context.machine.arch, release, who)
        unreadable = context.metadata.unreadable(release) if not _is_there(context, release) else None
        known = context.book.package(release.package) is not None
        if unreadable is not None and (context.closed or not known):
            context.is_cut = context.is_cut or known
            yield Need(INDEX, lambda _: False, "metadata that can be read", unreadable)
        said = context.metadata.of(release)
        if said is not None and said.requires_python and said.requires_python != release.requires_python:
            need = _requires_python_need(context, said.requires_python, who)
            if need is not None:
                yield need
        context.metadata.prefetch_requirements(release, extras)
        for requirement, extra in context.metadata.requirements(release, extras):
            if not extras or extra is not None:
                yield requirement_need(context, requirement, by=release, extra=extra, who=who)
        if not extras:
            yield from _beside_framework(context, release, who)


def _beside_framework(context: Context, release: Release, who: str) -> Iterator[Need]:
    """What a companion imports beside its framework: the rest of the extra in which it names the framework.

    TensorFlow Probability serves JAX, too, and requires neither; what its extra `tf` lists is imported wherever TensorFlow is.
    """
    name = context.book.companion_of(release.package)
    if name is None or all(target.framework != name for target in context.request.targets):
        return
    packages = context.book.framework(name).packages
    extras = {
        extra
        for line in context.metadata.requires(release)
        if (one := parse_requirement(line)) is not None and canonicalize_name(one.name) == packages[0]
        for extra in named_extras(line)
    }
    for requirement, extra in context.metadata.requirements(release, tuple(sorted(extras))) if extras else ():
        if extra is not None and canonicalize_name(requirement.name) not in packages:
            yield requirement_need(context, requirement, by=release, extra=extra, who=who)


def _first(found: Iterable[PipCandidate], versions: Sequence[str]) -> Iterator[PipCandidate]:
    """The candidates with those of some versions in front, found without making more than must be."""
    front: list[PipCandidate] = []
    for version in versions:
        front += [candidate for candidate in _until(found, version) if candidate not in front]
    yield from front
    yield from (candidate for candidate in found if candidate not in front)


def _until(found: Iterable[PipCandidate], text: str) -> Iterator[PipCandidate]:
    """The candidates of one version, out of candidates that are the newest first but for source archives at the end."""
    wanted = parse_version(text)
    seen = False
    for candidate in found:
        release = candidate.release
        if release is None:
            continue
        if is_version(release, text):
            seen = True
            yield candidate
        elif seen and wanted is not None and release.version < wanted:
            return


def _apart(cuda: CudaVersion, line: CudaVersion) -> int:
    """How many minors lie between a release and the chosen line; an older one counts as further away than any newer one."""
    if cuda.major != line.major:
        return 1000
    return cuda.minor - line.minor if cuda.minor >= line.minor else 100 + line.minor - cuda.minor


def _is_there(context: Context, release: Release) -> bool:
    """True for a release that is installed and preferred: nobody has to read what it requires."""
    installed = context.machine.pip.get(release.package)
    return installed is not None and context.request.prefer == "installed" and is_version(release, installed)


def file_needs(context: Context, release: Release, who: str) -> Iterator[Need]:
    """The needs for a Python, an architecture and a C library that some file of the release serves, and for its files to itself."""
    if release.late:
        yield Need(INDEX, lambda _: False, f"{release.package}=={release.text} to count", f"{who} is {release.late}")
    elif not release.served:
        hashed = context.offers.accepts_by_hash(release.package)
        because = f"no file of {who} could be found whose hash is one of those given" if hashed else f"{who} is not on the configured index"
        yield Need(INDEX, lambda _: False, f"{release.package}=={release.text} to be there", because)
    if not release.fit.arch:
        for_linux = any("linux" in tag for tag in release.tags)
        wanted, here = ("another architecture", context.machine.arch) if for_linux else ("another system", "Linux")
        yield Need(ARCH, lambda other: other.value is None, wanted, f"{who} has no wheel for {here}")
    need = python_need(context, release, who)
    if need is not None:
        yield need
    floor = release.fit.glibc
    if floor is not None and floor > (0, 0):
        yield Need(
            GLIBC,
            lambda other: other.value is None or other.value >= floor,
            f"glibc >= {floor[0]}.{floor[1]}",
            f"{who}: the platform tag of its wheel",
            floor=floor,
        )
    slot = context.shared_slot(release.package, release.text)
    if slot is not None:
        owner = release.package
        text, because = f"{owner} alone among the packages of its kind ({slot})", f"one environment holds one package of {slot}"
        if context.book.shares_files(slot):
            text = f"{owner} alone among the packages that own the same files"
            because = f"{who} installs {slot}; a second package that does so would overwrite it"
        yield slot_need(SlotKey(slot), owner, text, because)


def has_wheel(context: Context, release: Release) -> bool:
    """True for a release with a wheel that the machine can use."""
    if release.tags == SDIST or not release.fit.arch or python_need(context, release, release.package) is not None:
        return False
    floor, glibc = release.fit.glibc, context.machine.glibc
    return floor is None or glibc is None or floor <= glibc


def python_need(context: Context, release: Release, who: str) -> Need | None:
    """The need for another Python, where no file of the release or not its metadata accepts the target's."""
    machine = context.machine
    # Some files may be for its Python and others for its architecture, and none for both.
    if release.tags == SDIST and not release.fit.python and machine.python is not None:
        here = ".".join(map(str, machine.python))
        because = f"{who} has no wheel for Python {here}, and its source archive is of compiled code that is not made for it"
        return Need(PYTHON, lambda other: other.value is None, "another Python", because)
    if not release.fit.python or (release.fit.arch and release.fit.glibc is None):
        pythons = ", ".join(pythons_of(release.tags, machine.arch)) or "another version"
        return Need(PYTHON, lambda other: other.value is None, f"Python {pythons}", f"{who} has wheels for these only")
    return _requires_python_need(context, release.requires_python, who) if release.requires_python else None


def _requires_python_need(context: Context, wanted: str, who: str) -> Need | None:
    """The need for another Python, where the target's is not what a specifier wants; one without a patch number means its first release."""
    machine = context.machine
    full = machine.python_full or ""
    if machine.python is None or _serves_python(wanted, full if full.count(".") > 1 else f"{full}.0"):
        return None
    return Need(PYTHON, lambda other: other.value is None, f"Python {wanted}", f"{who} declares it (Requires-Python)")


@lru_cache(4096)
def _serves_python(wanted: str, python: str) -> bool:
    """False where a Python is outside a specifier; nothing that cannot be read excludes one."""
    version, spec = parse_version(python), specifier(wanted)
    return version is None or spec is None or spec.contains(version.base_version, prereleases=True)


def _component_needs(context: Context, release: Release, who: str) -> Iterator[Need]:
    """The needs of a CUDA library wheel: GPUs that its release knows, no known fault, and for linking a linker as new as itself."""
    component = context.book.component(release.package)
    if component is None:
        return
    cuda = context.book.cuda_of(release.package, release.text)
    if cuda is not None and component.library not in ("nvtx", "nvjitlink", "cupti", "nvcc", "toolkit"):
        yield from compatibility.library_needs(context.book, context.machine, cuda, who)
    if cuda is not None and component.library == "cudart":
        line = cuda.line
        yield Need(CUDA, lambda other: other.channel == "pip" and other.version == line, f"CUDA {line}", f"{who} is its runtime library")
    if cuda is not None and context.request.cuda is not None:
        yield compatibility.limit_need(CUDA_LIMIT, f"CUDA {cuda}", (cuda.line, str(cuda)), f"{who} is of that CUDA")
    if component.library == "cudnn":
        if context.request.cudnn is not None:
            forms = (str(release.version), ".".join(map(str, release.version.release[:3])))
            yield compatibility.limit_need(CUDNN_LIMIT, f"cuDNN {release.text}", forms, f"{who} is that cuDNN")
        for build in context.book.cudnn_builds():
            if build.wheel == release.package and str(build.version) == release.text:
                yield from compatibility.cudnn_hardware(context.book, context.machine, build)
        yield Need(CUDNN, lambda other: _is_build(other, release), f"cuDNN {release.text}", f"{who} is the cuDNN of this environment")


def _is_build(other: CudnnCandidate, release: Release) -> bool:
    return other.channel == "pip" and other.build.wheel == release.package and str(other.build.version) == release.text


def asked_need(extra: RequirementLine, context: Context) -> Need:
    """The need behind a further requirement of the user; a pre-release that is installed meets it, as it does for pip."""
    requirement = Requirement(extra.text)
    spec = requirement.specifier
    exact = is_exact(spec)
    key = pip_key(requirement.name, requirement.extras)
    installed = context.machine.pip.get(key.name)

    def test(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        pre = names_prerelease(spec) or release.pre_counts or release.text == installed
        return spec.contains(release.version, prereleases=pre) and (exact or not release.yanked)

    return Need(key, test, extra.text, f"asked for in {extra.origin}")


def companion_needs(context: Context, names: Iterable[str]) -> Iterator[Need]:
    """The needs for installed packages that must move with a framework; pre-releases only where one is installed or asked for."""
    for name in names:
        yield Need(pip_key(name), within(SpecifierSet(), context), name, "installed, and built for one version of the framework")
