"""Pip packages in the universe: NVIDIA's library wheels, companions of frameworks, and all other dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.digest import pythons_of
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.extra import named_extras
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.target import is_exact, names_prerelease
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import (
    CudnnCandidate,
    Kind,
    Need,
    PipCandidate,
    WheelCandidate,
    impossible,
    known_mismatch,
    slot_need,
)
from cudnn_resolve.resolution.candidate_order import LibraryOrder
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.evidence import evidence_needs
from cudnn_resolve.resolution.framework_bounds import bound_needs
from cudnn_resolve.resolution.key import (
    ARCH,
    CUDA,
    CUDA_LIMIT,
    CUDNN,
    CUDNN_LIMIT,
    GLIBC,
    INDEX,
    PYTHON,
    UPLOAD_LIMIT,
    PipKey,
    SlotKey,
    pip_key,
)
from cudnn_resolve.resolution.pin_override import is_version, requirement_need, within
from cudnn_resolve.resolution.release import SDIST, Release, parse_requirement, parse_specifier, parse_version
from cudnn_resolve.resolution.tag import platform_floor
from cudnn_resolve.version import CudaVersion

_OTHER_MAJOR = 1000
_UNKNOWN_CUDA = 500
"""Distance of a release with unknown CUDA: larger than any known distance within the major."""


class PipPackages(Kind[PipKey, PipCandidate]):
    """Pip packages: their releases."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self._of_release: dict[tuple[int, PipKey], PipCandidate] = {}

    def make(self, key: PipKey) -> Iterator[PipCandidate]:
        """Releases of a pip package, newest first; a candidate without a version for a package whose releases are unknown."""
        context, name = self.context, key.name
        framework = context.book.framework_of(name)
        is_requested = framework is None or context.target_of(framework) is not None
        has_releases = False
        for release in context.releases.of(name) if is_requested else context.releases.plain(name):
            has_releases = True
            if context.allows(release):
                yield self.candidate_of(release, key)
        may_be_unpinned = context.offers.is_offline and not context.book.is_harvested(name) and name not in context.request.direct
        if may_be_unpinned and context.only_cached and context.offers.is_known(name):
            context.is_restricted = True
            return
        if may_be_unpinned or (not has_releases and not context.offers.is_answered(name)):
            yield PipCandidate(key=key, version=context.machine.pip.get(name) or "unpinned", release=None)

    def candidate_of(self, release: Release, key: PipKey | None = None) -> PipCandidate:
        """The candidate of a release; for the package with extras if the key has some."""
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
        """The wheel of a framework's build."""
        release = self.context.releases.of_build(build)
        candidate = self.candidate_of(release) if release is not None else None
        return candidate if isinstance(candidate, WheelCandidate) else None

    def ordered(self, key: PipKey, needs: Sequence[Need]) -> Iterable[PipCandidate]:
        """Releases of a pip package, best first: installed, then closest to the wheels' pins, then newest.

        A library wheel that overrides a pin exceeds it as little as possible; an unpinned one comes from the CUDA release that the
        search has chosen.
        """
        context, package = self.context, key.name
        candidates = self.candidates(key, needs)
        first = next(iter(candidates), None)
        if first is None or first.release is None:
            return candidates
        locked = context.request.preferences.get(package)
        installed = context.machine.pip.get(package) if context.request.prefer == "installed" else None
        if context.book.component(package) is not None:
            return self._sort_library(candidates, needs, installed, locked)
        if (context.book.framework_of(package) or "") in context.nearest_to:
            return candidates
        preferred = [version for version in (installed, locked) if version is not None]
        return _move_to_front(candidates, preferred) if preferred else candidates

    def _sort_library(
        self, candidates: Iterable[PipCandidate], needs: Sequence[Need], installed: str | None, locked: str | None
    ) -> list[PipCandidate]:
        context = self.context
        listed = [(candidate, candidate.release) for candidate in candidates if candidate.release is not None]
        pins = [need.declared for need in needs if need.declared is not None]
        pins += [pin for pin in context.late_pins.get(listed[0][1].package, ()) if pin not in pins]
        line = context.cuda.cuda if context.cuda is not None else None
        is_pinned = any(map(is_exact, pins))

        def order(place: int, release: Release) -> LibraryOrder:
            cuda = context.book.cuda_of(release.package, release.text)
            return LibraryOrder(
                is_not_installed=installed is None or not is_version(release, installed),
                is_not_locked=locked is None or not is_version(release, locked),
                pins_left=sum(not pin.contains(release.version, prereleases=True) for pin in pins),
                from_chosen_cuda=0 if is_pinned or line is None else _distance(cuda, line),
                place=-place if is_pinned else place,
            )

        orders = [(order(place, release), candidate) for place, (candidate, release) in enumerate(listed)]
        unlisted = [candidate for candidate in candidates if candidate.release is None]
        return [candidate for _, candidate in sorted(orders, key=lambda found: found[0])] + unlisted

    def must_not_build(self, candidate: PipCandidate) -> bool:
        """True for a source build of compiled code: any acceptable wheel is better."""
        release = candidate.release
        return release is not None and self.context.is_from_source(release) and self.context.releases.is_compiled(release.package)

    def wheels_first(self, candidates: Iterable[PipCandidate]) -> Iterator[PipCandidate]:
        """Move source builds to the end, and before them releases without GPU code for the machine, if another release has some.

        An installed or locked release keeps its place; a package is left to the installer only if no release will do.
        """
        idle, from_source, unpinned = [], [], []
        for candidate in candidates:
            if candidate.release is None:
                unpinned.append(candidate)
            elif self.context.is_from_source(candidate.release):
                from_source.append(candidate)
            elif self.context.is_idle(candidate.release):
                idle.append(candidate)
            else:
                yield candidate
        yield from idle
        yield from from_source
        yield from unpinned

    def needs(self, candidate: PipCandidate) -> Iterator[Need]:
        """Needs of a release; bounds of the matrix apply to the package without extras."""
        release, name = candidate.release, candidate.key.name
        if release is None:
            if self.context.offers.is_known(name) and name not in self.context.metadata.uncached:
                yield impossible(INDEX, f"another release of {name}", "all its releases are known, and none of them fits")
            return
        if candidate.key.extras:
            base = self.candidate_of(release)
            text, because = f"{release.package}=={release.text}", f"{candidate.key.full_name} is that package"
            yield Need(base.key, lambda other: other is base, text, because, restates=True)
        else:
            yield from bound_needs(self.context, release)
        yield from self.own_needs(release, candidate.key.extras)

    def own_needs(self, release: Release, extras: tuple[str, ...]) -> Iterator[Need]:
        """A release's own needs: files for this machine, exclusive files, and the requirements in its metadata."""
        context = self.context
        who = f"{release.package} {release.text}"
        context.metadata.prefetch_metadata(release)
        if not extras:
            yield from file_needs(context, release, who)
        yield from _component_needs(context, release, who)
        if not extras:
            yield from evidence_needs(context.book, context.machine.arch, release, who)
        unreadable = context.metadata.unreadable(release) if not _is_kept(context, release) else None
        is_listed = context.book.is_harvested(release.package)
        if unreadable is not None and (context.only_cached or not is_listed):
            context.is_restricted = context.is_restricted or is_listed
            yield impossible(INDEX, "readable metadata", unreadable)
        metadata = context.metadata.of(release)
        if metadata is not None and metadata.requires_python and metadata.requires_python != release.details.requires_python:
            need = _requires_python_need(context, metadata.requires_python, who)
            if need is not None:
                yield need
        context.metadata.prefetch_requirements(release, extras)
        for requirement, extra in context.metadata.requirements(release, extras):
            if not extras or extra is not None:
                yield requirement_need(context, requirement, by=release, extra=extra, who=who)
        if not extras:
            yield from _companion_requirements(context, release, who)


def _companion_requirements(context: Context, release: Release, who: str) -> Iterator[Need]:
    """What a companion imports next to its framework: the other requirements of the extra that names the framework.

    TensorFlow Probability also works with JAX, and requires neither; the requirements of its extra `tf` are imported with TensorFlow.
    """
    framework = context.book.companion_of(release.package)
    if framework is None or all(target.framework != framework for target in context.request.targets):
        return
    packages = context.book.framework(framework).packages
    extras = {
        extra
        for line in context.metadata.requires(release)
        if (requirement := parse_requirement(line)) is not None and canonicalize_name(requirement.name) == packages[0]
        for extra in named_extras(line)
    }
    for requirement, extra in context.metadata.requirements(release, tuple(sorted(extras))) if extras else ():
        if extra is not None and canonicalize_name(requirement.name) not in packages:
            yield requirement_need(context, requirement, by=release, extra=extra, who=who)


def _move_to_front(candidates: Iterable[PipCandidate], versions: Sequence[str]) -> Iterator[PipCandidate]:
    """Move the candidates of some versions to the front, making no more candidates than necessary."""
    front: list[PipCandidate] = []
    for version in versions:
        front += [candidate for candidate in _of_version(candidates, version) if candidate not in front]
    yield from front
    yield from (candidate for candidate in candidates if candidate not in front)


def _of_version(candidates: Iterable[PipCandidate], text: str) -> Iterator[PipCandidate]:
    """Candidates of a version, from candidates sorted newest first except for source archives at the end."""
    version = parse_version(text)
    is_found = False
    for candidate in candidates:
        release = candidate.release
        if release is None:
            continue
        if is_version(release, text):
            is_found = True
            yield candidate
        elif is_found and version is not None and release.version < version:
            return


def _distance(cuda: CudaVersion | None, line: CudaVersion) -> int:
    """Minors between the CUDA of a release and a line; an older release is further away than every newer one of its major."""
    if cuda is None:
        return _UNKNOWN_CUDA
    if cuda.major != line.major:
        return _OTHER_MAJOR
    return cuda.minor - line.minor if cuda.minor >= line.minor else 100 + line.minor - cuda.minor


def _is_kept(context: Context, release: Release) -> bool:
    """True for an installed and preferred release, whose metadata need not be read."""
    installed = context.machine.pip.get(release.package)
    return installed is not None and context.request.prefer == "installed" and is_version(release, installed)


def file_needs(context: Context, release: Release, who: str) -> Iterator[Need]:
    """Needs for a Python, an architecture and a C library that some file of the release supports, and for exclusive files."""
    pin = f"{release.package}=={release.text}"
    if release.too_new:
        yield impossible(UPLOAD_LIMIT, f"--exclude-newer to allow {pin}", f"{who} {release.too_new}")
    elif not release.is_on_index:
        hashed = context.offers.accepts_by_hash(release.package)
        because = f"no file of {who} has one of the given hashes" if hashed else f"{who} is not on the configured index"
        yield impossible(INDEX, f"{pin} on the index", because)
    fit = release.details.fit
    if not fit.arch:
        for_linux = any("linux" in tag for tag in release.details.tags)
        wanted, here = ("another architecture", context.machine.arch) if for_linux else ("another system", "Linux")
        yield known_mismatch(ARCH, wanted, f"{who} has no wheel for {here}")
    need = python_need(context, release, who)
    if need is not None:
        yield need
    floor = fit.glibc
    if floor is not None and floor > (0, 0):
        yield Need(
            GLIBC,
            lambda glibc: glibc.value is None or glibc.value >= floor,
            f"glibc >= {floor[0]}.{floor[1]}",
            f"{who}: the platform tag of its wheel",
            floor=floor,
        )
    slot = context.shared_slot(release.package, release.text)
    if slot is not None:
        owner = release.package
        if context.book.shares_files(slot):
            text = f"{owner} as the only package with these files"
            because = f"{who} installs {slot}, which a second such package would overwrite"
        else:
            text, because = f"{owner} as the only package of {slot}", f"an environment holds one package of {slot}"
        yield slot_need(SlotKey(slot), owner, text, because)


def has_wheel(context: Context, release: Release) -> bool:
    """True for a release with a wheel that the machine can use."""
    details = release.details
    if details.tags == SDIST or not details.fit.arch or python_need(context, release, release.package) is not None:
        return False
    floor, glibc = details.fit.glibc, context.machine.glibc
    return floor is None or glibc is None or floor <= glibc


def python_need(context: Context, release: Release, who: str) -> Need | None:
    """Need for another Python, if no file of the release or not its metadata supports the target's."""
    machine, details = context.machine, release.details
    if details.tags == SDIST and not details.fit.python and machine.python is not None:
        here = ".".join(map(str, machine.python))
        because = f"{who} has no wheel for Python {here}, and its source archive has compiled code that does not support it"
        return known_mismatch(PYTHON, "another Python", because)
    # Some files may be for the target's Python and others for its architecture, and none for both.
    if not details.fit.python or (details.fit.arch and details.fit.glibc is None):
        tags = (tag for tag in details.tags if platform_floor(tag.rpartition("-")[2], machine.arch) is not None)
        pythons = ", ".join(pythons_of(tags)) or "another version"
        return known_mismatch(PYTHON, f"Python {pythons}", f"{who} has wheels for these only")
    return _requires_python_need(context, details.requires_python, who) if details.requires_python else None


def _requires_python_need(context: Context, specifier: str, who: str) -> Need | None:
    """Need for another Python, if Requires-Python excludes the target's; `3.11` stands for 3.11.0."""
    machine = context.machine
    full = machine.python_full or ""
    if machine.python is None or _serves_python(specifier, full if full.count(".") > 1 else f"{full}.0"):
        return None
    return known_mismatch(PYTHON, f"Python {specifier}", f"{who} declares it (Requires-Python)")


@lru_cache(4096)
def _serves_python(requires_python: str, python: str) -> bool:
    """False if a specifier excludes a Python; an invalid one excludes nothing."""
    version, specifier = parse_version(python), parse_specifier(requires_python)
    return version is None or specifier is None or specifier.contains(version.base_version, prereleases=True)


def _component_needs(context: Context, release: Release, who: str) -> Iterator[Need]:
    """Needs of a CUDA library wheel: GPUs that its release supports, its CUDA and cuDNN, and limits that allow it."""
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
        yield compatibility.limit_need(CUDA_LIMIT, f"CUDA {cuda}", (cuda.line, str(cuda)), f"{who} is part of it")
    if component.library == "cudnn":
        if context.request.cudnn is not None:
            spellings = (str(release.version), ".".join(map(str, release.version.release[:3])))
            yield compatibility.limit_need(CUDNN_LIMIT, f"cuDNN {release.text}", spellings, f"{who} is that cuDNN")
        for build in context.book.cudnn_builds():
            if build.wheel == release.package and str(build.version) == release.text:
                yield from compatibility.cudnn_hardware(context.book, context.machine, build)

        def is_wheel(other: CudnnCandidate) -> bool:
            return other.channel == "pip" and (other.build.wheel, str(other.build.version)) == (release.package, release.text)

        yield Need(CUDNN, is_wheel, f"cuDNN {release.text}", f"{who} is the cuDNN of this environment")


def line_need(line: RequirementLine, context: Context) -> Need:
    """Need of a requirement line; an installed pre-release meets it, as it does for pip."""
    specifier = line.requirement.specifier
    is_pin = is_exact(specifier)
    key = pip_key(line.name, line.requirement.extras)
    installed = context.machine.pip.get(key.name)

    def test(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        prereleases = names_prerelease(specifier) or release.pre_counts or release.text == installed
        return specifier.contains(release.version, prereleases=prereleases) and (is_pin or not release.details.yanked)

    return Need(key, test, line.text, f"asked for in {line.origin}")


def companion_needs(context: Context, names: Iterable[str]) -> Iterator[Need]:
    """Needs for installed packages that must move with a framework; pre-releases only if one is installed or requested."""
    for name in names:
        yield Need(pip_key(name), within(SpecifierSet(), context), name, "it is installed, and built for one version of the framework")
