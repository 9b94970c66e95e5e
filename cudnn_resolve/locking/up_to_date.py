"""Is a lock still right? Compare it with the current request, and with a resolution that prefers its pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import first_few
from cudnn_resolve.locking.locked_file import hashes_of
from cudnn_resolve.locking.model import Difference, files_of, name_of, version_of
from cudnn_resolve.locking.select import installed_packages
from cudnn_resolve.resolution.release import excludes, parse_requirement
from cudnn_resolve.version import DriverVersion, same_version

if TYPE_CHECKING:
    from packaging.pylock import Package

    from cudnn_resolve.locking.merge import Answer
    from cudnn_resolve.locking.model import Environment, Lock, LockedRequest, Stack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.source import File, Source
    from cudnn_resolve.resolution.model import PipPin

_NOTHING = "nothing"


def request_differences(locked: LockedRequest, now: LockedRequest) -> Iterator[Difference]:
    """Compare the request that a lock answers with the current one."""
    yield from _requirement_differences("target", locked.targets, now.targets)
    for what, is_constraint in (("requirement", False), ("constraint", True)):
        yield from _requirement_differences(what, _further(locked, constraints=is_constraint), _further(now, constraints=is_constraint))
    for what, before, after in (
        ("limit on CUDA", locked.cuda, now.cuda),
        ("limit on cuDNN", locked.cudnn, now.cudnn),
        ("driver policy", locked.driver_policy, now.driver_policy),
        ("device", locked.device, now.device),
        ("channel", locked.channel, now.channel),
        ("strict pins", "on" if locked.strict_pins else "off", "on" if now.strict_pins else "off"),
    ):
        if before != after:
            yield Difference(what=what, locked=before or _NOTHING, now=after or _NOTHING)


def _further(request: LockedRequest, *, constraints: bool) -> tuple[str, ...]:
    """The further requirements of a request, or its constraints."""
    return tuple(text.removeprefix("-c ") for text in request.requirements if text.startswith("-c ") == constraints)


def _requirement_differences(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[Difference]:
    """Requirements that were added, removed or changed, by package."""
    before, after = _by_name(old), _by_name(new)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            locked = ", ".join(before.get(name, ())) or _NOTHING
            yield Difference(what=f"{what} {name}", locked=locked, now=", ".join(after.get(name, ())) or _NOTHING)


def _by_name(texts: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by package, each in its canonical form."""
    out: dict[str, list[str]] = {}
    for text in texts:
        requirement = parse_requirement(text)
        name = canonicalize_name(requirement.name) if requirement is not None else text
        out.setdefault(name, []).append(str(requirement or text))
    return {name: sorted(set(found)) for name, found in out.items()}


def unmet_request(lock: Lock, frameworks: Iterable[str], limits: Mapping[str, str | None], book: Book) -> Iterator[Difference]:
    """Requested frameworks that the lock does not have, and limits on `cuda` and `cudnn` that it does not respect."""
    for text in frameworks:
        wanted = parse_requirement(text)
        if wanted is None:
            continue
        name = canonicalize_name(wanted.name)
        family = str(book.framework_of(name) or name)
        held = [
            entry for entry in lock.packages if name in (entry.name, family) and (book.framework_of(entry.name) or entry.name) == family
        ]
        if not held:
            yield Difference(what=f"framework {wanted.name}", locked="nothing of that name", now=text)
        for entry in held:
            if entry.version is not None and not wanted.specifier.contains(entry.version, prereleases=True):
                yield Difference(what=f"framework {wanted.name}", locked=f"{entry.name} {entry.version}", now=text)
    for which, limit in limits.items():
        for stack in lock.stacks if limit else ():
            found = stack.cuda if which == "cuda" else stack.cudnn
            if found is not None and not SpecifierSet(limit or "").contains(found, prereleases=True):
                label = {"cuda": "CUDA", "cudnn": "cuDNN"}[which]
                yield Difference(what=which, locked=f"{label} {found}", now=f"{label} {limit}")


def resolution_differences(lock: Lock, answers: Sequence[Answer], source: Source | None = None) -> tuple[Difference, ...]:
    """Compare a lock with a new resolution for each platform that prefers the lock's pins.

    A difference on every platform is reported once.
    """
    platforms: dict[Difference, list[str]] = {}
    for answer in answers:
        for difference in _platform_differences(lock, answer, source):
            platforms.setdefault(difference, []).append(answer.stack.platform)
    return tuple(
        difference if len(names) == len(answers) else replace(difference, what=f"{difference.what} ({', '.join(names)})")
        for difference, names in platforms.items()
    )


def _platform_differences(lock: Lock, answer: Answer, source: Source | None) -> Iterator[Difference]:
    machine = answer.resolution.machine
    locked = installed_packages(lock, machine)
    pins = {pin.name: pin for pin in answer.resolution.pip if pin.version is not None}
    unknown = {pin.name for pin in answer.resolution.pip if pin.version is None}
    for name in sorted({*locked, *pins} - unknown):
        yield from _package_differences(name, locked.get(name), pins.get(name), source)
    old = lock.stack(answer.stack.platform)
    if old is not None:
        moved = {name for name in {*locked, *pins} if not _is_same(locked.get(name), pins.get(name))}
        yield from _override_differences(old, answer.stack, moved)
        if not moved:
            yield from _stack_differences(old, answer.stack)


def _package_differences(name: str, entry: Package | None, pin: PipPin | None, source: Source | None) -> Iterator[Difference]:
    if entry is None:
        assert pin is not None
        yield Difference(what=name, locked="not in the lock", now=pin.version or "", because=_reason(pin, None))
    elif pin is None:
        yield Difference(what=name, locked=version_of(entry) or "local", now="not needed")
    elif not _is_same(entry, pin):
        because = _withdrawal(name, entry, source) or _reason(pin, version_of(entry))
        yield Difference(what=name, locked=version_of(entry) or "local", now=pin.version or "", because=because)
    else:
        yield from _file_differences(entry, pin)


def _is_same(entry: Package | None, pin: PipPin | None) -> bool:
    """True if the pin has the locked version, in the spelling of the matrix or of the index."""
    if entry is None or pin is None:
        return False
    versions = (pin.version, pin.offer.version if pin.offer is not None else None)
    return entry.version is None or any(text is not None and same_version(text, str(entry.version)) for text in versions)


def _reason(pin: PipPin, locked: str | None) -> str | None:
    """The requirement that excludes the locked version; for a package that is not locked, the first one that needs it."""
    relevant = (reason for reason in pin.reasons if locked is None or excludes(reason.text.replace(" ", ""), locked))
    return next((f"{reason.text}: {reason.because}" for reason in relevant), None)


def _withdrawal(name: str, entry: Package, source: Source | None) -> str | None:
    """Why the locked release was yanked; None if it was not."""
    listing = source.listing(name) if source is not None and entry.index is not None else None
    for offer in listing.offers if listing is not None else ():
        if entry.version is not None and same_version(offer.version, str(entry.version)):
            reasons = [file.yanked for file in offer.files if file.yanked is not None]
            if reasons and len(reasons) == len(offer.files):
                return f"{name} {entry.version} was withdrawn: {next(filter(None, reasons), 'no reason given')}"
            return None
    return None


def _file_differences(entry: Package, pin: PipPin) -> Iterator[Difference]:
    """Locked files that the index now serves with other content, no longer lists, or has yanked."""
    if pin.offer is None or entry.index is None:
        return
    offered: dict[str, File] = {file.filename: file for file in pin.offer.files}
    what = f"{entry.name} {entry.version}"
    gone = []
    for file in files_of(entry):
        current = offered.get(name_of(file))
        if current is None:
            gone.append(name_of(file))
            continue
        locked, now = file.hashes, hashes_of(current)
        changed = next((name for name in sorted({*locked} & {*now}) if locked[name] != now[name]), None)
        if changed is not None:
            because = f"{name_of(file)} has changed on the index since it was locked"
            yield Difference(what=what, locked=f"{changed} {locked[changed]}", now=f"{changed} {now[changed]}", because=because)
    if gone:
        yield Difference(what=what, locked=first_few(gone, 1), now="no longer on the index")
    if pin.file is not None and pin.file.yanked is not None:
        yield Difference(what=what, locked="offered", now=f"withdrawn: {pin.file.yanked or 'no reason given'}")


def _stack_differences(old: Stack, new: Stack) -> Iterator[Difference]:
    """Decisions of the matrix that have changed, although every package is the same."""
    if old.cuda != new.cuda:
        yield Difference(what="CUDA", locked=old.cuda or _NOTHING, now=new.cuda or _NOTHING)
    if old.cudnn != new.cudnn:
        yield Difference(what="cuDNN", locked=old.cudnn or _NOTHING, now=new.cudnn or _NOTHING)
    if new.driver_min is not None and (old.driver_min is None or DriverVersion(new.driver_min) > DriverVersion(old.driver_min)):
        yield Difference(what="oldest driver", locked=old.driver_min or "unknown", now=new.driver_min)
    lost = [capability for capability in old.compute_capabilities if capability not in new.compute_capabilities]
    if lost and new.compute_capabilities:
        locked, now = (", ".join(stack.compute_capabilities) for stack in (old, new))
        yield Difference(what="compute capabilities", locked=locked, now=now)
    before, after = ({pin.name: pin.version for pin in stack.apt} for stack in (old, new))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Difference(what=f"apt package {name}", locked=before.get(name, "not in the lock"), now=after.get(name, "not needed"))
    old_ways, new_ways = ([_loader_text(entry) for entry in stack.environment] for stack in (old, new))
    if old_ways != new_ways:
        yield Difference(what="loader setup", locked=", ".join(old_ways) or _NOTHING, now=", ".join(new_ways) or _NOTHING)


def _loader_text(entry: Environment) -> str:
    text = f"{entry.kind} {entry.value}".rstrip()
    return f"{text} with {entry.wheel.name} {entry.wheel.version}" if entry.wheel is not None else text


def _override_differences(old: Stack, new: Stack, moved: set[str]) -> Iterator[Difference]:
    """Overrides that have changed, except of packages that have moved."""
    before, after = ({(one.package, one.requested_by): one for one in stack.overrides} for stack in (old, new))
    for package, requested_by in sorted({*before, *after}):
        locked, now = before.get((package, requested_by)), after.get((package, requested_by))
        if package in moved or (locked is not None and now is not None and (locked.declared, locked.chosen) == (now.declared, now.chosen)):
            continue
        yield Difference(
            what=f"override of {package} for {requested_by}",
            locked=f"{locked.chosen} instead of {locked.declared}" if locked is not None else _NOTHING,
            now=f"{now.chosen} instead of {now.declared}" if now is not None else _NOTHING,
            because=now.reason if now is not None else None,
        )
