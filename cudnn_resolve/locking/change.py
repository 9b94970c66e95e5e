"""Compare a new lock with the old one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.locking.model import Lock, files_of, marker_text, name_of, version_of

if TYPE_CHECKING:
    from packaging.pylock import Package


class Change(Struct, frozen=True):
    """The change of one package."""

    name: str
    action: str
    """`added`, `removed`, `upgraded`, `downgraded`, `files` (the same version has other files) or `replaced`.

    `replaced`: a file of the same name has other content, which no index should allow.
    """
    old: str | None
    new: str | None


def changes(old: Lock | None, new: Lock) -> tuple[Change, ...]:
    """The changes from the old lock to the new one, by name."""
    before = _by_name(old) if old is not None else {}
    after = _by_name(new)
    out = []
    for name in sorted({*before, *after}):
        old_entries, new_entries = before.get(name, []), after.get(name, [])
        action = _action(old_entries, new_entries)
        if action is not None:
            out.append(Change(name, action, _versions(old_entries), _versions(new_entries)))
    return tuple(out)


def keep_records(new: Lock, old: Lock | None) -> Lock:
    """Keep the validation records of the old lock if both locks install the very same files."""
    if old is None or old.tool is None or new.tool is None or not old.tool.validation or changes(old, new):
        return new
    return replace(new, tool=replace(new.tool, validation=old.tool.validation))


def _by_name(lock: Lock) -> dict[str, list[Package]]:
    out: dict[str, list[Package]] = {}
    for package in lock.packages:
        out.setdefault(package.name, []).append(package)
    return out


def _action(old: Sequence[Package], new: Sequence[Package]) -> str | None:
    """What happens to the entries of one name; None if they stay."""
    if not old:
        return "added"
    if not new:
        return "removed"
    if _versions(old) != _versions(new):
        return "downgraded" if _newest(new) < _newest(old) else "upgraded"
    if _content(old) != _content(new):
        return "replaced" if _has_replaced_file(old, new) else "files"
    return None


def _versions(entries: Sequence[Package]) -> str | None:
    """Versions of the entries, such as `1.26.4` or `2.6.0, 2.6.0+cu126`; `local` for projects without one."""
    return ", ".join(dict.fromkeys(version_of(entry) or "local" for entry in entries)) or None


def _newest(entries: Sequence[Package]) -> Version:
    return max(entry.version or Version("0") for entry in entries)


def _content(entries: Sequence[Package]) -> object:
    """What the entries install: hashes and local places, but not the URLs of files."""
    return [
        (
            marker_text(entry.marker),
            sorted((name_of(file), sorted(file.hashes.items())) for file in files_of(entry)),
            entry.directory,
            entry.vcs,
        )
        for entry in entries
    ]


def _has_replaced_file(old: Sequence[Package], new: Sequence[Package]) -> bool:
    """True if a file of one name has two contents."""
    before = {name_of(file): file.hashes for entry in old for file in files_of(entry)}
    for file in (file for entry in new for file in files_of(entry)):
        known = before.get(name_of(file), {})
        if any(known.get(name, digest) != digest for name, digest in file.hashes.items()):
            return True
    return False
