"""What a new lock changes against the old one."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.locking.model import Lock, LockedPackage, Tool


class Change(NamedTuple):
    """What happens to one package."""

    name: str
    action: str
    """`added`, `removed`, `upgraded`, `downgraded`, `files` (the same version has other files) or `replaced`.

    `replaced`: a file of the same name has other contents, which no index should do.
    """
    old: str | None
    new: str | None


def changes(old: Lock | None, new: Lock) -> tuple[Change, ...]:
    """What the new lock changes, by name."""
    before = _by_name(old) if old is not None else {}
    after = _by_name(new)
    out = []
    for name in sorted({*before, *after}):
        here, there = before.get(name), after.get(name)
        if here is None or there is None:
            out.append(Change(name, "added" if here is None else "removed", _versions(here), _versions(there)))
        elif _versions(here) != _versions(there):
            out.append(Change(name, _direction(here, there), _versions(here), _versions(there)))
        elif _proof(here) != _proof(there):
            action = "replaced" if _replaced(here, there) else "files"
            out.append(Change(name, action, _versions(here), _versions(there)))
    return tuple(out)


def with_records(new: Lock, old: Lock | None) -> Lock:
    """The new lock with the records of tests of the old one, where both install the very same files."""
    if old is None or old.tool is None or new.tool is None or not old.tool.validation or changes(old, new):
        return new
    tool: Tool = replace(new.tool, validation=old.tool.validation)
    return replace(new, tool=tool)


def _by_name(lock: Lock) -> dict[str, list[LockedPackage]]:
    out: dict[str, list[LockedPackage]] = {}
    for package in lock.packages:
        out.setdefault(package.name, []).append(package)
    return out


def _versions(entries: list[LockedPackage] | None) -> str | None:
    """The versions of the entries of one name, `1.26.4` or `2.6.0, 2.6.0+cu126`; `local` for projects without one."""
    if not entries:
        return None
    return ", ".join(dict.fromkeys(one.version or "local" for one in entries))


def _proof(entries: list[LockedPackage]) -> object:
    """What the entries install: digests and places, but not the addresses that files are taken from."""
    return [
        (
            one.marker,
            {(file.name, file.hashes) for file in (*one.wheels, one.sdist, one.archive) if file is not None},
            one.directory,
            one.vcs,
        )
        for one in entries
    ]


def _replaced(old: list[LockedPackage], new: list[LockedPackage]) -> bool:
    """True where a file of one name has two contents."""
    before = {file.name: dict(file.hashes) for one in old for file in (*one.wheels, one.sdist, one.archive) if file is not None}
    for file in (file for one in new for file in (*one.wheels, one.sdist, one.archive) if file is not None):
        known = before.get(file.name, {})
        if any(known.get(name, digest) != digest for name, digest in file.hashes):
            return True
    return False


def _direction(old: list[LockedPackage], new: list[LockedPackage]) -> str:
    try:
        before = max(Version(one.version or "0") for one in old)
        after = max(Version(one.version or "0") for one in new)
    except InvalidVersion:
        return "upgraded"
    return "downgraded" if after < before else "upgraded"
