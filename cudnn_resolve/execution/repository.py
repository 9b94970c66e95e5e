"""NVIDIA's apt repository: the package that brings its key and its entry, and what is left of the key that was revoked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.aptget import OLD_KEY, Apt
from cudnn_resolve.execution.openpgp import key_ids, without_key
from cudnn_resolve.host import disk
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.execution.task import Keyring
    from cudnn_resolve.host.tool import Tooling

DISABLED = ".disabled-by-cudnn-resolve"
"""Added, with a number, to the name of a list or key that is taken out of use: apt reads no file that ends so."""
_KEYS_BYTES = 1 << 20
PACKAGE = "cuda-keyring"
_HOSTS = re.compile(r"developer\.download\.nvidia\.com/compute/(?:cuda|machine-learning)/repos/", re.ASCII)
_ASIDE = re.compile(re.escape(DISABLED) + r"(?:-[0-9]{1,9}(?:\.[0-9]{1,4})?)?", re.ASCII)
_MEMBER = re.compile(
    r"\./(?:(?:etc|etc/apt|usr|usr/share|usr/share/keyrings|usr/share/doc|etc/apt/sources\.list\.d|etc/apt/preferences\.d)/"
    r"|usr/share/doc/cuda-keyring/[^\n]*|usr/share/keyrings/[A-Za-z0-9._-]+\.gpg"
    r"|etc/apt/sources\.list\.d/[A-Za-z0-9._-]+\.(?:list|sources)|etc/apt/preferences\.d/[A-Za-z0-9._-]+)?",
    re.ASCII,
)


def is_keyring(name: str) -> bool:
    """True for the name of a file of the keyring package."""
    return re.fullmatch(r"cuda-keyring_[A-Za-z0-9.+~-]{1,40}_all\.deb", name) is not None


def fetch_keyring(one: Keyring, folder: str, apt: Apt, download: Download) -> str:
    """Path of the keyring package in the folder, looked into; WorldError where it is not what it should be."""
    parts = urlsplit(one.url)
    name = os.path.basename(parts.path)
    if parts.scheme not in ("https", "file") or not is_keyring(name):
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


class AptFolders(Struct, frozen=True, kw_only=True):
    """Where an apt has what it trusts."""

    lists: str
    keys: str
    keyring: str
    """The one file of keys that `apt-key add` wrote to."""

    def holds(self, path: str) -> bool:
        """True for a list, a keyring, or the one file of keys."""
        return os.path.normpath(path) == path and (os.path.dirname(path) in (self.lists, self.keys) or path == self.keyring)


class Outdated(Struct, frozen=True, kw_only=True):
    """A file that stands in the way of the present key."""

    path: str
    rest: bytes | None = None
    """What stays of it: the other keys of a keyring."""
    too_large: bool = False
    """True where it is left alone, since no keyring is that large."""


def outdated(folders: AptFolders, old: str = OLD_KEY) -> Iterator[Outdated]:
    """Files that stand in the way of the present key: keyrings with the revoked one, and lists that name NVIDIA without a key.

    `old` is the end of the revoked key's fingerprint.
    """
    names = [f"{folders.keys}/{name}" for name in sorted(disk.names_in(folders.keys)) if name.endswith((".gpg", ".asc"))]
    for path in (folders.keyring, *names):
        if disk.kind(path) == "file" and disk.size_of(path) > _KEYS_BYTES:
            yield Outdated(path=path, too_large=True)
            continue
        content = disk.content(path, _KEYS_BYTES) or b""
        found = set(key_ids(content)) if disk.kind(path) == "file" else set()
        if found == {old}:
            yield Outdated(path=path)
        elif old in found and not content.lstrip().startswith(b"-----"):
            yield Outdated(path=path, rest=without_key(content, old))
    for name in sorted(disk.names_in(folders.lists)):
        path = f"{folders.lists}/{name}"
        if not name.endswith(".list") or disk.kind(path) != "file":
            continue
        text = (disk.content(path, 1 << 20) or b"").decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        if lines and all(_HOSTS.search(line) and "signed-by" not in line for line in lines):
            yield Outdated(path=path)


def name_aside(path: str, number: int) -> str:
    """A name that nothing has, for a file that journal `number` takes out of use."""
    name = f"{path}{DISABLED}-{number}"
    return next(one for one in (name, *(f"{name}.{more}" for more in range(1, 10_000))) if disk.kind(one) is None)


def is_aside(name: str, path: str) -> bool:
    """True for a name that `name_aside` gives, or that former versions gave."""
    return name.startswith(path) and _ASIDE.fullmatch(name[len(path) :]) is not None


def take_out_of_use(one: Outdated, aside: str, apt: Apt, folder: str, tooling: Tooling) -> None:
    """Nothing; the file is called `aside`, and what stays of it lies in its place. `folder` is for what is not finished."""
    result = apt.run(tooling, "mv", "-n", "-T", "--", one.path, aside)
    if result.ok and disk.kind(one.path) is not None:  # an mv that overwrites nothing says nothing of it
        raise WorldError(f"{one.path} could not be taken out of use: {aside} is there already", code="keyring", context=tooling.log)
    if result.ok and one.rest is not None:
        fresh, beside = f"{folder}/{os.path.basename(one.path)}", f"{one.path}{disk.UNFINISHED}"
        disk.write_whole(fresh, one.rest)
        result = apt.run(tooling, "install", "-m", "644", "--", fresh, beside)
        result = apt.run(tooling, "mv", "-f", "-T", "--", beside, one.path) if result.ok else result
    if not result.ok:
        raise WorldError(f"{one.path} could not be taken out of use: {result.why()}", code="keyring", context=tooling.log)


def apt_folders(apt: Apt) -> AptFolders:
    """Where this apt has its lists and its trusted keys."""
    words = ("LISTS", "Dir::Etc::sourceparts/d", "KEYS", "Dir::Etc::trustedparts/d", "KEYRING", "Dir::Etc::trusted/f")
    ok, text = apt.ask("apt-config", "shell", *words)
    found = dict(re.findall(r"^(LISTS|KEYS|KEYRING)='([^'\n]*)'$", text, re.MULTILINE)) if ok else {}
    return AptFolders(
        lists=found.get("LISTS", "/etc/apt/sources.list.d").rstrip("/"),
        keys=found.get("KEYS", "/etc/apt/trusted.gpg.d").rstrip("/"),
        keyring=found.get("KEYRING", "/etc/apt/trusted.gpg"),
    )


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
