"""The .deb files that the way back needs: of packages that are replaced, and of those that come, which dpkg may leave half unpacked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.journal import ARRIVING, LEAVING
from cudnn_resolve.host import disk
from cudnn_resolve.record import replace

if TYPE_CHECKING:
    from cudnn_resolve.execution.aptget import Apt
    from cudnn_resolve.host.tool import Tooling


def keep_leaving(apt: Apt, names: Iterable[str], here: Mapping[str, str], folder: str, tooling: Tooling) -> None:
    """Nothing; the installed packages of these names lie in the folder where a repository still has them, so that they can be laid back."""
    place = f"{folder}/{LEAVING}"
    disk.make_folder(place, 0o755)
    for name in sorted(names):
        apt.run(replace(tooling, cwd=place), apt.program, "download", "-q", f"{name}={here[name]}")


def keep_arriving(apt: Apt, install: Mapping[str, str], folder: str, tooling: Tooling) -> None:
    """Nothing; packages that are about to be installed lie in the folder, linked from apt's cache where that can be.

    A dpkg that is killed leaves the files that it had unpacked by then in no list; it knows them again only by unpacking that package anew.
    """
    place, cache = f"{folder}/{ARRIVING}", aptget.archives(apt)
    disk.make_folder(place, 0o755)
    fetched = [f"{cache}/{name}" for name in deb_files(install, cache).values()]
    if fetched and not apt.run(tooling, "cp", "--force", "--link", "--target-directory", place, "--", *fetched).ok:
        apt.run(tooling, "cp", "--force", "--target-directory", place, "--", *fetched)
    for name in sorted(set(install) - set(deb_files(install, place))):  # a repository on this disk is not copied into the cache
        apt.run(replace(tooling, cwd=place), apt.program, "download", "-q", f"{name}={install[name]}")


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
