"""NVIDIA's apt repository: the package that brings its key and its entry, and what is left of the key that was revoked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.aptget import OLD_KEY, Apt
from cudnn_resolve.execution.openpgp import key_ids
from cudnn_resolve.host import disk
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.execution.task import Keyring
    from cudnn_resolve.host.tool import Tooling

DISABLED = ".disabled-by-cudnn-resolve"
"""Added to the name of a list or key that is taken out of use: apt reads no file that ends so."""
PACKAGE = "cuda-keyring"
_HOSTS = re.compile(r"developer\.download\.nvidia\.com/compute/(?:cuda|machine-learning)/repos/|nvidia\.github\.io/", re.ASCII)
_MEMBER = re.compile(
    r"\./(?:(?:etc|etc/apt|usr|usr/share|usr/share/keyrings|usr/share/doc|etc/apt/sources\.list\.d|etc/apt/preferences\.d)/"
    r"|usr/share/doc/cuda-keyring/[^\n]*|usr/share/keyrings/[A-Za-z0-9._-]+\.gpg"
    r"|etc/apt/sources\.list\.d/[A-Za-z0-9._-]+\.(?:list|sources)|etc/apt/preferences\.d/[A-Za-z0-9._-]+)?",
    re.ASCII,
)


def fetch_keyring(one: Keyring, folder: str, apt: Apt, download: Download) -> str:
    """Path of the keyring package in the folder, looked into; WorldError where it is not what it should be."""
    parts = urlsplit(one.url)
    name = os.path.basename(parts.path)
    if parts.scheme not in ("https", "file") or not re.fullmatch(r"cuda-keyring_[A-Za-z0-9.+~-]{1,40}_all\.deb", name):
        raise WorldError(f"{one.url[:200]} is no keyring package that can be trusted", code="keyring", hint="nothing was changed")
    path = download(File(filename=name, url=one.url, hashes={}), folder, _silent)
    ok, said = apt.ask("dpkg-deb", "--field", path, "Package")
    listed, members = apt.ask("dpkg-deb", "--contents", path)
    if not ok or said.strip() != PACKAGE or not listed:
        raise WorldError(f"{name} is not the package {PACKAGE}", code="keyring", context=one.url, hint="nothing was changed")
    strange = [word for line in members.splitlines() if (word := _path(line)) and not _MEMBER.fullmatch(word)]
    if strange:
        raise WorldError(f"{name} brings more than a key: {strange[0][:120]}", code="keyring", context=one.url, hint="nothing was changed")
    return path


def _silent(count: int) -> None:
    """A keyring is small: nobody needs to see it come."""
    del count


def _path(line: str) -> str:
    words = line.split(None, 5)
    return words[5] if len(words) == 6 and words[0][:1] in "-dlhcbp" else ""


def outdated(folders: tuple[str, str], old: str = OLD_KEY) -> Iterator[str]:
    """Files that stand in the way of the present key: keyrings with the revoked one alone, and lists that name NVIDIA without a key.

    `folders` are apt's for lists and for trusted keys; `old` is the end of the revoked key's fingerprint.
    """
    lists, keys = folders
    for name in sorted(disk.names_in(keys)):
        path = f"{keys}/{name}"
        found = key_ids(disk.content(path, 1 << 20) or b"") if name.endswith((".gpg", ".asc")) else ()
        if found and set(found) == {old}:
            yield path
    for name in sorted(disk.names_in(lists)):
        path = f"{lists}/{name}"
        if not name.endswith(".list") or disk.kind(path) != "file":
            continue
        text = (disk.content(path, 1 << 20) or b"").decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        if lines and all(_HOSTS.search(line) and "signed-by" not in line for line in lines):
            yield path


def apt_folders(apt: Apt) -> tuple[str, str]:
    """Where this apt has its lists and its trusted keys."""
    ok, text = apt.ask("apt-config", "shell", "LISTS", "Dir::Etc::sourceparts/d", "KEYS", "Dir::Etc::trustedparts/d")
    found = dict(re.findall(r"^(LISTS|KEYS)='([^'\n]*)'$", text, re.MULTILINE)) if ok else {}
    lists = found.get("LISTS", "/etc/apt/sources.list.d").rstrip("/")
    keys = found.get("KEYS", "/etc/apt/trusted.gpg.d").rstrip("/")
    return lists, keys


def dpkg_words(apt: Apt) -> tuple[str, ...]:
    """What apt itself says to dpkg, so that both speak of one system."""
    ok, text = apt.ask("apt-config", "dump", "--format", "%v%n", "DPkg::Options")
    words = [line.strip() for line in text.splitlines() if ok]
    return tuple(word for word in words if re.fullmatch(r"--[a-z-]+(?:=[^\s;|&]{1,400})?", word))


def install_keyring(path: str, apt: Apt, tooling: Tooling) -> None:
    """Nothing; the keyring package is installed. WorldError where dpkg refuses."""
    result = apt.run(tooling, "dpkg", *dpkg_words(apt), "--force-confnew", "-i", path)
    if not result.ok:
        raise WorldError(f"the package {PACKAGE} could not be installed: {result.why()}", code="keyring", context=tooling.log)
