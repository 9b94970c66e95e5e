"""The lock that `validate` holds what it sees against, and into which it writes what was proven."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.errors import InputError, UsageError

if TYPE_CHECKING:
    from packaging.markers import Marker

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.locking.model import Lock
    from cudnn_resolve.validation.model import Validation
    from cudnn_resolve.validation.pinned import Pinned
    from cudnn_resolve.version import CudnnVersion


class Held(Struct, frozen=True, kw_only=True):
    """A lock that was read, and where from."""

    path: str
    lock: Lock
    record: bool
    """What passes goes into it."""


def held_lock(lock: str | None, record: str | None) -> Held | None:
    """The lock that the options name; InputError where it cannot be used, before anything has been tested."""
    if lock and record and lock != record:
        raise UsageError(
            "--lock and --record name two locks: what is proven of one would be written into the other",
            code="usage-contradiction",
            hint="leave --lock out: --record compares, too",
        )
    path = record or lock
    if path is None:
        return None
    from cudnn_resolve.host.files import read_bounded
    from cudnn_resolve.locking.read import LIMIT_BYTES, read

    if record == "-":
        raise UsageError("--record writes into a file, which - is not", code="usage-path", hint="name the lock: --record pylock.toml")
    found = read(read_bounded(path, LIMIT_BYTES, "lock"), path)
    if record and found.tool is None:
        raise InputError(
            f"{path} was written by another program: there is no room in it for what was proven",
            code="lock-foreign",
            hint="`cudnn-resolve lock` writes one",
        )
    return Held(path=path, lock=found, record=bool(record))


def pinned_of(held: Held, facts: Facts) -> Pinned:
    """What the lock pins for this machine and interpreter."""
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.locking.stack import bundled_cudnns
    from cudnn_resolve.operations.pinned_plan import libraries_of, preloaded
    from cudnn_resolve.validation.pinned import Pinned

    book = open_book(())
    lock = held.lock
    platform = f"{facts.platform.system or 'linux'}_{facts.platform.arch or 'x86_64'}"
    stacks = lock.tool.stacks if lock.tool else ()
    stack = next((one for one in stacks if one.platform == platform), stacks[0] if len(stacks) == 1 else None)
    if stack is not None and stack.cudnn is not None:
        _ = parsed_cudnn(stack.cudnn, held.path)
    packages: dict[str, str] = {
        one.name: str(one.version) for one in lock.packages if one.version is not None and _applies(one.marker, facts)
    }
    return Pinned(
        packages=packages,
        cudnn=stack.cudnn if stack else None,
        cudnns=bundled_cudnns(lock, stack, book) if stack else {},
        apt={one.name: one.version for one in stack.apt} if stack else {},
        driver_min=stack.driver_min if stack else None,
        libraries=tuple(libraries_of(packages.items(), book)),
        preload=preloaded(stack.environment) if stack else (),
        mend=shlex.join(["cudnn-resolve", "apply", held.path]),
    )


def parsed_cudnn(text: str, where: str) -> CudnnVersion:
    """The cuDNN of a lock; InputError where it is no version."""
    from cudnn_resolve.version import CudnnVersion

    try:
        return CudnnVersion(text)
    except ValueError:
        message = f"the lock is not valid: cudnn is not what it should be: {text!r:.80}"
        raise InputError(message, code="lock-invalid", context=where) from None


def _applies(marker: Marker | None, facts: Facts) -> bool:
    """True where the marker of an entry holds for the interpreter that is tested."""
    if marker is None:
        return True
    version = facts.python.version or "3.11.0"
    arch = facts.platform.arch or "x86_64"
    environment = {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_name": facts.python.implementation or "cpython",
        "platform_python_implementation": "CPython",
        "implementation_version": version,
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arch,
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }
    return marker.evaluate(environment)


def write_record(held: Held, validation: Validation, python: str | None) -> str:
    """Write a record into the lock for each card on which everything passed; what was recorded, or why nothing was."""
    from cudnn_resolve.host.clock import today
    from cudnn_resolve.host.files import write_atomic
    from cudnn_resolve.locking.proof import with_record
    from cudnn_resolve.locking.write import write
    from cudnn_resolve.validation.pinned import records_of

    records = records_of(validation, today(), python)
    if not records:
        why = "not everything passed" if validation.status == "failed" else "nothing was computed on a GPU"
        return f"{held.path} is left as it is: {why}"
    lock = held.lock
    for record in records:
        lock = with_record(lock, record)
    write_atomic(held.path, write(lock))
    return f"recorded in {held.path}: {', '.join(str(record['gpu']) for record in records)}"
