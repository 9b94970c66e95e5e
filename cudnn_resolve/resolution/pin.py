"""The pip packages of a solve, with the files that carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.resolution.model import Pin, PipPin, Reason
from cudnn_resolve.resolution.release import Release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudnn_resolve.requirement.source import File, Offer
    from cudnn_resolve.resolution.universe import Universe


class Pins(Struct, frozen=True, kw_only=True):
    """All pip packages of a solve."""

    pins: tuple[PipPin, ...]
    unreached: dict[str, str]
    """Package to why its files could not be listed: the index that the matrix names for its variant does not answer."""
    guessed: dict[str, str]
    """Package to why its requirements may not be all: a source archive whose build could add some."""


def pip_pins(pins: dict[str, Pin], universe: Universe) -> Pins:
    """The pip packages of a solve: the stack first, then the rest by name."""
    reasons: dict[str, tuple[Reason, ...]] = {}
    releases: dict[str, Release | None] = {}
    for pin in pins.values():
        candidate = pin.candidate
        if candidate.kind == "unlisted":
            releases.setdefault(str(candidate.payload), None)
            reasons.setdefault(str(candidate.payload), pin.reasons)
        elif candidate.kind == "pip":
            release: Release = candidate.payload
            releases[release.package] = release
            reasons[release.package] = (*reasons.get(release.package, ()), *pin.reasons)
    unreached: dict[str, str] = {}
    guessed: dict[str, str] = {}
    requires = _requires(reasons)
    out = []
    for name, one in releases.items():
        if one is None:
            out.append(PipPin(name=name, version=kept_version(universe, name, reasons[name]), index=None, reasons=reasons[name]))
            continue
        offer = _offer(universe, one, unreached)
        metadata = universe.shelf.metadata(one)
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
        return universe.shelf.offer(release)
    except IndexUnavailableError as error:
        unreached[release.package] = error.message
        return None


def _file(universe: Universe, offer: Offer | None) -> File | None:
    return universe.shelf.file(offer) if offer is not None else None


def kept_version(universe: Universe, name: str, reasons: Iterable[Reason]) -> str | None:
    """Return the installed version of an unlisted package; None, which leaves it to the installer, where a requirement excludes it."""
    version = universe.machine.pip.get(name)
    return None if version is None or any(_excludes(reason.text, version) for reason in reasons) else version


def _excludes(requirement: str, version: str) -> bool:
    try:
        return not Requirement(requirement).specifier.contains(version, prereleases=True)
    except (InvalidRequirement, InvalidVersion):
        return False


def _requires(reasons: dict[str, tuple[Reason, ...]]) -> dict[str, set[str]]:
    """Package to the packages that it requires, told by the reasons of those."""
    out: dict[str, set[str]] = {}
    for name, all_of in reasons.items():
        for reason in all_of:
            parent = (reason.parent_name or "").removeprefix("pip:").partition("[")[0]
            if parent in reasons and parent != name:
                out.setdefault(parent, set()).add(name)
    return out


def _rank(pin: PipPin, universe: Universe) -> tuple[int, str]:
    """The stack first: frameworks, cuDNN, CUDA libraries; then the rest."""
    if pin.build is not None:
        return 0, pin.name
    component = universe.book.component(pin.name)
    if component is not None:
        return (1 if component.library == "cudnn" else 2), pin.name
    return 3, pin.name
