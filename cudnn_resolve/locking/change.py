"""What a new lock changes against the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.locking.model import Lock, files_of, marker_text, name_of, version_of

if TYPE_CHECKING:
    from packaging.pylock import Package


class Change(Struct, frozen=True):
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
    return replace(new, tool=replace(new.tool, validation=old.tool.validation))


def _by_name(lock: Lock) -> dict[str, list[Package]]:
    out: dict[str, list[Package]] = {}
    for package in lock.packages:
        out.setdefault(package.name, []).append(package)
    return out


def _versions(entries: list[Package] | None) -> str | None:
    """The versions of the entries of one name, `1.26.4` or `2.6.0, 2.6.0+cu126`; `local` for projects without one."""
    if not entries:
        return None
    return ", ".join(dict.fromkeys(version_of(one) or "local" for one in entries))


def _proof(entries: list[Package]) -> object:
    """What the entries install: digests and places, but not the addresses that files are taken from."""
    return [
        (marker_text(one.marker), sorted((name_of(file), sorted(file.hashes.items())) for file in files_of(one)), one.directory, one.vcs)
        for one in entries
    ]


def _replaced(old: list[Package], new: list[Package]) -> bool:
    """True where a file of one name has two contents."""
    before = {name_of(file): file.hashes for one in old for file in files_of(one)}
    for file in (file for one in new for file in files_of(one)):
        known = before.get(name_of(file), {})
        if any(known.get(name, digest) != digest for name, digest in file.hashes.items()):
            return True
    return False


def _direction(old: list[Package], new: list[Package]) -> str:
    before = max(one.version or Version("0") for one in old)
    after = max(one.version or Version("0") for one in new)
    return "downgraded" if after < before else "upgraded"
