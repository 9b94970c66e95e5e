"""Pins of installed packages outside a plan that it leaves unmet: on paper alone, or so that they may break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.model import Override
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.pin_override import abi_range, contains
from cudnn_resolve.resolution.release import parse_requirement, parse_version
from cudnn_resolve.resolution.releases import catalog_of
from cudnn_resolve.resolution.unmet import Unmet, unmet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.model import Reason, Resolution


class LeftPin(Struct, frozen=True, kw_only=True):
    """A pin of an installed package that a plan leaves unmet."""

    pin: Unmet
    was: str | None
    """The version that is installed of what it is about."""
    read: str | None
    """The range that the ABI allows in its place, where that is met."""
    before: bool
    """True where it was unmet before the plan."""


def left_pins(machine: Machine, book: Book, pip: Sequence[PipAction], requires: Mapping[str, tuple[str, ...]]) -> tuple[LeftPin, ...]:
    """The pins of installed packages that are not in the plan, on what it changes."""
    changed = {one.name: None if one.action == "remove" else one.version for one in pip if one.action not in ("keep", "install")}
    if not changed:
        return ()
    planned = {one.name for one in pip}
    after = {name: version for name, version in {**machine.pip, **changed}.items() if version is not None}
    outside = {name: lines for name, lines in requires.items() if name not in planned}
    return tuple(_left(one, machine.pip.get(one.name), book) for one in unmet(outside, after, machine) if one.name in changed)


def _left(one: Unmet, was: str | None, book: Book) -> LeftPin:
    component, spec = book.component(one.name), one.requirement.specifier
    read, test = abi_range(component, spec) if component is not None else (None, contains(spec))
    now, then = (parse_version(text or "") for text in (one.found, was))
    is_read = now is not None and test(now)
    before = then is None or not (spec.contains(then, prereleases=True) if is_read else test(then))
    return LeftPin(pin=one, was=was, read=read if is_read else None, before=before)


def left_overrides(left: Iterable[LeftPin], known: Sequence[Override], reasons: Mapping[str, Sequence[Reason]]) -> Iterator[Override]:
    """The same as overrides, without those that are known; `reasons`: why each package has its version."""
    told = {(one.package, one.requested_by.removesuffix(" (installed)"), one.declared) for one in known}
    for one in left:
        pin, declared = one.pin, str(one.pin.requirement.specifier)
        if one.before or (pin.name, pin.who, declared) in told:
            continue
        text = (
            f"read as {one.read}, which is what the ABI promises" if one.read else f"nobody asks for {pin.by}, and the plan leaves its pin"
        )
        because = _because(reasons.get(pin.name, ()), one.was)
        reason = f"{text}; {because}" if because else text
        yield Override(package=pin.name, requested_by=pin.who, declared=declared, chosen=pin.found or "removed", reason=reason)


def _because(reasons: Sequence[Reason], was: str | None) -> str | None:
    """The reason for a new version: the first that turns the old one down, else the first."""
    version = parse_version(was or "")
    for one in reasons:
        wanted = parse_requirement(one.text)
        if wanted is not None and version is not None and not wanted.specifier.contains(version, prereleases=True):
            return one.because
    return reasons[0].because if reasons else None


def left_warnings(left: Sequence[LeftPin]) -> Iterator[Warning]:
    """The pins that are left unmet by every reading; what was so before is said apart."""
    for one in (one for one in left if one.read is None and not one.before):
        done = "is removed" if one.pin.found is None else f"becomes {one.pin.found}"
        yield Warning(code="breaks", message=f"{one.pin.text}; {one.pin.name} {one.was} {done}")
    for one in (one for one in left if one.read is None and one.before):
        yield Warning(code="broken-before", message=f"{one.pin.text} and finds {one.was}: it was so before this plan")


def installed_requires(resolution: Resolution, book: Book) -> Mapping[str, tuple[str, ...]]:
    """Requires-Dist of installed packages: as read on the machine, else what the matrix knows of frameworks and their companions."""
    machine = resolution.machine
    if machine.requires:
        return machine.requires
    catalog = catalog_of(book, machine, opened(resolution.request))
    names: set[str] = set()
    for framework in book.frameworks():
        head = book.head(framework)
        names.update(name for name in (*head.packages, *head.companions) if name in machine.pip)
    out: dict[str, tuple[str, ...]] = {}
    for name in names:
        for release in catalog.releases.of(name):
            if release.text == machine.pip[name] or str(release.version) == machine.pip[name]:
                out[name] = tuple(str(requirement) for requirement, _ in catalog.metadata.requirements(release))
                break
    return out
