"""Files that two packages lay at one place: an installer writes one over the other without a word, so it is found out before."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

from cudnn_resolve.execution.installed import Installed, listed_files
from cudnn_resolve.execution.wheel import Wheel

if TYPE_CHECKING:
    from cudnn_resolve.host.protocol import Host

_LARGEST_BYTES = 64 << 20
"""A larger file that two packages have is not compared, and counts as two files."""


def overlaps(
    wheels: Sequence[Wheel], installed: Iterable[Installed], leaving: Collection[str], save: Collection[str], host: Host
) -> tuple[str, ...]:
    """What the wheels lay over files of each other, of packages that stay, or of nobody, in words; equal files do no harm.

    `leaving` are the packages that go, `save` the paths of which something is moved away.
    """
    owners: dict[str, tuple[str, int | str]] = {}
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
            if one.name not in leaving and path in owners and not _is_same(host, path, owners[path][1]):
                found.setdefault((owners[path][0], one.name), []).append(path)
    for path in nobodys:
        if not _is_same(host, path, owners[path][1]):
            found.setdefault((owners[path][0], ""), []).append(path)
    return tuple(_said(new, old, paths) for (new, old), paths in found.items())


def _is_same(host: Host, path: str, checksum: int | str) -> bool:
    """True where the file at a path has that CRC-32, or that SHA-256 as a RECORD writes it."""
    raw = host.read_bytes(path, 0, _LARGEST_BYTES + 1)
    if raw is None or len(raw) > _LARGEST_BYTES:
        return False
    if isinstance(checksum, int):
        return crc32(raw) == checksum
    return checksum == f"sha256={urlsafe_b64encode(sha256(raw).digest()).rstrip(b'=').decode()}"


def _said(new: str, old: str, paths: list[str]) -> str:
    count = "a file" if len(paths) == 1 else f"{len(paths)} files"
    more = ", ..." if len(paths) > 1 else ""
    if not old:
        return f"warning: {new} replaces {count} that no package brought ({paths[0]}{more}): an undo puts back what was there"
    return (
        f"warning: {new} and {old} have {count} at one place ({paths[0]}{more}): the one that is installed last is there, "
        f"and the other may not work; an environment of its own for one of them keeps both"
    )
