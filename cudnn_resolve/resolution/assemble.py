"""A solve to its resolution: the stack, the pip packages with the files that carry them, the apt packages, what was overridden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.resolution.candidate import Channel, CudaCandidate, CudnnCandidate, LibrariesCandidate, PipCandidate
from cudnn_resolve.resolution.channel import BESIDE, apt_beside, apt_patterns
from cudnn_resolve.resolution.compatibility import LIBRARIES
from cudnn_resolve.resolution.cuda import repositories
from cudnn_resolve.resolution.framework_bounds import with_bounds
from cudnn_resolve.resolution.key import (
    CUDA,
    CUDA_OF_SYSTEM,
    CUDNN,
    CUDNN_IN_FOLDER,
    CUDNN_OF_SYSTEM,
    DRIVER,
    Key,
    LibrariesKey,
    PipKey,
)
from cudnn_resolve.resolution.model import AptPin, Override, Pin, PipPin, Reason, Resolution
from cudnn_resolve.resolution.open_request import closed
from cudnn_resolve.resolution.release import parse_requirement, parse_version
from cudnn_resolve.resolution.solve import build_of, cuda_of, cudnn_of
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import AptPattern, Build, CudnnBuild
    from cudnn_resolve.requirement.source import File, Offer
    from cudnn_resolve.resolution.release import Release
    from cudnn_resolve.resolution.solve import Solved
    from cudnn_resolve.resolution.universe import Universe


def assemble(universe: Universe, solved: Solved, dropped: Sequence[str]) -> Resolution:
    """The resolution behind a solve."""
    pins = with_bounds(universe.book, solved.pins)
    builds = tuple(build_of(pins, target.framework) for target in universe.request.targets)
    # What the frameworks share, else what an installed one lives on.
    runtime = cuda_of(pins, CUDA) or cuda_of(pins, CUDA_OF_SYSTEM)
    apart = cudnn_of(pins, CUDNN_IN_FOLDER)
    chosen = cudnn_of(pins, CUDNN) or cudnn_of(pins, CUDNN_OF_SYSTEM) or apart
    cudnn = chosen.build if chosen is not None else None
    cudnn_text, soname = _cudnn(cudnn, builds)
    minimum, why = _oldest_driver(pins)
    pip = pip_pins(pins, universe)
    return Resolution(
        request=closed(universe.request),
        machine=universe.machine,
        pins=pins,
        builds=builds,
        pip=(*pip.pins, *_pin_that_stays(universe, apart, pip.pins)) if apart is not None else pip.pins,
        apt=_apt_pins(universe, pins),
        overrides=tuple(_overrides(universe, pins)),
        cuda=_cuda_line(universe, pins, runtime, builds),
        cudnn=cudnn_text,
        cudnn_soname=soname,
        cudnn_build=cudnn,
        channels=_channels(pins, builds),
        driver_min=minimum,
        driver_because=why,
        unrequested=universe.installed.unrequested,
        dropped=tuple(dropped),
        rounds=solved.rounds,
        unreached=pip.unreached,
        guessed=pip.guessed,
        in_folder=_pin_of_wheel(universe, apart.build.wheel or "", apart.version, pins[apart.key].reasons) if apart is not None else None,
    )


def _pin_that_stays(universe: Universe, apart: CudnnCandidate, pins: Sequence[PipPin]) -> Iterator[PipPin]:
    """The installed wheel beside that folder: what lists or installs only what is pinned must not lose it."""
    wheel = apart.build.wheel or ""
    here = universe.machine.pip.get(wheel)
    if here is None or any(pin.name == wheel for pin in pins):
        return
    why = f"it stays for what is installed; cuDNN {apart.version} lies apart from it"
    reason = Reason(text=f"{wheel}=={here}", because=why, parent=None)
    yield _pin_of_wheel(universe, wheel, here, (reason,)) or PipPin(name=wheel, version=here, index=None, reasons=(reason,))


def _pin_of_wheel(universe: Universe, name: str, version: str, reasons: tuple[Reason, ...]) -> PipPin | None:
    release = next((one for one in universe.context.releases.of(name) if one.text == version), None)
    if release is None:
        return None
    offer = _offer(universe, release, {})
    index = None if release.index == "default" else release.index
    return PipPin(name=release.package, version=release.text, index=index, reasons=reasons, file=_file(universe, offer))


def versions_after(book: Book, found: Resolution) -> dict[str, str]:
    """Version of every package once a resolution is carried out; what must make room for another owner of its files is gone."""
    pinned = {pin.name: pin.version for pin in found.pip if pin.version is not None}
    owned = {slot for name in pinned if (slot := book.slot(name)) is not None}
    kept = {name: version for name, version in found.machine.pip.items() if book.slot(name) not in owned}
    return {**kept, **pinned}


def loads_wheels(resolution: Resolution, framework: str) -> bool:
    """True for a framework with the cuDNN of the system and the CUDA of the installed wheels, which it finds first."""
    if resolution.channels.get(framework) not in ("system", "apt"):
        return False
    runtime = cuda_of(resolution.pins, CUDA_OF_SYSTEM) or cuda_of(resolution.pins, CUDA)
    return runtime is not None and runtime.channel == "pip"


def loaded_cudnn(resolution: Resolution, build: Build) -> str | None:
    """The cuDNN that a build of the resolution loads."""
    if build.cudnn is None:
        return None
    channel = resolution.channels.get(build.framework)
    if channel == "bundled":
        return str(build.cudnn)
    key = {"system": CUDNN_OF_SYSTEM, "apt": CUDNN_OF_SYSTEM, "folder": CUDNN_IN_FOLDER}.get(str(channel))
    own = resolution.pins.get(key) if key is not None else None
    return own.candidate.version if own is not None else resolution.cudnn


def _cudnn(chosen: CudnnBuild | None, builds: tuple[Build, ...]) -> tuple[str | None, int | None]:
    """The cuDNN of the stack: the shared one, else the newest that a wheel bundles."""
    if chosen is not None:
        return str(chosen.version), chosen.soname
    bundled = [build.cudnn for build in builds if build.delivery == "bundled" and build.cudnn is not None]
    if not bundled:
        return None, None
    newest = max(bundled)
    return str(newest), newest.major


def _cuda_line(universe: Universe, pins: Mapping[Key, Pin], runtime: CudaCandidate | None, builds: tuple[Build, ...]) -> str | None:
    """The CUDA of the stack: that of the runtime library itself where it is a wheel, else the chosen line, else what is bundled."""
    for key, pin in pins.items():
        component = universe.book.component(key.name) if isinstance(key, PipKey) and not key.extras else None
        if component is not None and component.library == "cudart":
            cuda = universe.book.cuda_of(component.package, pin.candidate.version)
            if cuda is not None:
                return cuda.line
    if runtime is not None:
        return runtime.version
    bundled = [build.cuda for build in builds if build.cuda is not None]
    return max(bundled).line if bundled else None


def _oldest_driver(pins: Mapping[Key, Pin]) -> tuple[str | None, str | None]:
    """The oldest driver that every need accepts, and the need that decides it."""
    best: DriverVersion | None = None
    why: str | None = None
    for reason in pins[DRIVER].reasons if DRIVER in pins else ():
        if isinstance(reason.floor, DriverVersion) and (best is None or reason.floor > best):
            best, why = reason.floor, reason.because
    return (str(best) if best else None), why


def _channels(pins: Mapping[Key, Pin], builds: tuple[Build, ...]) -> dict[str, Channel]:
    out: dict[str, Channel] = {}
    for build in builds:
        pin = pins.get(LibrariesKey(build.framework))
        chosen = pin.candidate if pin is not None else None
        if build.delivery == "bundled":
            out[build.framework] = "bundled"
        elif isinstance(chosen, LibrariesCandidate) and chosen.build is build:
            out[build.framework] = chosen.channel
        elif build.cuda is not None:
            out[build.framework] = "pip"
    return out


def _overrides(universe: Universe, pins: Mapping[Key, Pin]) -> list[Override]:
    out: dict[tuple[str, str, str], Override] = {}
    for pin in pins.values():
        candidate = pin.candidate
        if not isinstance(candidate, PipCandidate) or candidate.release is None:
            continue
        why = [reason for reason in pin.reasons if reason.obeyed]
        for reason in pin.reasons:
            if reason.obeyed or not reason.binding or reason.declared is None:
                continue
            package, by = candidate.key.name, reason.requested_by or reason.parent or "?"
            others = [one for one in why if one.text != reason.text]
            others.sort(key=lambda one: one.parent_key == reason.parent_key)
            wanted = next((one.because for one in others), None)
            text = f"read as {reason.text.removeprefix(package)}, which is what the ABI promises"
            if universe.book.component(package) is None:
                text = f"nobody asks for {by}, and no answer keeps this pin of it"
            one = Override(
                package=package,
                requested_by=by,
                declared=reason.declared,
                chosen=candidate.version,
                reason=f"{text}; {wanted}" if wanted else text,
            )
            out.setdefault((package, by, reason.declared), one)
    return list(out.values())


def _is_pinned(pattern: AptPattern) -> bool:
    """True for the package of all runtime libraries, and for one whose name several CUDA lines share, so that apt would take the newest."""
    shared = "{major}" not in pattern.name and "*" not in pattern.version
    return pattern.library == "libraries" or (shared and pattern.library in LIBRARIES)


def _apt_pins(universe: Universe, pins: Mapping[Key, Pin]) -> tuple[AptPin, ...]:
    out: list[AptPin] = []
    for cuda_key, cudnn_key in ((CUDA, CUDNN), (CUDA_OF_SYSTEM, CUDNN_OF_SYSTEM)):
        cuda, cudnn = cuda_of(pins, cuda_key), cudnn_of(pins, cudnn_key)
        if cuda is not None and cuda.channel == "apt":
            out += _apt_cuda(universe, cuda, _because(pins[cuda_key]))
        if cudnn is not None and cuda is not None and cudnn.channel == "apt":
            name, version = cudnn.build.apt.package or "", cudnn.build.apt.version or ""
            repository = cuda.repository or next(iter(repositories(universe.context)), "")
            out.append(AptPin(name=name, version=version, repository=repository, because=_because(pins[cudnn_key])))
        if cuda is not None and cuda.channel == "apt":
            out += _apt_beside(universe, cuda, pins)
    return tuple(out)


def _apt_cuda(universe: Universe, runtime: CudaCandidate, because: tuple[str, ...]) -> Iterator[AptPin]:
    fields = {"major": runtime.cuda.major, "minor": runtime.cuda.minor, "release": runtime.releases[-1]}
    for pattern in filter(_is_pinned, apt_patterns(universe.book, runtime.cuda)):
        yield AptPin(
            name=pattern.name.format(**fields),
            version=pattern.version.format(**fields),
            repository=runtime.repository or "",
            because=because,
        )


def _apt_beside(universe: Universe, runtime: CudaCandidate, pins: Mapping[Key, Pin]) -> Iterator[AptPin]:
    """The packages of libraries that the package of all runtime libraries does not bring, and that a framework loads."""
    loading: dict[str, list[str]] = {}
    for pin in pins.values():
        one = pin.candidate
        if isinstance(one, LibrariesCandidate) and one.channel == "apt":
            for library in one.build.loads:
                loading.setdefault(library, []).append(f"{one.build.package} {one.build.wheel_version} loads {library}")
    for library in BESIDE:
        pattern = apt_beside(universe.book, library, runtime.cuda) if library in loading else None
        if pattern is not None:
            name = pattern.name.format(major=runtime.cuda.major, minor=runtime.cuda.minor)
            yield AptPin(name=name, version=pattern.version, repository=runtime.repository or "", because=tuple(loading[library]))


def _because(pin: Pin) -> tuple[str, ...]:
    return tuple(f"{reason.text}: {reason.because}" for reason in pin.reasons)


class Pins(Struct, frozen=True, kw_only=True):
    """All pip packages of a solve."""

    pins: tuple[PipPin, ...]
    unreached: dict[str, str]
    """Package to why its files could not be listed: the index that the matrix names for its variant does not answer."""
    guessed: dict[str, str]
    """Package to why its requirements may not be all: a source archive whose build could add some."""


def pip_pins(pins: Mapping[Key, Pin], universe: Universe) -> Pins:
    """The pip packages of a solve: the stack first, then the rest by name."""
    reasons: dict[str, tuple[Reason, ...]] = {}
    releases: dict[str, Release | None] = {}
    for pin in pins.values():
        candidate = pin.candidate
        if not isinstance(candidate, PipCandidate):
            continue
        name = candidate.key.name
        if candidate.release is None:
            releases.setdefault(name, None)
            reasons.setdefault(name, pin.reasons)
        else:
            releases[name] = candidate.release
            reasons[name] = (*reasons.get(name, ()), *pin.reasons)
    unreached: dict[str, str] = {}
    guessed: dict[str, str] = {}
    requires = _requires(reasons)
    out = []
    for name, one in releases.items():
        if one is None:
            out.append(PipPin(name=name, version=kept_version(universe, name, reasons[name]), index=None, reasons=reasons[name]))
            continue
        offer = _offer(universe, one, unreached)
        metadata = universe.context.metadata.of(one)
        if metadata is not None and metadata.guessed is not None:
            guessed[name] = metadata.guessed
        out.append(
            PipPin(
                name=name,
                version=one.text,
                index=None if one.index == "default" else one.index,
                reasons=reasons[name],
                build=one.build,
                offer=offer,
                file=_file(universe, offer),
                requires=tuple(sorted(requires.get(name, ()))),
                direct=universe.request.direct.get(name),
            )
        )
    return Pins(pins=tuple(sorted(out, key=lambda pin: _rank(pin, universe))), unreached=unreached, guessed=guessed)


def _offer(universe: Universe, release: Release, unreached: dict[str, str]) -> Offer | None:
    try:
        return universe.context.offers.offer(release)
    except IndexUnavailableError as error:
        unreached[release.package] = error.message
        return None


def _file(universe: Universe, offer: Offer | None) -> File | None:
    return universe.context.offers.file(offer) if offer is not None else None


def kept_version(universe: Universe, name: str, reasons: Iterable[Reason]) -> str | None:
    """Return the installed version of an unlisted package; None, which leaves it to the installer, where a requirement excludes it."""
    here = universe.machine.pip.get(name)
    version = parse_version(here) if here is not None else None
    wanted = (parse_requirement(reason.text) for reason in reasons)
    excluded = version is not None and any(one is not None and not one.specifier.contains(version, prereleases=True) for one in wanted)
    return None if excluded else here


def _requires(reasons: dict[str, tuple[Reason, ...]]) -> dict[str, set[str]]:
    """Package to the packages that it requires, told by the reasons of those."""
    out: dict[str, set[str]] = {}
    for name, all_of in reasons.items():
        for reason in all_of:
            parent = reason.parent_key
            if isinstance(parent, PipKey) and parent.name in reasons and parent.name != name:
                out.setdefault(parent.name, set()).add(name)
    return out


def _rank(pin: PipPin, universe: Universe) -> tuple[int, str]:
    """The stack first: frameworks, cuDNN, CUDA libraries; then the rest."""
    if pin.build is not None:
        return 0, pin.name
    component = universe.book.component(pin.name)
    if component is not None:
        return (1 if component.library == "cudnn" else 2), pin.name
    return 3, pin.name
