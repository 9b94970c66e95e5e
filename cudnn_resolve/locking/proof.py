"""Records of tests that passed: on which cards the pins of a lock are proven to work, and whether they still are those pins.

A record is a table of texts, numbers, truth values and lists of them. `gpu` (its name), `driver` and `date` say what is shown of it, `pins`
what the lock was when it was tested, `frameworks` and `loaded` which versions were at work; the rest is whoever's who wrote it. A record
without `pins` proves nothing: it is shown as what somebody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.locking.model import Lock, Stack, files_of, marker_text, name_of, version_of
from cudnn_resolve.version import CudnnVersion

if TYPE_CHECKING:
    from packaging.pylock import Package


class Proof(Struct, frozen=True, kw_only=True):
    """One record, and what it is worth now."""

    words: str
    """The card, its driver and the day, `Tesla T4, driver 550.54.15 (2026-11-21)`."""
    record: Mapping[str, Any]
    because: str | None = None
    """Why it does not speak of the pins that the lock has now; None where it speaks of these."""
    is_open: bool = False
    """True where it does not say what was tested, so that nobody knows whether it speaks of these pins."""

    @property
    def fits(self) -> bool:
        """True where the pins are those that were tested."""
        return self.because is None

    def is_of(self, facts: Facts) -> bool:
        """True where it was tested on a card like one of this machine, with its driver."""
        gpus = () if isinstance(facts.gpus, Unknown) else facts.gpus
        driver = facts.driver.version if isinstance(facts.driver, Driver) else None
        gpu, with_ = _machine(self.record)
        return driver is not None and driver == with_ and any(one.name == gpu for one in gpus)


OPEN = "for which pins it does not say"
NOWHERE = "on which card it does not say"


def with_record(lock: Lock, record: Mapping[str, object]) -> Lock:
    """The lock with a record more, instead of an older one of the same GPU and driver; as it is where another program wrote it.

    Frameworks that were tested beside those of the lock stand apart, below `beside`: that they are not in the lock tells nothing later.
    """
    if lock.tool is None:
        return lock
    kept = (one for one in lock.tool.validation if _machine(one) != _machine(record))
    records = sorted((*kept, {**_apart(lock, record), "pins": digest_of(lock)}), key=lambda one: [str(word) for word in _machine(one)])
    return replace(lock, tool=replace(lock.tool, validation=tuple(records)))


def _apart(lock: Lock, record: Mapping[str, object]) -> dict[str, object]:
    """The record in which `frameworks` holds nothing that the lock does not."""
    tested = record.get("frameworks")
    if not isinstance(tested, Mapping):
        return dict(record)
    locked = {one.name for one in lock.packages}
    beside = {name: version for name, version in tested.items() if name not in locked}
    own = {name: version for name, version in tested.items() if name in locked}
    return {**record, "frameworks": own, **({"beside": beside} if beside else {})}


def proofs(lock: Lock) -> Iterator[Proof]:
    """On what the lock was tested."""
    digest = digest_of(lock)
    for record in lock.tool.validation if lock.tool is not None else ():
        gpu, driver = _machine(record)
        date = record.get("date")
        words = (str(gpu) if gpu else "a machine without a name") + (f", driver {driver}" if driver else "")
        because = _outdated(lock, record, digest)
        is_open = because is None and (not gpu or record.get("pins") != digest)
        if is_open:
            because = OPEN if gpu else NOWHERE
        yield Proof(words=f"{words} ({date})" if date else words, record=record, because=because, is_open=is_open)


def digest_of(lock: Lock) -> str:
    """What a lock installs and sets, in 32 digits: the same for the same packages and files, wherever they are taken from."""
    rows = sorted(line for one in lock.packages for line in _lines(one))
    rows += sorted(line for one in lock.stacks for line in _stack_lines(one))
    from hashlib import sha256

    return sha256("\n".join(rows).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _lines(package: Package) -> Iterator[str]:
    """The words of an entry, which must never change: records of older versions would no longer count."""
    head = f"{package.name} {package.version} {marker_text(package.marker)}"
    place = package.directory
    if place is not None:
        folder = f"LockedDirectory(path={place.path!r}, editable={bool(place.editable)}, subdirectory={place.subdirectory!r})"
    yield f"{head} {folder if place is not None else None} {package.vcs}"
    for file in files_of(package):
        yield f"{head} {name_of(file)} {sorted(file.hashes.items())}"


def _stack_lines(stack: Stack) -> Iterator[str]:
    """What of a stack the packages do not say: cuDNN, packages of the system, variables, and pins against what wheels declare."""
    yield f"{stack.platform} cudnn {stack.cudnn}"
    yield from (f"{stack.platform} apt {one.name} {one.version} {one.repository}" for one in stack.apt)
    yield from (f"{stack.platform} environment {one.kind} {one.value}" for one in stack.environment)
    apart = (one.wheel for one in stack.environment if one.wheel is not None)
    yield from (
        f"{stack.platform} folder {one.name} {one.version} {sorted(one.file.hashes.items()) if one.file else None}" for one in apart
    )
    yield from (f"{stack.platform} override {one.package} {one.chosen} {one.requested_by}" for one in stack.overrides)


def _outdated(lock: Lock, record: Mapping[str, object], digest: str) -> str | None:
    """What is another version now; where the record does not tell versions, that something is."""
    if record.get("pins") == digest:
        return None
    changed = [*_other_frameworks(lock, record), *_other_cudnn(lock, record.get("loaded"))]
    if changed:
        return "; ".join(changed)
    return "packages, files or settings of the lock are others now" if "pins" in record else None


def _other_frameworks(lock: Lock, record: Mapping[str, object]) -> Iterator[str]:
    tested = record.get("frameworks")
    locked: dict[str, set[str]] = {}
    for one in lock.packages:
        locked.setdefault(one.name, set()).add(_public(version_of(one) or ""))
    for name, version in tested.items() if isinstance(tested, Mapping) else ():
        now = locked.get(str(name))
        if now is None:
            # Whoever told no pins may have told everything that was installed.
            if "pins" in record:
                yield f"{name} is no longer in the lock"
        elif _public(str(version)) not in now:
            yield f"{name} was {version} then and is {', '.join(sorted(now))} now"


def _other_cudnn(lock: Lock, loaded: object) -> Iterator[str]:
    """A cuDNN that is none of those of the lock; a library tells three parts of its version, a lock four."""
    tested = loaded.get("cudnn") if isinstance(loaded, Mapping) else None
    now = {one.cudnn for one in lock.stacks if one.cudnn}
    if not isinstance(tested, str) or not now:
        return
    if not {_numbers(one) for one in tested.split(",")} & {_numbers(one) for one in now}:
        yield f"cuDNN was {tested} then and is {', '.join(sorted(now))} now"


def _public(version: str) -> str:
    return version.partition("+")[0]


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return CudnnVersion(text.strip()).parts[:3]
    except ValueError:
        return ()


def _machine(record: Mapping[str, object]) -> tuple[object, object]:
    return record.get("gpu"), record.get("driver")
