"""Pins of installed packages outside a plan that the plan leaves unmet, formally or in a way that may break them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.model import Override
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.pin_override import abi_range, contains
from cudnn_resolve.resolution.release import excludes, parse_version
from cudnn_resolve.resolution.release_catalog import catalog_of
from cudnn_resolve.resolution.unmet import Unmet, unmet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.model import Reason, Resolution


class UnmetPin(Struct, frozen=True, kw_only=True):
    """A pin of an installed package that a plan leaves unmet."""

    requirement: Unmet
    installed: str | None
    """Installed version of the pinned package."""
    abi_range: str | None
    """ABI range that the pin is read as, if the planned version is in it."""
    unmet_before: bool
    """True if the pin was unmet before the plan, too."""


def unmet_pins(machine: Machine, book: Book, pip: Sequence[PipAction], requires: Mapping[str, tuple[str, ...]]) -> tuple[UnmetPin, ...]:
    """Return the unmet pins of installed packages outside the plan on packages that the plan changes."""
    changed = {
        action.name: None if action.action == "remove" else action.version for action in pip if action.action not in ("keep", "install")
    }
    if not changed:
        return ()
    planned = {action.name for action in pip}
    after = {name: version for name, version in {**machine.pip, **changed}.items() if version is not None}
    outside = {name: lines for name, lines in requires.items() if name not in planned}
    found = (requirement for requirement in unmet(outside, after, machine) if requirement.name in changed)
    return tuple(_unmet_pin(requirement, machine.pip.get(requirement.name), book) for requirement in found)


def _unmet_pin(requirement: Unmet, installed: str | None, book: Book) -> UnmetPin:
    component, specifier = book.component(requirement.name), requirement.requirement.specifier
    range_text, is_in_range = abi_range(component, specifier) if component is not None else (None, contains(specifier))
    new, old = parse_version(requirement.found or ""), parse_version(installed or "")
    is_abi_met = new is not None and is_in_range(new)
    was_met = old is not None and (specifier.contains(old, prereleases=True) if is_abi_met else is_in_range(old))
    return UnmetPin(requirement=requirement, installed=installed, abi_range=range_text if is_abi_met else None, unmet_before=not was_met)


def unmet_overrides(pins: Iterable[UnmetPin], known: Sequence[Override], reasons: Mapping[str, Sequence[Reason]]) -> Iterator[Override]:
    """Newly unmet pins as overrides, without the known ones; `reasons` maps each package to the reasons behind its version."""
    known_keys = {(override.package, override.requested_by.removesuffix(" (installed)"), override.declared) for override in known}
    for pin in pins:
        requirement, declared = pin.requirement, str(pin.requirement.requirement.specifier)
        if pin.unmet_before or (requirement.name, requirement.who, declared) in known_keys:
            continue
        reason = f"{requirement.by} was not requested, so the plan may break its pin"
        if pin.abi_range:
            reason = f"read as {pin.abi_range}, which is what the ABI promises"
        because = _because(reasons.get(requirement.name, ()), pin.installed)
        yield Override(
            package=requirement.name,
            requested_by=requirement.who,
            declared=declared,
            chosen=requirement.found or "removed",
            reason=f"{reason}; {because}" if because else reason,
        )


def _because(reasons: Sequence[Reason], installed: str | None) -> str | None:
    """Reason for a new version: the first requirement that excludes the installed one, else the first."""
    version = parse_version(installed or "")
    excluding = (reason.because for reason in reasons if version is not None and excludes(reason.text, version))
    return next(excluding, reasons[0].because if reasons else None)


def unmet_warnings(pins: Sequence[UnmetPin]) -> Iterator[Warning]:
    """Warn of pins that no ABI range excuses: first those that the plan breaks, then those that were unmet before."""
    unexcused = [pin for pin in pins if pin.abi_range is None]
    for pin in unexcused:
        if not pin.unmet_before:
            requirement = pin.requirement
            change = "is removed" if requirement.found is None else f"becomes {requirement.found}"
            yield Warning(code="breaks", message=f"{requirement.text}; {requirement.name} {pin.installed} {change}")
    for pin in unexcused:
        if pin.unmet_before:
            message = f"{pin.requirement.text} but {pin.installed} is installed; this was so before the plan"
            yield Warning(code="broken-before", message=message)


def installed_requires(resolution: Resolution, book: Book) -> Mapping[str, tuple[str, ...]]:
    """Requires-Dist of installed packages as read on the machine, else as the matrix has it for frameworks and their companions."""
    machine = resolution.machine
    if machine.requires:
        return machine.requires
    catalog = catalog_of(book, machine, open_request(resolution.request))
    heads = map(book.head, book.frameworks())
    names = {name for head in heads for name in (*head.packages, *head.companions)}
    found = {name: catalog.releases.installed(name) for name in names if name in machine.pip}
    return {name: catalog.metadata.requires(release) for name, release in found.items() if release is not None}
