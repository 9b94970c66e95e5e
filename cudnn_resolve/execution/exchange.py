"""The files of a change: which leave, which come, and how everything is put back.

Files that leave are moved into a folder of the journal, never deleted, before the installer runs: it then only adds. So the way back
needs no network, and does the same whenever and however often it is gone.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.installed import Installed, files_of, listed_files
from cudnn_resolve.execution.payload_recover import leads_out, with_compiled
from cudnn_resolve.host import disk

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.wheel import Wheel
    from cudnn_resolve.host.protocol import Host


class Exchange(Struct, frozen=True, kw_only=True):
    """What leaves and what comes."""

    save: tuple[str, ...]
    """Files that are there and are moved away."""
    add: tuple[str, ...]
    """Where files will be laid down."""
    infos: tuple[str, ...]
    """`.dist-info` folders that are new: whatever is in them came with them."""
    made: tuple[str, ...]
    """Folders that are not there yet, outer ones first."""
    modes: Mapping[str, int]
    """Folders that files are moved out of, with their permissions."""


def plan_exchange(
    wheels: Sequence[Wheel],
    removed: Iterable[str],
    own: Mapping[str, bytes | None],
    installed: Mapping[str, Installed],
    host: Host,
    environment: Environment,
) -> Exchange:
    """The exchange that these wheels and removals are; WorldError where a package cannot be moved away.

    `own` are files that this program itself writes, None for one that goes.
    """
    leaving = {name: installed[name] for name in (*removed, *(wheel.name for wheel in wheels)) if name in installed}
    owned = [path for one in leaving.values() for path in files_of(one, host, environment)]
    coming = dict.fromkeys((*(path for wheel in wheels for path in wheel.paths), *(path for path, text in own.items() if text is not None)))
    shared: set[str] = set()
    if owned:
        kept = (one for name, one in installed.items() if name not in leaving)
        shared = {path for one in kept for path in listed_files(host, one)}.intersection(owned) - set(coming)
    lock = f"{environment.prefix}/.lock"  # uv makes it in a virtual environment
    add = (*coming, *(() if disk.kind(lock) else (lock,)))
    named = (f"{folder}/" for wheel in wheels for folder in wheel.folders)
    made = tuple(_missing_folders((*add, *(f"{wheel.info}/RECORD" for wheel in wheels), *named)))
    new = set(made)  # nothing can lie there that would have to be saved
    wanted = dict.fromkeys((*(path for path in owned if path not in shared), *coming, *own))
    there = [path for path in wanted if os.path.dirname(path) not in new]
    save = [path for path in dict.fromkeys(with_compiled(there)) if disk.kind(path) in ("file", "link")]
    for folder in dict.fromkeys(os.path.dirname(path) for path in (*save, *there, *made)):  # above what is new, too: it may be a link
        if disk.kind(folder) is not None:
            refuse_detour(f"{folder}/", environment)
    return Exchange(
        save=tuple(save),
        add=add,
        infos=tuple(_own_folders(wheels, leaving)),
        made=made,
        modes={folder: disk.mode_of(folder) for folder in _folders_of(save, environment)},
    )


def _own_folders(wheels: Iterable[Wheel], leaving: Mapping[str, Installed]) -> Iterator[str]:
    """Folders that nobody else writes to: the `.dist-info`, and the `.data` that uv unpacks beside it for a moment."""
    for wheel in wheels:
        if disk.kind(wheel.info) is None or wheel.name in leaving:
            yield wheel.info
        data = f"{wheel.info.removesuffix('.dist-info')}.data"
        if disk.kind(data) is None:
            yield data


def refuse_detour(path: str, environment: Environment) -> None:
    """Refuse a path to which a link leads out of the environment: what lies there is not its own."""
    real = leads_out(path, environment.roots)
    if real is not None:
        raise WorldError(
            f"{path} lies outside of the environment: a link leads to {real}",
            code="link-outside",
            hint="nothing was changed; make that a folder of its own, or use another environment",
        )


def _missing_folders(paths: Iterable[str]) -> Iterable[str]:
    out: dict[str, None] = {}
    there: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        chain = []
        while folder not in out and folder not in there:
            if disk.kind(folder) is not None:
                there.add(folder)
                break
            chain.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(chain):
            out[one] = None
    return out


def take_away(exchange: Exchange, store: str) -> None:
    """Move the files that leave into the store, under their numbers, and remove folders that are empty then."""
    disk.make_folder(store, 0o700)
    for number, path in enumerate(exchange.save):
        if disk.kind(path) is not None:
            disk.move(path, f"{store}/{number}")
    for folder in sorted(exchange.modes, key=len, reverse=True):
        if not disk.remove_empty(folder) and disk.kind(folder) == "folder" and not disk.names_in(folder):
            raise WorldError(f"{folder} is empty and could not be removed", code="system", hint="a package could still be imported from it")


def _folders_of(paths: Iterable[str], environment: Environment) -> dict[str, None]:
    """The folders of paths and those above them, up to where packages lie."""
    out: dict[str, None] = {}
    for path in paths:
        folder = os.path.dirname(path)
        while folder not in out and folder not in environment.roots and environment.holds(folder):
            out[folder] = None
            folder = os.path.dirname(folder)
    return out


# ---- files that two packages lay at one place: an installer writes one over the other without a word

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
