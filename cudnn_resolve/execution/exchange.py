"""The exchange of files that a change makes: those that leave the environment, and those that come.

Files that leave are moved into a folder of the journal, never deleted, before the installer runs; the installer then only adds files. So
the way back needs no network, and can be repeated with the same result.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.installed import files_of, listed_files
from cudnn_resolve.execution.payload_recover import leads_out, with_compiled
from cudnn_resolve.facts.record import record_hash
from cudnn_resolve.host import disk

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.installable_wheel import Wheel
    from cudnn_resolve.host.installed_files import InstalledPackage
    from cudnn_resolve.host.protocol import Host


class Exchange(Struct, frozen=True, kw_only=True):
    """Files that leave and files that come."""

    save: tuple[str, ...]
    """Existing files, which are moved away."""
    add: tuple[str, ...]
    """Paths where files will be written."""
    infos: tuple[str, ...]
    """New `.dist-info` folders; everything in them comes with the packages."""
    made: tuple[str, ...]
    """Folders that do not exist yet, outer ones first."""
    modes: Mapping[str, int]
    """Folders that files are moved out of, with their permissions."""


def plan_exchange(
    wheels: Sequence[Wheel],
    removed: Iterable[str],
    own: Mapping[str, bytes | None],
    installed: Mapping[str, InstalledPackage],
    host: Host,
    environment: Environment,
) -> Exchange:
    """Plan the exchange for these wheels and removals; raises WorldError if a package cannot be moved away.

    `own` maps the files that this program itself writes to their content, None for a file to remove.
    """
    leaving = {name: installed[name] for name in (*removed, *(wheel.name for wheel in wheels)) if name in installed}
    owned = [path for package in leaving.values() for path in files_of(package, host, environment)]
    written = (path for path, content in own.items() if content is not None)
    coming = dict.fromkeys((*(path for wheel in wheels for path in wheel.paths), *written))
    shared: set[str] = set()
    if owned:
        kept = (package for name, package in installed.items() if name not in leaving)
        shared = {path for package in kept for path in listed_files(host, package)}.intersection(owned) - set(coming)
    lock = f"{environment.prefix}/.lock"  # uv makes it in a virtual environment
    add = (*coming, *(() if disk.kind(lock) else (lock,)))
    member_folders = (f"{folder}/" for wheel in wheels for folder in wheel.folders)
    made = tuple(_missing_folders((*add, *(f"{wheel.info}/RECORD" for wheel in wheels), *member_folders)))
    new = set(made)  # nothing exists in them that would have to be saved
    wanted = dict.fromkeys((*(path for path in owned if path not in shared), *coming, *own))
    existing = [path for path in wanted if os.path.dirname(path) not in new]
    save = [path for path in dict.fromkeys(with_compiled(existing)) if disk.kind(path) in ("file", "link")]
    for folder in dict.fromkeys(os.path.dirname(path) for path in (*save, *existing, *made)):  # the parent of a new folder may be a link
        if disk.kind(folder) is not None:
            refuse_detour(f"{folder}/", environment)
    return Exchange(
        save=tuple(save),
        add=add,
        infos=tuple(_own_folders(wheels, leaving)),
        made=made,
        modes={folder: disk.mode_of(folder) for folder in _folders_of(save, environment)},
    )


def _own_folders(wheels: Iterable[Wheel], leaving: Mapping[str, InstalledPackage]) -> Iterator[str]:
    """Folders that only the installer writes to: the `.dist-info`, and the `.data` that uv unpacks next to it for a moment."""
    for wheel in wheels:
        if disk.kind(wheel.info) is None or wheel.name in leaving:
            yield wheel.info
        data = f"{wheel.info.removesuffix('.dist-info')}.data"
        if disk.kind(data) is None:
            yield data


def refuse_detour(path: str, environment: Environment) -> None:
    """Raise WorldError for a path that a link leads out of the environment: its files belong to others."""
    real = leads_out(path, environment.roots)
    if real is not None:
        raise WorldError(
            f"{path} is outside of the environment: a link leads to {real}",
            code="link-outside",
            hint="nothing was changed; replace the link with a folder, or use another environment",
        )


def _missing_folders(paths: Iterable[str]) -> Iterable[str]:
    missing: dict[str, None] = {}
    existing: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        chain = []
        while folder not in missing and folder not in existing:
            if disk.kind(folder) is not None:
                existing.add(folder)
                break
            chain.append(folder)
            folder = os.path.dirname(folder)
        missing.update(dict.fromkeys(reversed(chain)))
    return missing


def save_leaving(exchange: Exchange, store: str) -> None:
    """Move the files that leave into the store, each named by its number, and remove the folders that this empties."""
    disk.make_folder(store, 0o700)
    for number, path in enumerate(exchange.save):
        if disk.kind(path) is not None:
            disk.move(path, f"{store}/{number}")
    for folder in sorted(exchange.modes, key=len, reverse=True):
        if not disk.remove_empty(folder) and disk.kind(folder) == "folder" and not disk.names_in(folder):
            message = f"the empty folder {folder} could not be removed"
            raise WorldError(message, code="system", hint="Python could still import it as a package")


def _folders_of(paths: Iterable[str], environment: Environment) -> dict[str, None]:
    """Folders of paths and their parents inside the environment, below its roots."""
    folders: dict[str, None] = {}
    for path in paths:
        folder = os.path.dirname(path)
        while folder not in folders and folder not in environment.roots and environment.holds(folder):
            folders[folder] = None
            folder = os.path.dirname(folder)
    return folders


# ---- overlaps: two packages that write the same path, which installers do not report

_LARGEST_BYTES = 64 << 20
"""Larger files are not compared; two of them count as different."""


def overlaps(
    wheels: Sequence[Wheel], installed: Iterable[InstalledPackage], leaving: Collection[str], save: Collection[str], host: Host
) -> tuple[str, ...]:
    """Warn of files that the wheels write over different ones of each other, of packages that stay, or of no package.

    `leaving` names the packages that go; `save` has the paths from which a file is moved away.
    """
    owners: dict[str, tuple[str, int | str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        for path, checksum in wheel.sums.items():
            name, other = owners.setdefault(path, (wheel.name, checksum))
            if name != wheel.name and other != checksum:
                found.setdefault((wheel.name, name), []).append(path)
    unowned = dict.fromkeys(path for path in save if path in owners)
    for package in installed if owners else ():
        for path in listed_files(host, package):
            unowned.pop(path, None)
            if package.name not in leaving and path in owners and not _has_checksum(host, path, owners[path][1]):
                found.setdefault((owners[path][0], package.name), []).append(path)
    for path in unowned:
        if not _has_checksum(host, path, owners[path][1]):
            found.setdefault((owners[path][0], ""), []).append(path)
    return tuple(_overlap_warning(new, old, paths) for (new, old), paths in found.items())


def _has_checksum(host: Host, path: str, checksum: int | str) -> bool:
    """True if the file at a path has this CRC-32, or this SHA-256 as written in RECORD."""
    raw = host.read_bytes(path, 0, _LARGEST_BYTES + 1)
    if raw is None or len(raw) > _LARGEST_BYTES:
        return False
    if isinstance(checksum, int):
        return crc32(raw) == checksum
    return checksum == record_hash(sha256(raw).digest())


def _overlap_warning(new: str, old: str, paths: list[str]) -> str:
    count = "a file" if len(paths) == 1 else f"{len(paths)} files"
    example = f"{paths[0]}, ..." if len(paths) > 1 else paths[0]
    if not old:
        return f"warning: {new} replaces {count} of no installed package ({example}); an undo restores the old content"
    return (
        f"warning: {new} and {old} both own {count} ({example}): the package installed last overwrites the other, which may not work; "
        "install one of them into a separate environment to keep both"
    )
