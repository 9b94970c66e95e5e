"""Is a lock still the right answer? Held against what is asked for now, and against a resolution that prefers its pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.locking.file import hashes_of
from cudnn_resolve.locking.model import Difference, files_of, name_of, version_of
from cudnn_resolve.locking.select import applies
from cudnn_resolve.resolution.release import parse_requirement
from cudnn_resolve.version import DriverVersion, same_version

if TYPE_CHECKING:
    from packaging.pylock import Package

    from cudnn_resolve.locking.merge import Answer
    from cudnn_resolve.locking.model import Asked, Environment, Lock, Stack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.source import File, Source
    from cudnn_resolve.resolution.model import PipPin

NOTHING = "nothing"


def asked_otherwise(locked: Asked, now: Asked) -> Iterator[Difference]:
    """In what a request differs from the one that a lock is the answer to."""
    for what, old, new in (
        ("target", locked.targets, now.targets),
        ("requirement", _required(locked, constraints=False), _required(now, constraints=False)),
        ("constraint", _required(locked, constraints=True), _required(now, constraints=True)),
    ):
        yield from _texts(what, old, new)
    for what, before, after in (
        ("limit on CUDA", locked.cuda, now.cuda),
        ("limit on cuDNN", locked.cudnn, now.cudnn),
        ("driver policy", locked.driver_policy, now.driver_policy),
        ("device", locked.device, now.device),
        ("channel", locked.channel, now.channel),
        ("strict pins", "on" if locked.strict_pins else "off", "on" if now.strict_pins else "off"),
    ):
        if before != after:
            yield Difference(what=what, locked=before or NOTHING, now=after or NOTHING)


def unmet(lock: Lock, frameworks: Iterable[str], limits: Mapping[str, str | None], book: Book) -> Iterator[Difference]:
    """What is asked for and the lock does not hold: frameworks, and limits on `cuda` and `cudnn`."""
    for text in frameworks:
        wanted = parse_requirement(text)
        if wanted is None:
            continue
        name = canonicalize_name(wanted.name)
        family = str(book.framework_of(name) or name)
        held = [one for one in lock.packages if name in (one.name, family) and (book.framework_of(one.name) or one.name) == family]
        if not held:
            yield Difference(what=f"framework {wanted.name}", locked="nothing of that name", now=text)
        for one in held:
            if one.version is not None and not wanted.specifier.contains(one.version, prereleases=True):
                yield Difference(what=f"framework {wanted.name}", locked=f"{one.name} {one.version}", now=text)
    for which, limit in limits.items():
        for stack in lock.stacks if limit else ():
            found = stack.cuda if which == "cuda" else stack.cudnn
            if found is not None and not SpecifierSet(limit or "").contains(found, prereleases=True):
                label = {"cuda": "CUDA", "cudnn": "cuDNN"}[which]
                yield Difference(what=which, locked=f"{label} {found}", now=f"{label} {limit}")


def _required(asked: Asked, *, constraints: bool) -> tuple[str, ...]:
    """The further requirements, or the constraints, of a request."""
    return tuple(one.removeprefix("-c ") for one in asked.requirements if one.startswith("-c ") == constraints)


def _texts(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[Difference]:
    """Requirements that are gone, new, or say something else of the same package."""
    before, after = _by_name(old), _by_name(new)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            locked = ", ".join(before.get(name, ())) or NOTHING
            yield Difference(what=f"{what} {name}", locked=locked, now=", ".join(after.get(name, ())) or NOTHING)


def _by_name(texts: Iterable[str]) -> dict[str, list[str]]:
    """Requirements by the package they are about, each in one form whatever blanks it is written with."""
    out: dict[str, list[str]] = {}
    for text in texts:
        requirement = parse_requirement(text)
        name = canonicalize_name(requirement.name) if requirement is not None else text
        out.setdefault(name, []).append(str(requirement or text))
    return {name: sorted(set(found)) for name, found in out.items()}


def outdated(lock: Lock, answers: Sequence[Answer], source: Source | None = None) -> tuple[Difference, ...]:
    """What comes out otherwise now that everything is resolved again with the pins of the lock preferred.

    One answer for each platform; what differs on every platform alike is said once.
    """
    found: dict[Difference, list[str]] = {}
    for answer in answers:
        for difference in _of_platform(lock, answer, source):
            found.setdefault(difference, []).append(answer.stack.platform)
    return tuple(
        one
        if len(platforms) == len(answers)
        else Difference(what=f"{one.what} ({', '.join(platforms)})", locked=one.locked, now=one.now, because=one.because)
        for one, platforms in found.items()
    )


def _of_platform(lock: Lock, answer: Answer, source: Source | None) -> Iterator[Difference]:
    locked: dict[str, Package] = {one.name: one for one in lock.packages if applies(one.marker, lock, answer.resolution.machine)}
    pins = {pin.name: pin for pin in answer.resolution.pip if pin.version is not None}
    unknown = {pin.name for pin in answer.resolution.pip if pin.version is None}
    for name in sorted({*locked, *pins} - unknown):
        yield from _package(name, locked.get(name), pins.get(name), source)
    old = lock.stack(answer.stack.platform)
    if old is not None:
        moved = {name for name in {*locked, *pins} if not _same(locked.get(name), pins.get(name))}
        yield from _stack(old, answer.stack, moved)


def _same(entry: Package | None, pin: PipPin | None) -> bool:
    return entry is not None and pin is not None and (entry.version is None or _is_version(str(entry.version), pin))


def _package(name: str, entry: Package | None, pin: PipPin | None, source: Source | None) -> Iterator[Difference]:
    if entry is None:
        assert pin is not None
        yield Difference(what=name, locked="not in the lock", now=pin.version or "", because=_why(pin, None))
    elif pin is None:
        yield Difference(what=name, locked=version_of(entry) or "local", now="not needed")
    elif not _same(entry, pin):
        because = _withdrawn(name, entry, source) or _why(pin, version_of(entry))
        yield Difference(what=name, locked=version_of(entry) or "local", now=pin.version or "", because=because)
    else:
        yield from _files(entry, pin)


def _is_version(text: str, pin: PipPin) -> bool:
    """True where the pin is of that version, as the matrix or as the index writes it."""
    others = (pin.version, pin.offer.version if pin.offer is not None else None)
    return any(other is not None and same_version(other, text) for other in others)


def _why(pin: PipPin, locked: str | None) -> str | None:
    """The requirement that refuses the locked version; for a package that is new in the lock, the first one that brings it."""
    return next((f"{one.text}: {one.because}" for one in pin.reasons if locked is None or _refuses(one.text, locked)), None)


def _refuses(text: str, version: str) -> bool:
    requirement = parse_requirement(text.replace(" ", ""))
    return requirement is not None and not requirement.specifier.contains(version, prereleases=True)


def _withdrawn(name: str, entry: Package, source: Source | None) -> str | None:
    """Why the locked release was taken back by its makers, in words; None where it was not."""
    listing = source.listing(name) if source is not None and entry.index is not None else None
    for offer in listing.offers if listing is not None else ():
        if entry.version is not None and same_version(offer.version, str(entry.version)):
            reasons = [file.yanked for file in offer.files if file.yanked is not None]
            if reasons and len(reasons) == len(offer.files):
                return f"{name} {entry.version} was withdrawn: {next(filter(None, reasons), 'no reason given')}"
            return None
    return None


def _files(entry: Package, pin: PipPin) -> Iterator[Difference]:
    """Files of the lock that the index now gives with other contents, does not list any more, or lists as withdrawn."""
    if pin.offer is None or entry.index is None:
        return
    now: dict[str, File] = {file.filename: file for file in pin.offer.files}
    what = f"{entry.name} {entry.version}"
    gone = []
    for file in files_of(entry):
        other = now.get(name_of(file))
        if other is None:
            gone.append(name_of(file))
            continue
        locked, here = file.hashes, hashes_of(other)
        for name in sorted({*locked} & {*here}):
            if locked[name] != here[name]:
                because = f"{name_of(file)} has changed on the index since it was locked"
                yield Difference(what=what, locked=f"{name} {locked[name]}", now=f"{name} {here[name]}", because=because)
                break
    if gone:
        yield Difference(
            what=what, locked=gone[0] + (f" and {len(gone) - 1} more" if len(gone) > 1 else ""), now="not on the index any more"
        )
    chosen = pin.file
    if chosen is not None and chosen.yanked is not None:
        yield Difference(what=what, locked="offered", now=f"withdrawn: {chosen.yanked or 'no reason given'}")


def _stack(old: Stack, new: Stack, moved: set[str]) -> Iterator[Difference]:
    """What the matrix says otherwise now, where it is not the consequence of a package that is another one."""
    yield from _overrides(old, new, moved)
    if moved:
        return
    if old.cuda != new.cuda:
        yield Difference(what="CUDA", locked=old.cuda or NOTHING, now=new.cuda or NOTHING)
    if old.cudnn != new.cudnn:
        yield Difference(what="cuDNN", locked=old.cudnn or NOTHING, now=new.cudnn or NOTHING)
    if _rose(old.driver_min, new.driver_min):
        yield Difference(what="oldest driver", locked=old.driver_min or "not known", now=new.driver_min or "")
    lost = [one for one in old.compute_capabilities if one not in new.compute_capabilities]
    if lost and new.compute_capabilities:
        now = ", ".join(new.compute_capabilities)
        yield Difference(what="compute capabilities", locked=", ".join(old.compute_capabilities), now=now)
    before, after = {one.name: one.version for one in old.apt}, {one.name: one.version for one in new.apt}
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Difference(what=f"apt package {name}", locked=before.get(name, "not in the lock"), now=after.get(name, "not needed"))
    ways, others = ([_way(one) for one in stack.environment] for stack in (old, new))
    if ways != others:
        shown = [", ".join(found) or NOTHING for found in (ways, others)]
        yield Difference(what="how the libraries are found", locked=shown[0], now=shown[1])


def _way(one: Environment) -> str:
    text = f"{one.kind} {one.value}".rstrip()
    return f"{text} with {one.wheel.name} {one.wheel.version}" if one.wheel is not None else text


def _rose(old: str | None, new: str | None) -> bool:
    return new is not None and (old is None or DriverVersion(new) > DriverVersion(old))


def _overrides(old: Stack, new: Stack, moved: set[str]) -> Iterator[Difference]:
    before = {(one.package, one.requested_by): one for one in old.overrides}
    after = {(one.package, one.requested_by): one for one in new.overrides}
    for key in sorted({*before, *after}):
        one, other = before.get(key), after.get(key)
        if key[0] in moved or (one is not None and other is not None and (one.declared, one.chosen) == (other.declared, other.chosen)):
            continue
        yield Difference(
            what=f"override of {key[0]} for {key[1]}",
            locked=f"{one.chosen} instead of {one.declared}" if one is not None else NOTHING,
            now=f"{other.chosen} instead of {other.declared}" if other is not None else NOTHING,
            because=other.reason if other is not None else None,
        )
