"""The .deb files that the way back needs: of packages that are replaced, and of those that come, which dpkg may leave half unpacked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.journal import ARRIVING, LEAVING
from cudnn_resolve.host import disk

if TYPE_CHECKING:
    from cudnn_resolve.execution.aptget import Apt
    from cudnn_resolve.host.tool import Tooling

RESERVE_BYTES = 32 << 20
"""What stays free of the disk that they are kept on: the journal itself goes on there."""


def keep_leaving(apt: Apt, names: Iterable[str], here: Mapping[str, str], folder: str, tooling: Tooling, *, reserve: int = 0) -> None:
    """Keep the .deb files of the installed packages of these names, as far as a repository still has them and there is room.

    `reserve` are bytes that somebody else is about to write there.
    """
    place = f"{folder}/{LEAVING}"
    disk.make_folder(place, 0o755)
    for name in sorted(names):
        _fetch(apt, name, here[name], place, tooling, reserve)


def keep_arriving(apt: Apt, install: Mapping[str, str], folder: str, tooling: Tooling, *, reserve: int = 0) -> None:
    """Keep the .deb files of packages that are about to be installed: linked from apt's cache, else copied where there is room.

    A dpkg that is killed leaves the files that it had unpacked by then in no list; it knows them again only by unpacking that package anew.
    """
    place, cache = f"{folder}/{ARRIVING}", aptget.archives(apt)
    disk.make_folder(place, 0o755)
    cached = deb_files(install, cache)
    fetched = [f"{cache}/{name}" for name in cached.values()]
    if fetched and not apt.run(tooling, "cp", "--force", "--link", "--target-directory", place, "--", *fetched).ok:
        _drop(place, cached.values())
        _copy(apt, fetched, place, tooling, reserve)
    for name in sorted(set(install) - set(cached)):  # a repository on this disk is not copied into the cache
        _fetch(apt, name, install[name], place, tooling, reserve)


def kept_sums(folder: str) -> dict[str, str]:
    """Each .deb that is kept in a journal's folder, as its path there, with its SHA-256: by that it is known again before dpkg gets it."""
    places = [place for place in (LEAVING, ARRIVING) if disk.kind(f"{folder}/{place}") == "folder"]
    names = [f"{place}/{name}" for place in places for name in sorted(disk.names_in(f"{folder}/{place}")) if name.endswith(".deb")]
    return {name: disk.digest(f"{folder}/{name}", "sha256") for name in names if disk.kind(f"{folder}/{name}") == "file"}


def is_as_kept(record: Mapping[str, Any], folder: str, name: str) -> bool:
    """True where a file in a journal's folder is the one that the record has the sum of."""
    sums, path = record.get("debs"), f"{folder}/{name}"
    return isinstance(sums, dict) and disk.kind(path) == "file" and disk.digest(path, "sha256") == sums.get(name)


def fetch_anew(apt: Apt, name: str, version: str, folder: str, tooling: Tooling) -> str | None:
    """Path, in a journal's folder, of a package that apt-get fetched and verified in the place of what is there; None where it cannot."""
    place = f"{folder}/{ARRIVING}"
    disk.make_folder(place, 0o755)
    _drop(place, deb_files({name: version}, place).values())
    _fetch(apt, name, version, place, tooling, 0)
    return next((f"{place}/{one}" for one in deb_files({name: version}, place).values()), None)


def _copy(apt: Apt, paths: list[str], place: str, tooling: Tooling, reserve: int) -> None:
    """Copy the files, or none of them where there is no room: they are wanted, and not needed."""
    if not _fits(sum(disk.size_of(path) for path in paths), place, reserve):
        return
    if not apt.run(tooling, "cp", "--force", "--target-directory", place, "--", *paths).ok:
        _drop(place, [path.rpartition("/")[2] for path in paths])


def _fetch(apt: Apt, name: str, version: str, place: str, tooling: Tooling, reserve: int) -> None:
    """Fetch the package where a repository has it and there is room; leave no part of it behind otherwise."""
    size = aptget.download_size(apt, f"{name}={version}")
    if size is None or not _fits(size, place, reserve):
        return
    before = set(disk.names_in(place))
    if not apt.run(replace(tooling, cwd=place), apt.program, "download", "-q", f"{name}={version}").ok:
        _drop(place, set(disk.names_in(place)) - before)


def _fits(size: int, place: str, reserve: int) -> bool:
    return size + reserve + RESERVE_BYTES <= disk.free_bytes(place)


def _drop(place: str, names: Iterable[str]) -> None:
    for name in names:
        if disk.kind(f"{place}/{name}") == "file":
            disk.remove(f"{place}/{name}")


def deb_files(versions: Mapping[str, str], folder: str) -> dict[str, str]:
    """Package to the name of its file in the folder, of those that have one there."""
    out = {}
    names = disk.names_in(folder)
    for name, version in versions.items():
        wanted = re.compile(re.escape(f"{name}_{version.replace(':', '%3a')}_") + r"[a-z0-9]+\.deb", re.ASCII)
        found = [one for one in names if wanted.fullmatch(one) and disk.kind(f"{folder}/{one}") == "file"]
        if found:
            out[name] = found[0]
    return out
