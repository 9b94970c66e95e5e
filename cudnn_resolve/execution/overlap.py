"""Files that two packages lay at one place: an installer writes one over the other without a word, so it is found out before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from cudnn_resolve.execution.installed import Installed, listed_files
from cudnn_resolve.execution.wheel import Wheel

if TYPE_CHECKING:
    from cudnn_resolve.host.port import Host

_LARGEST_BYTES = 64 << 20
"""A larger file that two packages have is not compared, and counts as two files."""


def overlaps(wheels: Sequence[Wheel], kept: Iterable[Installed], host: Host) -> tuple[str, ...]:
    """What the wheels lay over files of each other, or of packages that stay, in words; equal files do no harm."""
    owners: dict[str, tuple[str, int]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        for path, checksum in wheel.sums.items():
            name, other = owners.setdefault(path, (wheel.name, checksum))
            if name != wheel.name and other != checksum:
                found.setdefault((wheel.name, name), []).append(path)
    for one in kept:
        for path in listed_files(host, one) if owners else ():
            if path in owners and _checksum(host, path) != owners[path][1]:
                found.setdefault((owners[path][0], one.name), []).append(path)
    return tuple(_said(new, old, paths) for (new, old), paths in found.items())


def _checksum(host: Host, path: str) -> int | None:
    raw = host.read_bytes(path, 0, _LARGEST_BYTES + 1)
    return crc32(raw) if raw is not None and len(raw) <= _LARGEST_BYTES else None


def _said(new: str, old: str, paths: list[str]) -> str:
    count = "a file" if len(paths) == 1 else f"{len(paths)} files"
    more = ", ..." if len(paths) > 1 else ""
    return (
        f"warning: {new} and {old} have {count} at one place ({paths[0]}{more}): the one that is installed last is there, "
        f"and the other may not work; an environment of its own for one of them keeps both"
    )
