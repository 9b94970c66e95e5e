"""Pip packages of the universe: NVIDIA's library wheels, companions, direct dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.requirement.derive import VENDOR
from cudnn_resolve.requirement.model import Need
from cudnn_resolve.resolution import rule
from cudnn_resolve.resolution.evidence import evidence_needs
from cudnn_resolve.resolution.model import Candidate
from cudnn_resolve.resolution.release import LATE, SDIST, Release, parse_version, specifier
from cudnn_resolve.resolution.tag import pythons_of
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Component
    from cudnn_resolve.resolution.universe import Universe


def name_of(name: str, extras: Iterable[str] = ()) -> str:
    """The package of the universe for a pip name, `pip:cuda-toolkit[cublas,cudart]`."""
    wanted = ",".join(sorted({canonicalize_name(extra) for extra in extras}))
    return f"pip:{canonicalize_name(name)}" + (f"[{wanted}]" if wanted else "")


def package_candidates(universe: Universe, rest: str) -> Iterator[Candidate]:
    """Releases of a pip package, newest first; one candidate without a version where the matrix lists none."""
    name, _, inside = rest.partition("[")
    extras = tuple(inside.rstrip("]").split(",")) if inside else ()
    framework = universe.book.framework_of(name)
    asked = framework is None or any(target.framework == framework for target in universe.request.targets)
    releases = universe.shelf.releases(name) if asked else universe.shelf.plain(name)
    known = False
    for release in releases:
        known = True
        if not universe.allows(release):
            continue
        yield universe.candidate_of(release, extras)
    open_ended = universe.shelf.is_offline and universe.book.package(name) is None and name not in universe.request.direct
    if open_ended and universe.closed and universe.shelf.is_known(name):
        universe.is_cut = True
        return
    if open_ended or (not known and not universe.shelf.is_answered(name)):
        installed = universe.machine.pip.get(name)
        full = name_of(name, extras)
        yield universe.once(
            (full, None),
            Candidate(name=full, version=installed or "unpinned", kind="unlisted", payload=name, channel="pip", extras=extras),
        )


def ordered(universe: Universe, found: Iterable[Candidate], needs: Sequence[Need]) -> Iterable[Candidate]:
    """Candidates of a pip package, best first: installed, then as the wheels' own pins say, then newest.

    A library wheel that leaves a pin goes as little beyond it as it must; one that nobody pins is taken from the CUDA release
    that the solve has chosen.
    """
    first = next(iter(found))
    if first.kind == "unlisted":
        return found
    package = first.payload.package
    locked = universe.request.preferences.get(package)
    near = universe.near.get(universe.book.framework_of(package) or "")
    installed = universe.machine.pip.get(package) if universe.request.prefer == "installed" else None
    if universe.book.component(package) is None:
        first_ones = [] if near is not None else [version for version in (installed, locked) if version is not None]
        return _first(found, first_ones) if first_ones else found
    pins = [need.declared for need in needs if need.declared is not None]
    pins += [wish for wish in universe.wishes.get(package, ()) if wish not in pins]
    line = universe.chosen["cuda"].payload.cuda if "cuda" in universe.chosen else None
    exact = any(is_exact(pin) for pin in pins)
    position = {id(candidate): number for number, candidate in enumerate(found)}

    def key(candidate: Candidate) -> tuple[bool, bool, int, int, int]:
        release: Release = candidate.payload
        left = sum(not pin.contains(release.version, prereleases=True) for pin in pins)
        cuda = universe.book.cuda_of(release.package, release.text)
        aligned = 0 if line is None else _apart(cuda, line) if cuda is not None else _UNKNOWN
        order = position[id(candidate)]
        return (
            not (installed is not None and _is_version(release, installed)),
            not (locked is not None and _is_version(release, locked)),
            left,
            0 if exact else aligned,
            -order if exact else order,
        )

    return sorted(found, key=key)


_UNKNOWN = 500
"""How far a release whose CUDA nobody knows is from any line: further than every known one of its major."""


def _first(found: Iterable[Candidate], versions: Sequence[str]) -> Iterator[Candidate]:
    """The candidates with those of some versions in front, found without making more than must be."""
    front: list[Candidate] = []
    for version in versions:
        front += [candidate for candidate in _until(found, version) if candidate not in front]
    yield from front
    yield from (candidate for candidate in found if candidate not in front)


def _until(found: Iterable[Candidate], text: str) -> Iterator[Candidate]:
    """The candidates of one version, out of candidates that are the newest first but for source archives at the end."""
    wanted = parse_version(text)
    seen = False
    for candidate in found:
        if candidate.kind == "unlisted":
            continue
        if _is_version(candidate.payload, text):
            seen = True
            yield candidate
        elif seen and wanted is not None and candidate.payload.version < wanted:
            return


def _apart(cuda: CudaVersion, line: CudaVersion) -> int:
    """How many minors lie between a release and the chosen line; an older one counts as further away than any newer one."""
    if cuda.major != line.major:
        return 1000
    return cuda.minor - line.minor if cuda.minor >= line.minor else 100 + line.minor - cuda.minor


def _is_there(universe: Universe, release: Release) -> bool:
    """True for a release that is installed and preferred: nobody has to read what it requires."""
    installed = universe.machine.pip.get(release.package)
    return installed is not None and universe.request.prefer == "installed" and _is_version(release, installed)


def _is_version(release: Release, text: str) -> bool:
    return release.text == text or release.version == parse_version(text)


def package_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What a pip package needs: files for this machine, its files to itself, and what its metadata requires."""
    if candidate.kind == "unlisted":
        return
    release: Release = candidate.payload
    who = f"{release.package} {release.text}"
    universe.shelf.expect_metadata(release)
    if candidate.extras:
        base = universe.candidate_of(release)
        yield Need(base.name, lambda other: other is base, f"{release.package}=={release.text}", f"{candidate.name[4:]} is that package")
    else:
        yield from file_needs(universe, release, who)
    yield from _component_needs(universe, release, who)
    if not candidate.extras:
        yield from evidence_needs(universe.book, universe.machine.arch, release, who)
    unreadable = universe.shelf.unreadable(release) if not _is_there(universe, release) else None
    known = universe.book.package(release.package) is not None
    if unreadable is not None and (universe.closed or not known):
        universe.is_cut = universe.is_cut or known
        yield Need("index", lambda _: False, "metadata that can be read", unreadable)
    said = universe.shelf.metadata(release)
    if said is not None and said.requires_python and said.requires_python != release.requires_python:
        need = _requires_python_need(universe, said.requires_python, who)
        if need is not None:
            yield need
    universe.shelf.expect(release, candidate.extras)
    for requirement, extra in universe.shelf.requirements(release, candidate.extras):
        if candidate.extras and extra is None:
            continue
        yield requirement_need(universe, requirement, by=release, extra=extra, who=who)


def file_needs(universe: Universe, release: Release, who: str) -> Iterator[Need]:
    """The needs for a Python, an architecture and a C library that some file of the release serves, and for its files to itself."""
    if release.late:
        yield Need("index", lambda _: False, f"{release.package}=={release.text} to count", f"{who} is {LATE}")
    elif not release.served:
        hashed = universe.shelf.accepts_by_hash(release.package)
        because = f"no file of {who} could be found whose hash is one of those given" if hashed else f"{who} is not on the configured index"
        yield Need("index", lambda _: False, f"{release.package}=={release.text} to be there", because)
    if not release.fit.arch:
        for_linux = any("linux" in tag for tag in release.tags)
        wanted, here = ("another architecture", universe.machine.arch) if for_linux else ("another system", "Linux")
        yield Need("arch", lambda other: other.payload is None, wanted, f"{who} has no wheel for {here}")
    need = _python_need(universe, release, who)
    if need is not None:
        yield need
    floor = release.fit.glibc
    if floor is not None and floor > (0, 0):
        yield Need(
            "glibc",
            lambda other: other.payload is None or other.payload >= floor,
            f"glibc >= {floor[0]}.{floor[1]}",
            f"{who}: the platform tag of its wheel",
            payload=floor,
        )
    slot = universe.book.slot(release.package)
    if slot is not None and universe.book.owners(slot) > 1:
        owner = release.package
        text, because = f"{owner} alone among the packages of its kind ({slot})", f"one environment holds one package of {slot}"
        if universe.book.shares_files(slot):
            text = f"{owner} alone among the packages that own the same files"
            because = f"{who} installs {slot}; a second package that does so would overwrite it"
        yield Need(f"slot:{slot}", lambda other: other.payload == owner, text, because, payload=owner)


def has_wheel(universe: Universe, release: Release) -> bool:
    """True for a release with a wheel that the machine can use."""
    if release.tags == SDIST or not release.fit.arch or _python_need(universe, release, release.package) is not None:
        return False
    floor, glibc = release.fit.glibc, universe.machine.glibc
    return floor is None or glibc is None or floor <= glibc


def _python_need(universe: Universe, release: Release, who: str) -> Need | None:
    """The need for another Python, where no file of the release or not its metadata accepts the target's."""
    machine = universe.machine
    # Some files may be for its Python and others for its architecture, and none for both.
    if release.tags == SDIST and not release.fit.python and machine.python is not None:
        here = ".".join(map(str, machine.python))
        because = f"{who} has no wheel for Python {here}, and its source archive is of compiled code that is not made for it"
        return Need("python", lambda other: other.payload is None, "another Python", because)
    if not release.fit.python or (release.fit.arch and release.fit.glibc is None):
        pythons = ", ".join(pythons_of(release.tags, machine.arch)) or "another version"
        return Need("python", lambda other: other.payload is None, f"Python {pythons}", f"{who} has wheels for these only")
    return _requires_python_need(universe, release.requires_python, who) if release.requires_python else None


def _requires_python_need(universe: Universe, wanted: str, who: str) -> Need | None:
    """The need for another Python, where the target's is not what a specifier wants; one without a patch number means its first release."""
    machine = universe.machine
    full = machine.python_full or ""
    version = parse_version(full if full.count(".") > 1 else f"{full}.0") if machine.python is not None else None
    spec = specifier(wanted)
    if version is None or spec is None or spec.contains(version.base_version, prereleases=True):
        return None
    return Need("python", lambda other: other.payload is None, f"Python {wanted}", f"{who} declares it (Requires-Python)")


def _component_needs(universe: Universe, release: Release, who: str) -> Iterator[Need]:
    """The needs of a CUDA library wheel: GPUs that its release knows, no known fault, and for linking a linker as new as itself."""
    component = universe.book.component(release.package)
    if component is None:
        return
    cuda = universe.book.cuda_of(release.package, release.text)
    if cuda is not None and component.library not in ("nvtx", "nvjitlink", "cupti", "nvcc", "toolkit"):
        yield from rule.library_needs(universe.book, universe.machine, cuda, who)
    if cuda is not None and component.library == "cudart":
        line = cuda.line
        yield Need("cuda", lambda other: other.channel == "pip" and other.version == line, f"CUDA {line}", f"{who} is its runtime library")
    if cuda is not None and universe.request.cuda is not None:
        limit = universe.request.cuda.specifier
        texts = (cuda.line, str(cuda))
        yield Need(
            "limit:cuda",
            lambda _: any(limit.contains(text, prereleases=True) for text in texts),
            f"CUDA {cuda} allowed",
            f"{who} is of that CUDA",
        )
    if component.library == "cudnn":
        if universe.request.cudnn is not None:
            allowed = universe.request.cudnn.specifier.contains(release.version, prereleases=True) or (
                universe.request.cudnn.specifier.contains(".".join(map(str, release.version.release[:3])), prereleases=True)
            )
            yield Need("limit:cudnn", lambda _: allowed, f"cuDNN {release.text} allowed", f"{who} is that cuDNN")
        for build in universe.book.cudnn_builds():
            if build.wheel == release.package and str(build.version) == release.text:
                yield from rule.cudnn_hardware(universe.book, universe.machine, build)
        yield Need("cudnn", lambda other: _is_build(other, release), f"cuDNN {release.text}", f"{who} is the cuDNN of this environment")


def _is_build(other: Candidate, release: Release) -> bool:
    build = other.payload
    return other.channel == "pip" and build.wheel == release.package and str(build.version) == release.text


def companion_needs(universe: Universe, names: Iterable[str]) -> Iterator[Need]:
    """The needs for installed packages that must move with a framework; pre-releases only where one is installed or asked for."""
    for name in names:
        yield Need(name_of(name), within(SpecifierSet(), universe), name, "installed, and built for one version of the framework")


def requirement_need(
    universe: Universe, requirement: Requirement, *, by: Release, extra: str | None, who: str, binding: bool = True
) -> Need:
    """The need behind one Requires-Dist line; a pin of an NVIDIA library is read as the range that its ABI allows."""
    name = canonicalize_name(requirement.name)
    full = name_of(name, requirement.extras)
    spec = requirement.specifier
    because = f"{who} requires {requirement.name}{spec}" + (f" (extra {extra})" if extra else "")
    component = universe.book.component(name)
    own = universe.book.cuda_of(by.package, by.text) if component is not None and component.library == "nvjitlink" else None
    strict = universe.request.strict_pins and binding
    if component is None or strict:
        return Need(full, within(spec, universe), f"{requirement.name}{spec}" if str(spec) else requirement.name, because)
    lowest, test = abi_range(component, spec)
    text = f"{requirement.name}{lowest}" if lowest else requirement.name

    def holds(candidate: Candidate) -> bool:
        if candidate.kind == "unlisted":
            return True
        release: Release = candidate.payload
        if own is not None:
            cuda = universe.book.cuda_of(name, release.text)
            if cuda is not None and cuda < CudaVersion(own.line):
                return False
        return test(release.version) and not bad_release(universe, name, release)

    return Need(full, holds, text, because, declared=spec if str(spec) else None, requested_by=who, binding=binding)


def bad_release(universe: Universe, package: str, release: Release) -> bool:
    """True where an advisory of the matrix says to avoid the release on this machine, or its index withdrew it.

    Never where the user wants the wheels' own pins to hold.
    """
    if universe.request.strict_pins:
        return False
    key = (package, release.text)
    answer = universe.bad.get(key)
    if answer is None:
        answer = universe.bad[key] = is_avoided(universe, package, release.version) or release.yanked
    return answer


def is_avoided(universe: Universe, package: str, version: Version) -> bool:
    """True where an advisory says to avoid this version of a package on this machine.

    Not where the user's limit leaves nothing else: then it is chosen, and named.
    """
    if universe.request.cudnn is not None and "cudnn" in package and universe.only_bad_cudnn():
        return False
    for advisory in universe.book.advisories(package):
        spec = specifier(advisory.versions)
        if advisory.action != "avoid" or spec is None or not spec.contains(version, prereleases=True):
            continue
        if not advisory.capability or any(gpu.capability in advisory.capability for gpu in universe.machine.gpus):
            return True
    return False


def is_exact(spec: SpecifierSet) -> bool:
    """True where a specifier pins one version."""
    return any(one.operator in {"==", "==="} and not one.version.endswith(".*") for one in spec)


def abi_range(component: Component, spec: SpecifierSet) -> tuple[str, Callable[[Version], bool]]:
    """How a specifier on an NVIDIA library may be read: the range in words, and the test of a version.

    An exact pin X becomes: same major, not older than X (for cuDNN: than X's minor). Source: NVIDIA's ABI promise within a
    CUDA major and cuDNN's compatibility rule; `component.abi` says for which packages it is given. Other operators hold as written.
    """
    pins = [one for one in spec if one.operator == "==" and not one.version.endswith(".*")]
    if component.abi == "exact" or not pins:
        return str(spec), _contains(spec)
    rest = SpecifierSet(",".join(str(one) for one in spec if one not in pins))
    pin = Version(pins[0].version)
    if component.abi == "major":
        floor = Version(str(pin.major))
    elif component.library == "cudnn":
        floor = Version(f"{pin.major}.{pin.minor}")
    else:
        floor = pin
    top = pin.major + 1

    def test(version: Version) -> bool:
        return floor <= version and version.major < top and rest.contains(version, prereleases=True)

    return f">={floor},<{top}" + (f",{rest}" if str(rest) else ""), test


def _contains(spec: SpecifierSet) -> Callable[[Version], bool]:
    return lambda version: spec.contains(version, prereleases=True)


def _is_vendor_pin(spec: SpecifierSet, release: Release) -> bool:
    """True where a specifier names an image's own build by its whole version."""
    version = parse_version(release.text) if release.build is not None and release.build.variant == VENDOR else None
    return version is not None and spec.contains(version, prereleases=True)


def within(spec: SpecifierSet, universe: Universe) -> Callable[[Candidate], bool]:
    """A test of candidates: pre-releases only where the specifier names one, withdrawn ones only where it pins or they are installed."""
    pinned = any(one.operator in ("==", "===") and not one.version.endswith(".*") for one in spec)

    def test(candidate: Candidate) -> bool:
        if candidate.kind == "unlisted":
            return True
        release: Release = candidate.payload
        if not spec.contains(release.version, prereleases=True) and not _is_vendor_pin(spec, release):
            return False
        installed = universe.machine.pip.get(release.package)
        here = installed is not None and _is_version(release, installed)
        if release.version.is_prerelease and not (here or spec.prereleases or release.lone):
            return False
        return pinned or here or not release.yanked

    return test
