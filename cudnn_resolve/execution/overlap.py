"""Files that two packages lay at one place: an installer writes one over the other without a word, so it is found out before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from cudnn_resolve.execution.installed import Installed, listed_files
from cudnn_resolve.execution.wheel import Wheel

if TYPE_CHECKING:
    from cudnn_resolve.host.port import Host

_LARGEST_BYTES = 64 << 20
"""A larger file that two packages have is not compared, and counts as two files."""


def overlaps(
    wheels: Sequence[Wheel], installed: Iterable[Installed], leaving: Collection[str], save: Collection[str], host: Host
) -> tuple[str, ...]:
    """What the wheels lay over files of each other, of packages that stay, or of nobody, in words; equal files do no harm.

    `leaving` are the packages that go, `save` the paths of which something is moved away.
    """
    owners: dict[str, tuple[str, int]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        for path, checksum in wheel.sums.items():
            name, other = owners.setdefault(path, (wheel.name, checksum))
            if name != wheel.name and other != checksum:
                found.setdefault((wheel.name, name), []).append(path)
    nobodys = dict.fromkeys(path for path in save if path in owners)
    for one in installed if owners else ():
        for path in listed_files(host, one):
            nobodys.pop(path, None)
            if one.name not in leaving and path in owners and _checksum(host, path) != owners[path][1]:
                found.setdefault((owners[path][0], one.name), []).append(path)
    for path in nobodys:
        if _checksum(host, path) != owners[path][1]:
            found.setdefault((owners[path][0], ""), []).append(path)
    return tuple(_said(new, old, paths) for (new, old), paths in found.items())


def _checksum(host: Host, path: str) -> int | None:
    raw = host.read_bytes(path, 0, _LARGEST_BYTES + 1)
    return crc32(raw) if raw is not None and len(raw) <= _LARGEST_BYTES else None


def _said(new: str, old: str, paths: list[str]) -> str:
    count = "a file" if len(paths) == 1 else f"{len(paths)} files"
    more = ", ..." if len(paths) > 1 else ""
    if not old:
        return f"warning: {new} replaces {count} that no package brought ({paths[0]}{more}): an undo puts back what was there"
    return (
        f"warning: {new} and {old} have {count} at one place ({paths[0]}{more}): the one that is installed last is there, "
        f"and the other may not work; an environment of its own for one of them keeps both"
    )
