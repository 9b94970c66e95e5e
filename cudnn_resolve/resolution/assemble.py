"""Build the resolution from a solved search: the stack, pip packages with their files, apt packages, overrides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build, CudnnBuild
from cudnn_resolve.requirement.source import Offer
from cudnn_resolve.resolution.apt_packages import apt_pins
from cudnn_resolve.resolution.candidate import Channel, CudaCandidate, CudnnCandidate, LibrariesCandidate, PipCandidate
from cudnn_resolve.resolution.framework_bounds import bounds_about
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
    pip_key,
)
from cudnn_resolve.resolution.model import Override, Pin, PipPin, Reason, Resolution
from cudnn_resolve.resolution.open_request import plain_request
from cudnn_resolve.resolution.release import Release, excludes, parse_version
from cudnn_resolve.resolution.solve import Solved, build_of, cuda_of, cudnn_of
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import DriverVersion


def assemble(universe: Universe, solved: Solved, dropped: Sequence[str]) -> Resolution:
    """The resolution of a solved search."""
    pins = _with_bounds(universe.book, solved.pins)
    builds = tuple(build_of(pins, target.framework) for target in universe.request.targets)
    # The shared libraries, otherwise those of an installed framework.
    runtime = cuda_of(pins, CUDA) or cuda_of(pins, CUDA_OF_SYSTEM)
    in_folder = cudnn_of(pins, CUDNN_IN_FOLDER)
    cudnn = cudnn_of(pins, CUDNN) or cudnn_of(pins, CUDNN_OF_SYSTEM) or in_folder
    cudnn_build = cudnn.build if cudnn is not None else None
    cudnn_text, soname = _cudnn_of_stack(cudnn_build, builds)
    minimum, because = _oldest_driver(pins)
    pip, unreached, guessed = _pip_pins(pins, universe)
    if in_folder is not None:
        pip += _installed_cudnn_pin(universe, in_folder, pip)
    return Resolution(
        request=plain_request(universe.request),
        machine=universe.machine,
        pins=pins,
        builds=builds,
        pip=tuple(pip),
        apt=apt_pins(universe, pins),
        overrides=tuple(_overrides(universe, pins)),
        cuda=_cuda_of_stack(universe, pins, runtime, builds),
        cudnn=cudnn_text,
        cudnn_soname=soname,
        cudnn_build=cudnn_build,
        channels=_channels(pins, builds),
        driver_min=minimum,
        driver_because=because,
        unrequested=universe.installed.unrequested,
        dropped=tuple(dropped),
        rounds=solved.rounds,
        unreached=unreached,
        guessed=guessed,
        in_folder=_wheel_pin(universe, in_folder.build.wheel or "", in_folder.version, pins[in_folder.key].reasons) if in_folder else None,
    )


def _with_bounds(book: Book, pins: dict[Key, Pin]) -> dict[Key, Pin]:
    """Add the bounds that apply to each pin to its reasons."""
    found = dict(pins)
    for pin in pins.values():
        owner = pin.candidate
        if not isinstance(owner, PipCandidate) or owner.release is None or owner.key.extras:
            continue
        for bound in bounds_about(book, owner.key.name):
            key, because = pip_key(bound.package), bound.because(owner.release)
            bounded = found.get(key)
            if bounded is None or not bound.applies_to(book, owner.release) or any(reason.because == because for reason in bounded.reasons):
                continue
            reason = Reason(text=str(bound.requirement), because=because, parent=str(owner), parent_key=owner.key, key=key)
            found[key] = Pin(candidate=bounded.candidate, reasons=(*bounded.reasons, reason))
    return found


def _installed_cudnn_pin(universe: Universe, in_folder: CudnnCandidate, pins: Sequence[PipPin]) -> Iterator[PipPin]:
    """Pin of the installed cuDNN wheel next to one in a folder, so that a lock or an installer of pins only does not lose it."""
    wheel = in_folder.build.wheel or ""
    installed = universe.machine.pip.get(wheel)
    if installed is None or any(pin.name == wheel for pin in pins):
        return
    because = f"installed packages use it; cuDNN {in_folder.version} is in a separate folder"
    reason = Reason(text=f"{wheel}=={installed}", because=because, parent=None)
    yield _wheel_pin(universe, wheel, installed, (reason,)) or PipPin(name=wheel, version=installed, index=None, reasons=(reason,))


def _wheel_pin(universe: Universe, name: str, version: str, reasons: tuple[Reason, ...]) -> PipPin | None:
    release = next((release for release in universe.context.releases.of(name) if release.text == version), None)
    if release is None:
        return None
    index = None if release.index == "default" else release.index
    file = universe.context.offers.file(_offer(universe, release, {}))
    return PipPin(name=release.package, version=release.text, index=index, reasons=reasons, file=file)


def versions_after(book: Book, found: Resolution) -> dict[str, str]:
    """Version of every package after a resolution is applied, without those replaced by another owner of their files."""
    pinned = {pin.name: pin.version for pin in found.pip if pin.version is not None}
    owned = {slot for name in pinned if (slot := book.slot(name)) is not None}
    kept = {name: version for name, version in found.machine.pip.items() if book.slot(name) not in owned}
    return {**kept, **pinned}


def loads_wheels(resolution: Resolution, framework: str) -> bool:
    """True for a framework with the system's cuDNN that finds the CUDA of installed wheels before the system's."""
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
    pin = resolution.pins.get(key) if key is not None else None
    return pin.candidate.version if pin is not None else resolution.cudnn


def _cudnn_of_stack(chosen: CudnnBuild | None, builds: tuple[Build, ...]) -> tuple[str | None, int | None]:
    """Version and soname of the shared cuDNN, otherwise of the newest bundled one."""
    if chosen is not None:
        return str(chosen.version), chosen.soname
    bundled = [build.cudnn for build in builds if build.delivery == "bundled" and build.cudnn is not None]
    if not bundled:
        return None, None
    newest = max(bundled)
    return str(newest), newest.major


def _cuda_of_stack(universe: Universe, pins: Mapping[Key, Pin], runtime: CudaCandidate | None, builds: tuple[Build, ...]) -> str | None:
    """CUDA line of the runtime wheel, otherwise of the chosen runtime, otherwise the newest bundled one."""
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
    """The oldest driver that meets every need, and the reason of the deciding need."""
    oldest: DriverVersion | None = None
    because: str | None = None
    for reason in pins[DRIVER].reasons if DRIVER in pins else ():
        if isinstance(reason.floor, DriverVersion) and (oldest is None or reason.floor > oldest):
            oldest, because = reason.floor, reason.because
    return (str(oldest) if oldest else None), because


def _channels(pins: Mapping[Key, Pin], builds: tuple[Build, ...]) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for build in builds:
        pin = pins.get(LibrariesKey(build.framework))
        chosen = pin.candidate if pin is not None else None
        if build.delivery == "bundled":
            channels[build.framework] = "bundled"
        elif isinstance(chosen, LibrariesCandidate) and chosen.build is build:
            channels[build.framework] = chosen.channel
        elif build.cuda is not None:
            channels[build.framework] = "pip"
    return channels


def _overrides(universe: Universe, pins: Mapping[Key, Pin]) -> list[Override]:
    found: dict[tuple[str, str, str], Override] = {}
    for pin in pins.values():
        for reason in pin.reasons:
            override = _override(universe, pin, reason)
            if override is not None:
                found.setdefault((override.package, override.requested_by, override.declared), override)
    return list(found.values())


def _override(universe: Universe, pin: Pin, reason: Reason) -> Override | None:
    """The override of a declared pin; None if the chosen version obeys it."""
    candidate = pin.candidate
    if not isinstance(candidate, PipCandidate) or candidate.release is None:
        return None
    if reason.obeyed or not reason.binding or reason.declared is None:
        return None
    package, owner = candidate.key.name, reason.requested_by or reason.parent or "?"
    if universe.book.component(package) is None:
        text = f"{owner} was not asked for, and no answer keeps its pin"
    else:
        text = f"read as {reason.text.removeprefix(package)}, which is what the ABI promises"
    others = [other for other in pin.reasons if other.obeyed and other.text != reason.text]
    others.sort(key=lambda other: other.parent_key == reason.parent_key)
    return Override(
        package=package,
        requested_by=owner,
        declared=reason.declared,
        chosen=candidate.version,
        reason=f"{text}; {others[0].because}" if others else text,
    )


def _pip_pins(pins: Mapping[Key, Pin], universe: Universe) -> tuple[list[PipPin], dict[str, str], dict[str, str]]:
    """The pip packages of a resolution: the stack first, then the rest by name.

    With them, package to the error of the index that the matrix names for its variant, and package to why its requirements may be
    incomplete: the build of a source archive could add some.
    """
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
    found = []
    for name, release in releases.items():
        if release is None:
            found.append(PipPin(name=name, version=kept_version(universe, name, reasons[name]), index=None, reasons=reasons[name]))
            continue
        offer = _offer(universe, release, unreached)
        metadata = universe.context.metadata.of(release)
        if metadata is not None and metadata.guessed is not None:
            guessed[name] = metadata.guessed
        found.append(
            PipPin(
                name=name,
                version=release.text,
                index=None if release.index == "default" else release.index,
                reasons=reasons[name],
                build=release.build,
                offer=offer,
                file=universe.context.offers.file(offer),
                requires=tuple(sorted(requires.get(name, ()))),
                direct=universe.request.direct.get(name),
            )
        )
    return sorted(found, key=lambda pin: _rank(pin, universe)), unreached, guessed


def _offer(universe: Universe, release: Release, unreached: dict[str, str]) -> Offer | None:
    try:
        return universe.context.offers.offer(release)
    except IndexUnavailableError as error:
        unreached[release.package] = error.message
        return None


def kept_version(universe: Universe, name: str, reasons: Iterable[Reason]) -> str | None:
    """The installed version of an unlisted package; None, which leaves it to the installer, if a requirement excludes it."""
    installed = universe.machine.pip.get(name)
    version = parse_version(installed) if installed is not None else None
    return None if version is not None and any(excludes(reason.text, version) for reason in reasons) else installed


def _requires(reasons: dict[str, tuple[Reason, ...]]) -> dict[str, set[str]]:
    """Package to the packages that it requires, derived from their reasons."""
    requires: dict[str, set[str]] = {}
    for name, of_package in reasons.items():
        for reason in of_package:
            parent = reason.parent_key
            if isinstance(parent, PipKey) and parent.name in reasons and parent.name != name:
                requires.setdefault(parent.name, set()).add(name)
    return requires


def _rank(pin: PipPin, universe: Universe) -> tuple[int, str]:
    """Sort key: frameworks, cuDNN, CUDA libraries, then the rest."""
    if pin.build is not None:
        return 0, pin.name
    component = universe.book.component(pin.name)
    if component is not None:
        return (1 if component.library == "cudnn" else 2), pin.name
    return 3, pin.name
