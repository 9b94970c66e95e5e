"""NVIDIA's apt repository, made known to apt by its key and a list that names that key.

The package `cuda-keyring` would do the same, but its maintainer scripts run as root before anything has verified them. So the key itself is
fetched, its fingerprint is compared with the one that the matrix holds, and the list is written here; apt then verifies everything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.aptget import KEYRING, Apt, configured, present_packages, purge
from cudnn_resolve.execution.journal import LEAVING, tampered
from cudnn_resolve.host import disk
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.host.run_tool import Tooling, ToolResult
    from cudnn_resolve.planning.model import AptRepository

_ASIDE = ".disabled-by-cudnn-resolve"
"""Added, with a number, to the name of a list that is put aside: apt reads no file that ends so."""
_LIST_BYTES = 1 << 20
_OF_NVIDIA = re.compile(r"developer\.download\.nvidia\.com/compute/(?:cuda|machine-learning)/repos/", re.ASCII)
_SWITCHED_OFF = re.compile(r"^enabled:[ \t]*(?:no|false|without|off|disable|0)[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""What apt reads as false."""
_ASIDE_NAME = re.compile(re.escape(_ASIDE) + r"(?:-[0-9]{1,9}(?:\.[0-9]{1,4})?)?", re.ASCII)
_URL = re.compile(r"(?:https|file)://?[A-Za-z0-9._~:/%+-]{1,400}/", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_PLAIN = re.compile(r"/[A-Za-z0-9._~/%+@,=-]{1,1000}", re.ASCII)
_ALONE = """Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "{folder}/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT::Sandbox::User "root";
"""
_FINGERPRINT = re.compile(r"[0-9A-F]{40}", re.ASCII)


class AptFolders(Struct, frozen=True, kw_only=True):
    """Where an apt has what it trusts."""

    lists: str
    main: str
    """The list beside that folder, `sources.list`."""
    keyring: str
    """The file in which NVIDIA's package has its key."""

    @property
    def own_keyring(self) -> str:
        """The file for our key where lists of others name that one, and it holds other keys."""
        return f"{os.path.dirname(self.keyring)}/cudnn-resolve-keyring.gpg"

    def holds(self, path: str) -> bool:
        """Return whether `path` is a list of apt or one of those keyrings."""
        named = (self.main, self.keyring, self.own_keyring)
        return os.path.normpath(path) == path and (os.path.dirname(path) == self.lists or path in named)


def apt_folders(apt: Apt) -> AptFolders:
    """Ask this apt where its lists are, and below which folder its system lies."""
    return AptFolders(
        lists=configured(apt, "Dir::Etc::sourceparts/d", "/etc/apt/sources.list.d"),
        main=configured(apt, "Dir::Etc::sourcelist/f", "/etc/apt/sources.list"),
        keyring=os.path.join(configured(apt, "Dir/d", "") or "/", KEYRING),
    )


def check_repository(repository: AptRepository) -> None:
    """Refuse a repository whose address, name or key could mean something else to apt, or whose key the matrix does not know."""
    if not _URL.fullmatch(repository.url) or not _NAME.fullmatch(repository.list_name):
        raise WorldError(f"{repository.url[:200]!r} is not the address of a repository", code="repository", hint="nothing was changed")
    if not _FINGERPRINT.fullmatch(repository.fingerprint):
        raise WorldError(
            f"the matrix holds no fingerprint for the key of the repository {repository.name}",
            code="repository-key",
            hint="nothing was changed; make the repository known yourself, as NVIDIA's installation guide says, then run it again",
        )


def fetch_key(repository: AptRepository, folder: str, apt: Apt, download: Download) -> bytes:
    """Return the repository's public key in binary form; WorldError where it is not the key whose fingerprint the matrix holds."""
    if not apt.has("gpg"):
        raise WorldError(
            "checking the key of NVIDIA's repository needs gpg, which is not installed",
            code="no-gpg",
            hint="nothing was changed; install it (`apt-get install gnupg`), or make the repository known yourself",
        )
    name = os.path.basename(repository.key_url)
    if not repository.key_url.startswith(("https://", "file:/")) or not _NAME.fullmatch(name):
        raise WorldError(f"{repository.key_url[:200]!r} is not the address of a key", code="repository-key", hint="nothing was changed")
    path = download(File(filename=name, url=repository.key_url, hashes={}), folder, lambda _: None)
    home, exported = f"{folder}/gnupg", f"{folder}/{repository.name}.gpg"
    disk.make_folder(home, 0o700)
    gpg = ("gpg", "--homedir", home, "--batch", "--no-options", "--quiet")
    try:
        apt.ask(*gpg, "--import", path)  # fails for a part of what is in there; what counts is what came in
        _, listed = apt.ask(*gpg, "--with-colons", "--fingerprint", "--list-keys")
        found = re.findall(r"^pub:(?:.*\n)+?fpr:(?:[^:\n]*:){8}([0-9A-F]{40}):", listed, re.MULTILINE)
        if repository.fingerprint not in found:
            raise WorldError(
                f"the key of the repository {repository.name} is another one: {', '.join(found) or 'it holds no key'}",
                code="repository-key",
                context=repository.key_url,
                hint=f"nothing was changed; the key that NVIDIA signs with has the fingerprint {repository.fingerprint}",
            )
        apt.ask(*gpg, "--yes", "--output", exported, "--export", repository.fingerprint)  # this key alone, whatever else came with it
        return disk.content(exported, _LIST_BYTES) or b""
    finally:
        disk.remove_tree(home)


def apt_alone(repositories: Sequence[AptRepository], apt: Apt, folder: str, download: Download, lines: str = "") -> Apt:
    """Return how apt is called so that it has these repositories alone, with lists in that folder; the system's stay as they are.

    `lines` are further lines of its configuration. WorldError where a repository has another key than the matrix holds.
    """
    if not _PLAIN.fullmatch(folder):
        hint = "nothing was changed; set XDG_STATE_HOME to a folder with a plain name"
        raise WorldError(f"apt can be given no folder with such a name: {folder!r}", code="repository", hint=hint)
    disk.make_folder(f"{folder}/lists/partial", 0o755)
    entries = []
    for one in repositories:
        check_repository(one)
        disk.write_whole(f"{folder}/{one.name}.gpg", fetch_key(one, folder, apt, download))
        entries.append(one.entry(f"{folder}/{one.name}.gpg"))
    disk.write_whole(f"{folder}/sources.list", "".join(entries).encode())
    before = f'#include "{apt.environ["APT_CONFIG"]}";\n' if apt.environ.get("APT_CONFIG") else ""
    disk.write_whole(f"{folder}/apt.conf", (before + _ALONE.format(folder=folder) + lines).encode())
    return replace(apt, environ={**apt.environ, "APT_CONFIG": f"{folder}/apt.conf"})


class Change(Struct, frozen=True, kw_only=True):
    """One file of apt's configuration that is put aside, written, or both."""

    path: str
    content: bytes | None
    """None for a list that is only put aside."""
    aside: str | None
    """Where what lies at `path` goes; None where nothing lies there."""


def make_known(repositories: Sequence[AptRepository], apt: Apt, journal: Journal, tooling: Tooling, download: Download) -> None:
    """Write the key and the list of each repository that apt does not know yet; the journal tells first what that replaces."""
    folder = f"{journal.folder}/{LEAVING}"
    disk.make_folder(folder, 0o755)
    folders = apt_folders(apt)
    changes = _changes(repositories, folders, folder, apt, journal, download)
    journal.add(
        "keyring",
        moved=[[one.path, one.aside] for one in changes if one.aside is not None],
        written=[one.path for one in changes if one.content is not None],
    )
    journal.add("change")
    for one in changes:
        _carry_out(one, apt, folder, tooling)
    journal.add("known", sums={one.path: _sum(one.path) for one in changes})


def _changes(
    repositories: Sequence[AptRepository], folders: AptFolders, folder: str, apt: Apt, journal: Journal, download: Download
) -> list[Change]:
    wanted: dict[str, bytes | None] = {}
    known = []
    for path, text in _lists(folders):
        parts = [_effective(path, part) for part in _parts(path, text)]
        stale = [_is_stale(part) for part in parts]
        known += [part for part, old in zip(parts, stale, strict=True) if not old]
        if any(stale):
            whole = path != folders.main and all(old or not part for part, old in zip(parts, stale, strict=True))
            wanted[path] = None if whole else _switched_off(path, text)
    keys: dict[str, bytes] = {}
    missing = []
    for repository in repositories:
        check_repository(repository)
        if not any(repository.url.rstrip("/") in part for part in known):  # else the system trusts it by a key of its own choice
            keys[repository.fingerprint] = fetch_key(repository, folder, apt, download)
            missing.append(repository)
    shared = any(folders.keyring in part for part in known) and disk.content(folders.keyring, _LIST_BYTES) != b"".join(keys.values())
    keyring = folders.own_keyring if shared else folders.keyring
    if missing:
        wanted[keyring] = b"".join(keys.values())
        wanted |= {f"{folders.lists}/{one.list_name}": one.entry(keyring).encode() for one in missing}
    return [
        Change(path=path, content=content, aside=name_aside(path, journal.id) if disk.kind(path) is not None else None)
        for path, content in sorted(wanted.items())
        if content is None or disk.content(path, _LIST_BYTES) != content
    ]


def _lists(folders: AptFolders) -> Iterator[tuple[str, str]]:
    """Each list of apt with its text."""
    for path in (folders.main, *(f"{folders.lists}/{name}" for name in sorted(disk.names_in(folders.lists)))):
        if disk.kind(path) == "file" and path.endswith((".list", ".sources")):
            yield path, (disk.content(path, _LIST_BYTES) or b"").decode("utf-8", "surrogateescape")


def _parts(path: str, text: str) -> list[str]:
    """The entries of a list: lines, or the stanzas of a deb822 file."""
    return re.split(r"\n(?:[ \t]*\n)+", text) if path.endswith(".sources") else text.splitlines()


def _effective(path: str, part: str) -> str:
    """What apt takes of an entry: comments are left out, and a stanza that is switched off is nothing."""
    said = "\n".join(line for line in part.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return "" if path.endswith(".sources") and _SWITCHED_OFF.search(said) else said


def _is_stale(part: str) -> bool:
    """Return whether an entry is of NVIDIA and names no key: apt refuses one address with two ways to trust it."""
    return _OF_NVIDIA.search(part) is not None and "signed-by" not in part.lower()


def _switched_off(path: str, text: str) -> bytes:
    """The text of a list that is of others, too, without the entries that stand in the way."""
    out = []
    for part in _parts(path, text):
        if not _is_stale(_effective(path, part)):
            out.append(part)
        elif path.endswith(".sources"):
            out.append("\n".join(["Enabled: no", *(line for line in part.splitlines() if not line.lower().startswith("enabled:"))]))
        else:
            out.append(f"# {part}")
    return (("\n\n" if path.endswith(".sources") else "\n").join(out).rstrip("\n") + "\n").encode("utf-8", "surrogateescape")


def name_aside(path: str, number: int) -> str:
    """Return an unused name for a file that journal `number` puts aside."""
    name = f"{path}{_ASIDE}-{number}"
    return next(one for one in (name, *(f"{name}.{more}" for more in range(1, 10_000))) if disk.kind(one) is None)


def _carry_out(one: Change, apt: Apt, folder: str, tooling: Tooling) -> None:
    result: ToolResult | None = None
    if one.aside is not None:
        result = apt.run(tooling, "mv", "-n", "-T", "--", one.path, one.aside)
        if result.ok and disk.kind(one.path) is not None:  # an mv that overwrites nothing does not say so
            raise WorldError(f"{one.path} could not be put aside: {one.aside} exists", code="repository", context=tooling.log)
    if one.content is not None and (result is None or result.ok):
        fresh, beside = f"{folder}/{os.path.basename(one.path)}.new", f"{one.path}{disk.UNFINISHED}"
        disk.write_whole(fresh, one.content)
        result = apt.run(tooling, "install", "-D", "-m", "644", "--", fresh, beside)
        result = apt.run(tooling, "mv", "-f", "-T", "--", beside, one.path) if result.ok else result
    if result is not None and not result.ok:
        raise WorldError(f"{one.path} could not be changed: {result.why()}", code="repository", context=tooling.log)


def restore_repository(past: PastApply, apt: Apt, tooling: Tooling) -> list[str]:
    """Remove what `make_known` wrote and put back what it replaced; return what could not be done. May be repeated."""
    left = []
    if any(one.before is None for one in past.told("keyring", _Keyring)[-1:]) and "cuda-keyring" in present_packages(apt):
        done = purge(apt, ("cuda-keyring",), tooling)
        left += [] if done.ok else [f"cuda-keyring could not be removed: {done.why()}"]
    sums = _known_sums(past)
    for path, aside in _touched(past, apt).items():
        if disk.kind(f"{path}{disk.UNFINISHED}") is not None:
            apt.run(tooling, "rm", "-f", "--", f"{path}{disk.UNFINISHED}")
        if aside is not None and disk.kind(aside) is None:
            continue  # it never left its place
        if disk.kind(path) is not None and sums.get(path, _sum(path)) != _sum(path):
            left.append(f"{path} was changed by others" + (f"; what was there before is in {aside}" if aside else ""))
            continue
        words = ("rm", "-f", "--", path) if aside is None else ("mv", "-f", "-T", "--", aside, path)
        done = apt.run(tooling, *words)
        left += [] if done.ok else [f"{path} could not be put back: {done.why()}"]
    return left


def changed_repository(past: PastApply, apt: Apt) -> list[str]:
    """Return lists and keys that are not as a committed journal left them."""
    sums = _known_sums(past)
    return [path for path in _touched(past, apt) if path in sums and _sum(path) != sums[path]]


class _Keyring(Struct, frozen=True):
    """What a journal says of lists and keys."""

    moved: tuple[tuple[str, str | None], ...]
    written: tuple[str, ...] = ()
    before: str | UnsetType | None = UNSET
    """Of version 0.1.0: the version of cuda-keyring that was there, None for none."""


class _Known(Struct, frozen=True):
    sums: Mapping[str, str | None] = {}


def _touched(past: PastApply, apt: Apt) -> dict[str, str | None]:
    """Each path that the journal names, checked, and where what was there went; None where nothing was there."""
    records = past.told("keyring", _Keyring)[-1:]
    folders = apt_folders(apt) if records else None
    out: dict[str, str | None] = {}
    for path, aside in (pair for one in records for pair in (*one.moved, *((path, None) for path in one.written))):
        if folders is None or not folders.holds(path) or not _is_aside(aside, path):
            raise tampered(past.folder, "it names a list or key that is none of apt's")
        out[path] = out.get(path) or aside
    return out


def _is_aside(name: str | None, path: str) -> bool:
    """Return whether `name_aside` could have given the name; None stands for a path that nothing lay at."""
    return name is None or (name.startswith(path) and _ASIDE_NAME.fullmatch(name[len(path) :]) is not None)


def _known_sums(past: PastApply) -> Mapping[str, str | None]:
    """SHA-256 of each touched path, as it was when all was written; empty where it did not come to that."""
    return next((one.sums for one in past.told("known", _Known)[-1:]), {})


def _sum(path: str) -> str | None:
    return disk.digest(path, "sha256") if disk.kind(path) == "file" else None
