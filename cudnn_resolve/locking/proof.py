"""Validation records of a lock: the GPUs on which its pins are proven to work, and whether they are still those pins.

A record is a table of strings, numbers, booleans and lists of them. `gpu` (its name), `driver` and `date` are shown; `pins` identifies
the lock that was tested, and `frameworks` and `loaded` the versions in use. The rest belongs to whoever wrote it. A record without
`pins` proves nothing, and is shown as an unverified statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.locking.model import Lock, Stack, files_of, marker_text, name_of, version_of
from cudnn_resolve.version import CudnnVersion, parsed

if TYPE_CHECKING:
    from packaging.pylock import Package


class Proof(Struct, frozen=True, kw_only=True):
    """One record, and what it proves now."""

    words: str
    """GPU, driver and date: `Tesla T4, driver 550.54.15 (2026-11-21)`."""
    record: Mapping[str, Any]
    because: str | None = None
    """Why it does not prove the current pins of the lock; None if it does."""
    is_open: bool = False
    """It does not say what was tested, so that it may or may not prove the current pins."""

    @property
    def fits(self) -> bool:
        """True if the current pins are those that were tested."""
        return self.because is None

    def is_of(self, facts: Facts) -> bool:
        """True if it was tested on a GPU model and a driver of this machine."""
        gpus = () if isinstance(facts.gpus, Unknown) else facts.gpus
        driver = facts.driver.version if isinstance(facts.driver, Driver) else None
        tested_gpu, tested_driver = _machine(self.record)
        return driver is not None and driver == tested_driver and any(gpu.name == tested_gpu for gpu in gpus)


def add_record(lock: Lock, record: Mapping[str, object]) -> Lock:
    """Add a record, replacing an older one of the same GPU and driver; a lock of another program is left as it is.

    Frameworks that were tested, but are not in the lock, are moved to `beside`: their absence will prove nothing later.
    """
    if lock.tool is None:
        return lock
    kept = (old for old in lock.tool.validation if _machine(old) != _machine(record))
    new = {**_with_frameworks_of(lock, record), "pins": lock_digest(lock)}
    records = sorted((*kept, new), key=lambda one: [str(word) for word in _machine(one)])
    return replace(lock, tool=replace(lock.tool, validation=tuple(records)))


def _with_frameworks_of(lock: Lock, record: Mapping[str, object]) -> dict[str, object]:
    """Move frameworks that are not in the lock from `frameworks` to `beside`."""
    tested = record.get("frameworks")
    if not isinstance(tested, Mapping):
        return dict(record)
    locked = {package.name for package in lock.packages}
    beside = {name: version for name, version in tested.items() if name not in locked}
    own = {name: version for name, version in tested.items() if name in locked}
    return {**record, "frameworks": own, **({"beside": beside} if beside else {})}


def proofs(lock: Lock) -> Iterator[Proof]:
    """The validation records of a lock."""
    digest = lock_digest(lock)
    for record in lock.tool.validation if lock.tool is not None else ():
        gpu, driver = _machine(record)
        date = record.get("date")
        words = (str(gpu) if gpu else "an unnamed machine") + (f", driver {driver}" if driver else "")
        because = _changes(lock, record, digest)
        is_open = because is None and (not gpu or record.get("pins") != digest)
        if is_open:
            because = f"the record does not say {'for which pins' if gpu else 'on which GPU'}"
        yield Proof(words=f"{words} ({date})" if date else words, record=record, because=because, is_open=is_open)


def lock_digest(lock: Lock) -> str:
    """32 digits that identify what a lock installs and sets: the same packages and files, regardless of their origin."""
    rows = sorted(line for package in lock.packages for line in _package_lines(package))
    rows += sorted(line for stack in lock.stacks for line in _stack_lines(stack))
    from hashlib import sha256

    return sha256("\n".join(rows).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _package_lines(package: Package) -> Iterator[str]:
    """An entry as text, which must never change: records of older versions would become invalid."""
    head = f"{package.name} {package.version} {marker_text(package.marker)}"
    place = package.directory
    folder = None
    if place is not None:
        folder = f"LockedDirectory(path={place.path!r}, editable={bool(place.editable)}, subdirectory={place.subdirectory!r})"
    yield f"{head} {folder} {package.vcs}"
    for file in files_of(package):
        yield f"{head} {name_of(file)} {sorted(file.hashes.items())}"


def _stack_lines(stack: Stack) -> Iterator[str]:
    """What the packages do not say of a stack: cuDNN, system packages, the loader, and overrides; this text must never change either."""
    yield f"{stack.platform} cudnn {stack.cudnn}"
    for pin in stack.apt:
        yield f"{stack.platform} apt {pin.name} {pin.version} {pin.repository}"
    for entry in stack.environment:
        yield f"{stack.platform} environment {entry.kind} {entry.value}"
        if entry.wheel is not None:
            hashes = sorted(entry.wheel.file.hashes.items()) if entry.wheel.file else None
            yield f"{stack.platform} folder {entry.wheel.name} {entry.wheel.version} {hashes}"
    for override in stack.overrides:
        yield f"{stack.platform} override {override.package} {override.chosen} {override.requested_by}"


def _changes(lock: Lock, record: Mapping[str, object], digest: str) -> str | None:
    """The versions that have changed since the test, or that something has; None if nothing is known to have changed."""
    if record.get("pins") == digest:
        return None
    changed = [*_changed_frameworks(lock, record), *_changed_cudnn(lock, record.get("loaded"))]
    if changed:
        return "; ".join(changed)
    return "packages, files or settings of the lock have changed" if "pins" in record else None


def _changed_frameworks(lock: Lock, record: Mapping[str, object]) -> Iterator[str]:
    tested = record.get("frameworks")
    locked: dict[str, set[str]] = {}
    for package in lock.packages:
        locked.setdefault(package.name, set()).add(_public(version_of(package) or ""))
    for name, version in tested.items() if isinstance(tested, Mapping) else ():
        now = locked.get(str(name))
        if now is None:
            # A record without pins may list everything that was installed.
            if "pins" in record:
                yield f"{name} is no longer in the lock"
        elif _public(str(version)) not in now:
            yield f"{name} was {version} then and is {', '.join(sorted(now))} now"


def _changed_cudnn(lock: Lock, loaded: object) -> Iterator[str]:
    """A loaded cuDNN that the lock no longer has; a library reports three parts of its version, a lock has four."""
    tested = loaded.get("cudnn") if isinstance(loaded, Mapping) else None
    now = {stack.cudnn for stack in lock.stacks if stack.cudnn}
    if not isinstance(tested, str) or not now:
        return
    if not {_three_parts(text) for text in tested.split(",")} & {_three_parts(text) for text in now}:
        yield f"cuDNN was {tested} then and is {', '.join(sorted(now))} now"


def _public(version: str) -> str:
    return version.partition("+")[0]


def _three_parts(text: str) -> tuple[int, ...]:
    version = parsed(CudnnVersion, text.strip())
    return version.parts[:3] if version else ()


def _machine(record: Mapping[str, object]) -> tuple[object, object]:
    return record.get("gpu"), record.get("driver")
