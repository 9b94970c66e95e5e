"""Make NVIDIA's apt repository known to apt: its key, and a source list that trusts this key only.

The package `cuda-keyring` does the same, but its maintainer scripts run as root before anything has verified them. So the key itself is
downloaded, its fingerprint is compared with the one in the matrix, and the list is written here; apt then verifies everything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.aptget import KEYRING, Apt, configured
from cudnn_resolve.execution.journal import LEAVING_DEBS, tampered
from cudnn_resolve.host import disk
from cudnn_resolve.host.protocol import which
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.host.run_tool import ToolResult
    from cudnn_resolve.planning.model import AptRepository

_ASIDE = ".disabled-by-cudnn-resolve"
"""Suffix, followed by a number, of a list that is moved aside: apt ignores files with it."""
_LIST_BYTES = 1 << 20
_NVIDIA_URL = re.compile(r"developer\.download\.nvidia\.com/compute/(?:cuda|machine-learning)/repos/", re.ASCII)
_DISABLED = re.compile(r"^enabled:[ \t]*(?:no|false|without|off|disable|0)[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""The values that apt reads as false."""
_ASIDE_NAME = re.compile(re.escape(_ASIDE) + r"(?:-[0-9]{1,9}(?:\.[0-9]{1,4})?)?", re.ASCII)
_URL = re.compile(r"(?:https|file)://?[A-Za-z0-9._~:/%+-]{1,400}/", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._~/%+@,=-]{1,1000}", re.ASCII)
_ISOLATED = """Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "{folder}/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT::Sandbox::User "root";
"""
_FINGERPRINT = re.compile(r"[0-9A-F]{40}", re.ASCII)


class AptFolders(Struct, frozen=True, kw_only=True):
    """Where an apt keeps its source lists and keys."""

    lists: str
    main: str
    """The list outside of that folder, `sources.list`."""
    keyring: str
    """File of the key in NVIDIA's package."""

    @property
    def own_keyring(self) -> str:
        """File for our key if other lists use `keyring` and it holds other keys."""
        return f"{os.path.dirname(self.keyring)}/cudnn-resolve-keyring.gpg"

    def holds(self, path: str) -> bool:
        """Return whether `path` is a source list of apt or one of these keyrings."""
        named = (self.main, self.keyring, self.own_keyring)
        return os.path.normpath(path) == path and (os.path.dirname(path) == self.lists or path in named)


def apt_folders(apt: Apt) -> AptFolders:
    """Ask apt where it keeps its lists and keys."""
    return AptFolders(
        lists=configured(apt, "Dir::Etc::sourceparts/d", "/etc/apt/sources.list.d"),
        main=configured(apt, "Dir::Etc::sourcelist/f", "/etc/apt/sources.list"),
        keyring=os.path.join(configured(apt, "Dir/d", "") or "/", KEYRING),
    )


def check_repository(repository: AptRepository) -> None:
    """Raise WorldError for a URL or name that could mean something else to apt, or a key that the matrix does not know."""
    if not _URL.fullmatch(repository.url) or not _NAME.fullmatch(repository.list_name):
        raise WorldError(f"{repository.url[:200]!r} is not a valid repository URL", code="repository", hint="nothing was changed")
    if not _FINGERPRINT.fullmatch(repository.fingerprint):
        raise WorldError(
            f"the matrix has no key fingerprint for the repository {repository.name}",
            code="repository-key",
            hint="nothing was changed; add the repository yourself, as NVIDIA's installation guide describes, then repeat the command",
        )


def fetch_key(repository: AptRepository, folder: str, apt: Apt, download: Download) -> bytes:
    """Download the repository's public key and return it in binary form; raises WorldError unless its fingerprint is the matrix's."""
    if which(apt.host, "gpg") is None:
        raise WorldError(
            "checking the key of NVIDIA's repository needs gpg, which is not installed",
            code="no-gpg",
            hint="nothing was changed; install it (`apt-get install gnupg`), or add the repository yourself",
        )
    name = os.path.basename(repository.key_url)
    if not repository.key_url.startswith(("https://", "file:/")) or not _NAME.fullmatch(name):
        raise WorldError(f"{repository.key_url[:200]!r} is not a valid key URL", code="repository-key", hint="nothing was changed")
    path = download(File(filename=name, url=repository.key_url, hashes={}), folder, lambda _: None)
    home, exported = f"{folder}/gnupg", f"{folder}/{repository.name}.gpg"
    disk.make_folder(home, 0o700)
    gpg = ("gpg", "--homedir", home, "--batch", "--no-options", "--quiet")
    try:
        apt.ask(*gpg, "--import", path)  # fails if any part of the file cannot be imported; only the imported keys matter
        _, listed = apt.ask(*gpg, "--with-colons", "--fingerprint", "--list-keys")
        found = re.findall(r"^pub:(?:.*\n)+?fpr:(?:[^:\n]*:){8}([0-9A-F]{40}):", listed, re.MULTILINE)
        if repository.fingerprint not in found:
            raise WorldError(
                f"the repository {repository.name} offers another key: {', '.join(found) or 'its file holds none'}",
                code="repository-key",
                context=repository.key_url,
                hint=f"nothing was changed; NVIDIA's signing key has the fingerprint {repository.fingerprint}",
            )
        apt.ask(*gpg, "--yes", "--output", exported, "--export", repository.fingerprint)  # this key alone, whatever else was imported
        return disk.content(exported, _LIST_BYTES) or b""
    finally:
        disk.remove_tree(home)


def isolated_apt(repositories: Sequence[AptRepository], apt: Apt, folder: str, download: Download, options: str = "") -> Apt:
    """Return an apt that knows only these repositories and keeps its lists in a folder; the system's stay untouched.

    `options` are further lines of its configuration. Raises WorldError if a repository's key is not the matrix's.
    """
    if not _PLAIN_PATH.fullmatch(folder):
        hint = "nothing was changed; set XDG_STATE_HOME to a folder with a plain name"
        raise WorldError(f"apt cannot take a folder with this name: {folder!r}", code="repository", hint=hint)
    disk.make_folder(f"{folder}/lists/partial", 0o755)
    entries = []
    for repository in repositories:
        check_repository(repository)
        keyring = f"{folder}/{repository.name}.gpg"
        disk.write_whole(keyring, fetch_key(repository, folder, apt, download))
        entries.append(repository.entry(keyring))
    disk.write_whole(f"{folder}/sources.list", "".join(entries).encode())
    include = f'#include "{apt.environ["APT_CONFIG"]}";\n' if apt.environ.get("APT_CONFIG") else ""
    disk.write_whole(f"{folder}/apt.conf", (include + _ISOLATED.format(folder=folder) + options).encode())
    return replace(apt, environ={**apt.environ, "APT_CONFIG": f"{folder}/apt.conf"})


class Change(Struct, frozen=True, kw_only=True):
    """A file of apt's configuration that is moved aside, written, or both."""

    path: str
    content: bytes | None
    """None for a list that is only moved aside."""
    aside: str | None
    """New path of the existing file; None if there is none."""


def add_repositories(repositories: Sequence[AptRepository], apt: Apt, journal: Journal, download: Download) -> None:
    """Write the key and source list of each repository that apt does not know; the journal first records what that replaces."""
    folder = f"{journal.folder}/{LEAVING_DEBS}"
    disk.make_folder(folder, 0o755)
    folders = apt_folders(apt)
    changes = _changes(repositories, folders, folder, apt, journal, download)
    journal.add(
        "keyring",
        moved=[[change.path, change.aside] for change in changes if change.aside is not None],
        written=[change.path for change in changes if change.content is not None],
    )
    journal.add("change")
    for change in changes:
        _make_change(change, apt, folder)
    journal.add("known", sums={change.path: _digest(change.path) for change in changes})


def _changes(
    repositories: Sequence[AptRepository], folders: AptFolders, folder: str, apt: Apt, journal: Journal, download: Download
) -> list[Change]:
    wanted: dict[str, bytes | None] = {}
    known = []
    for path, text in _lists(folders):
        entries = [_effective(path, entry) for entry in _entries(path, text)]
        current = [entry for entry in entries if not _is_stale(entry)]
        known += current
        if len(current) < len(entries):
            wanted[path] = None if path != folders.main and not any(current) else _without_stale(path, text)
    keys: dict[str, bytes] = {}
    missing = []
    for repository in repositories:
        check_repository(repository)
        if not any(repository.url.rstrip("/") in entry for entry in known):  # else the system trusts it by a key of its own choice
            keys[repository.fingerprint] = fetch_key(repository, folder, apt, download)
            missing.append(repository)
    is_shared = any(folders.keyring in entry for entry in known) and disk.content(folders.keyring, _LIST_BYTES) != b"".join(keys.values())
    keyring = folders.own_keyring if is_shared else folders.keyring
    if missing:
        wanted[keyring] = b"".join(keys.values())
        wanted |= {f"{folders.lists}/{repository.list_name}": repository.entry(keyring).encode() for repository in missing}
    return [
        Change(path=path, content=content, aside=name_aside(path, journal.id) if disk.kind(path) is not None else None)
        for path, content in sorted(wanted.items())
        if content is None or disk.content(path, _LIST_BYTES) != content
    ]


def _lists(folders: AptFolders) -> Iterator[tuple[str, str]]:
    """Path and text of each source list."""
    for path in (folders.main, *(f"{folders.lists}/{name}" for name in sorted(disk.names_in(folders.lists)))):
        if disk.kind(path) == "file" and path.endswith((".list", ".sources")):
            yield path, (disk.content(path, _LIST_BYTES) or b"").decode("utf-8", "surrogateescape")


def _entries(path: str, text: str) -> list[str]:
    """The entries of a source list: lines, or the stanzas of a deb822 file."""
    return re.split(r"\n(?:[ \t]*\n)+", text) if path.endswith(".sources") else text.splitlines()


def _effective(path: str, entry: str) -> str:
    """What apt reads of an entry: no comments, and nothing of a disabled stanza."""
    text = "\n".join(line for line in entry.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return "" if path.endswith(".sources") and _DISABLED.search(text) else text


def _is_stale(entry: str) -> bool:
    """True for an entry of NVIDIA that names no key: apt refuses one URL with two ways to trust it."""
    return _NVIDIA_URL.search(entry) is not None and "signed-by" not in entry.lower()


def _without_stale(path: str, text: str) -> bytes:
    """The text of a list that others use, too, with its stale entries disabled."""
    entries = []
    for entry in _entries(path, text):
        if not _is_stale(_effective(path, entry)):
            entries.append(entry)
        elif path.endswith(".sources"):
            entries.append("\n".join(["Enabled: no", *(line for line in entry.splitlines() if not line.lower().startswith("enabled:"))]))
        else:
            entries.append(f"# {entry}")
    separator = "\n\n" if path.endswith(".sources") else "\n"
    return (separator.join(entries).rstrip("\n") + "\n").encode("utf-8", "surrogateescape")


def name_aside(path: str, number: int) -> str:
    """Return an unused name for a file that journal `number` moves aside."""
    name = f"{path}{_ASIDE}-{number}"
    return next(unused for unused in (name, *(f"{name}.{suffix}" for suffix in range(1, 10_000))) if disk.kind(unused) is None)


def _make_change(change: Change, apt: Apt, folder: str) -> None:
    result: ToolResult | None = None
    if change.aside is not None:
        result = apt.run("mv", "-n", "-T", "--", change.path, change.aside)
        if result.ok and disk.kind(change.path) is not None:  # `mv -n` does not report that it moved nothing
            raise WorldError(f"{change.path} could not be moved aside: {change.aside} exists", code="repository", context=apt.log)
    if change.content is not None and (result is None or result.ok):
        source, temporary = f"{folder}/{os.path.basename(change.path)}.new", f"{change.path}{disk.UNFINISHED}"
        disk.write_whole(source, change.content)
        result = apt.run("install", "-D", "-m", "644", "--", source, temporary)
        if result.ok:
            result = apt.run("mv", "-f", "-T", "--", temporary, change.path)
    if result is not None and not result.ok:
        raise WorldError(f"{change.path} could not be changed: {result.why()}", code="repository", context=apt.log)


# ---- the way back


def restore_repositories(past: PastApply, apt: Apt) -> list[str]:
    """Remove what `add_repositories` wrote and put back what it replaced; returns what could not be put back. May be repeated."""
    left = []
    digests = _recorded_digests(past)
    for path, aside in _changed_paths(past, apt).items():
        if disk.kind(f"{path}{disk.UNFINISHED}") is not None:
            apt.run("rm", "-f", "--", f"{path}{disk.UNFINISHED}")
        if aside is not None and disk.kind(aside) is None:
            continue  # the old file was never moved
        if disk.kind(path) is not None and digests.get(path, _digest(path)) != _digest(path):
            left.append(f"{path} was changed by others" + (f"; its old content is in {aside}" if aside else ""))
            continue
        words = ("rm", "-f", "--", path) if aside is None else ("mv", "-f", "-T", "--", aside, path)
        result = apt.run(*words)
        left += [] if result.ok else [f"{path} could not be put back: {result.why()}"]
    return left


def changed_repositories(past: PastApply, apt: Apt) -> list[str]:
    """Return the lists and keys that others changed since a committed journal."""
    digests = _recorded_digests(past)
    return [path for path in _changed_paths(past, apt) if path in digests and _digest(path) != digests[path]]


class _KeyringRecord(Struct, frozen=True):
    """The `keyring` record: changes of lists and keys."""

    moved: tuple[tuple[str, str], ...]
    written: tuple[str, ...] = ()


class _KnownRecord(Struct, frozen=True):
    """The `known` record: digests of lists and keys as written."""

    sums: Mapping[str, str | None] = {}


def _changed_paths(past: PastApply, apt: Apt) -> dict[str, str | None]:
    """Each path that the journal changed, checked, with the new path of the old file; None if there was no old file."""
    record = past.last_of("keyring", _KeyringRecord)
    if record is None:
        return {}
    folders = apt_folders(apt)
    paths: dict[str, str | None] = {**dict.fromkeys(record.written), **dict(record.moved)}
    for path, aside in paths.items():
        if not folders.holds(path) or (aside is not None and not _is_aside(aside, path)):
            raise tampered(past.folder, "it names a list or key that is not one of apt's")
    return paths


def _is_aside(name: str, path: str) -> bool:
    """Return whether `name_aside` could have returned a name for a path."""
    return name.startswith(path) and _ASIDE_NAME.fullmatch(name[len(path) :]) is not None


def _recorded_digests(past: PastApply) -> Mapping[str, str | None]:
    """SHA-256 of each changed path as written; empty if the changes were not completed."""
    record = past.last_of("known", _KnownRecord)
    return record.sums if record is not None else {}


def _digest(path: str) -> str | None:
    return disk.digest(path, "sha256") if disk.kind(path) == "file" else None
