"""Verify installed files against RECORD: find those that are missing, empty, changed, or belong to no package."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.facts.model import Facts, Problem, or_none
from cudnn_resolve.facts.record import record_hash, record_rows
from cudnn_resolve.host.protocol import FileStat, Host, is_dir

Kind = Literal["missing", "empty", "changed", "foreign"]
RECORD_BYTES = 64 << 20
"""Bound on the size of a RECORD."""
_MOST_FILES = 1_000_000
_MOST_HASHED_BYTES = 512 << 20
"""Per folder of packages, a second or two; the smallest files first."""
_CHUNK_BYTES = 4 << 20
_INSTALLING_NS = 5_000_000_000
"""Time after writing RECORD during which an installer may still write files of the package."""
_OUTSIDE = ("../../../bin/", "../../../share/", "../../../include/", "../../../etc/")
"""Places outside of site-packages where wheels install files."""


class Damage(Struct, frozen=True, kw_only=True):
    """Files of one package that are not as it installed them, all of one kind."""

    package: str
    version: str
    kind: Kind
    paths: tuple[str, ...]
    """Sorted; relative to site-packages, absolute if they lie elsewhere."""
    of: int
    """Number of the package's files that were checked."""
    by: str | None = None
    """Package whose files are there instead."""

    @property
    def is_code(self) -> bool:
        """Whether a library or a module is among them, tests excluded."""
        return any(is_code(path) and not {"test", "tests"} & set(path.split("/")) for path in self.paths)

    @property
    def is_hollow(self) -> bool:
        """Whether the metadata that makes the package count as installed is itself empty or missing."""
        return self.kind in ("empty", "missing") and any(path.endswith((".dist-info/RECORD", ".dist-info/METADATA")) for path in self.paths)


class FilesReport(Struct, frozen=True, kw_only=True):
    """What was checked, and what is wrong with it."""

    damages: tuple[Damage, ...] = ()
    packages: int = 0
    files: int = 0
    unlisted: tuple[str, ...] = ()
    """Packages without a RECORD, which cannot be checked."""
    unread: int = 0
    """Number of files that are newer than their package and were not hashed, beyond the bound on bytes."""


class _Claim(Struct, frozen=True, kw_only=True):
    """RECORD entry of one file, and when RECORD was written."""

    size: int
    hash: str
    """`sha256=…`, as RECORD writes it."""
    written_ns: int


class InstalledPackage(Struct, frozen=True, kw_only=True):
    """An installed package."""

    name: str
    """Normalized."""
    version: str
    info: str
    """Path of its `.dist-info` or `.egg-info`."""


def packages_in(host: Host, folder: str) -> Iterator[InstalledPackage]:
    """Packages installed in a folder, by the names of their `.dist-info`."""
    for entry in host.list_dir(folder):
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        if entry.endswith(".dist-info") and name and not name.startswith("~"):
            yield InstalledPackage(name=canonicalize_name(name), version=version, info=f"{folder}/{entry}")


def is_code(path: str) -> bool:
    """Return whether a file is a library or a module."""
    return path.endswith((".so", ".pyd", ".py")) or ".so." in path


def verify_files(
    host: Host, folders: Sequence[str], names: Collection[str] | None = None, *, code_only: bool = False, foreign: bool = False
) -> FilesReport:
    """Compare the files of the packages in these folders, or of those in `names`, with their RECORD.

    Sizes and times come first, so that an environment of several gigabytes takes a moment. Hashed are only, up to a bound, files that
    were written later than their package, and those that two packages claim with the same size. `foreign` also reports files in folders
    of packages that no package lists.
    """
    sites = [_Site(host, folder, names, code_only=code_only) for folder in dict.fromkeys(folders)]
    damages = [damage for site in sites for damage in (*site.damages(), *(site.foreign() if foreign else ()))]
    return FilesReport(
        damages=tuple(damages),
        packages=sum(len(site.packages) for site in sites),
        files=sum(len(site.owners) for site in sites),
        unlisted=tuple(name for site in sites for name in site.unlisted),
        unread=sum(site.unread for site in sites),
    )


class _Site:
    """One folder of packages, as its RECORD files describe it."""

    def __init__(self, host: Host, folder: str, names: Collection[str] | None, *, code_only: bool) -> None:
        self._host = host
        self._folder = folder
        self.packages: dict[str, InstalledPackage] = {}
        self.unlisted: list[str] = []
        self.owners: dict[str, dict[str, _Claim]] = {}
        """Claims on each file with a recorded size, by path and package."""
        self._listed: set[str] = set()
        self.unread = 0
        self._bytes_left = _MOST_HASHED_BYTES
        self._hollow: list[Damage] = []
        """Packages whose metadata is missing or empty."""
        for package in packages_in(host, folder):
            if names is None or package.name in names:
                self._read_record(package, code_only=code_only)

    def _read_record(self, package: InstalledPackage, *, code_only: bool) -> None:
        record, metadata = f"{package.info}/RECORD", f"{package.info}/METADATA"
        text = self._host.read_text(record, RECORD_BYTES)
        status = self._host.stat(record)
        if text is None or status is None:
            if self._host.stat(metadata) is None:  # a folder name without a package
                self._add_hollow(package, "missing", metadata)
            else:
                self.unlisted.append(package.name)
            return
        self.packages[package.name] = package
        if not text.strip():
            self._add_hollow(package, "empty", record)
        for path, claim in _rows(text, self._folder, status.mtime_ns):
            self._listed.add(path)
            if claim is not None and len(self.owners) < _MOST_FILES and (not code_only or is_code(path)):
                self.owners.setdefault(path, {})[package.name] = claim

    def _add_hollow(self, package: InstalledPackage, kind: Kind, path: str) -> None:
        self.packages[package.name] = package
        paths = (path.removeprefix(f"{self._folder}/"),)
        self._hollow.append(Damage(package=package.name, version=package.version, kind=kind, paths=paths, of=1))

    def damages(self) -> Iterator[Damage]:
        """Files that are missing, empty or changed, by package.

        An empty `__init__.py` may be missing: the wheels of NVIDIA share `nvidia/__init__.py`, which goes with the first that is replaced,
        and the folder is imported without it (PEP 420).
        """
        found: dict[tuple[str, Kind], list[str]] = {}
        winners: dict[tuple[str, Kind], str] = {}
        for path, claims, status in self._suspects():
            digest = self._digest(path, status) if status is not None and _is_ambiguous(claims, status) else None
            for name, claim in claims.items():
                if status is None and claim.size == 0 and path.endswith("/__init__.py"):
                    continue
                kind = _kind(claim, status, digest)
                if kind is None:
                    continue
                found.setdefault((name, kind), []).append(path)
                others = [other for other in claims if other != name and status and _matches(claims[other], status.size, digest)]
                if others:
                    winners[name, kind] = others[-1]
        yield from self._hollow
        checked = Counter(name for claims in self.owners.values() for name in claims)
        for (name, kind), paths in found.items():
            version, by = self.packages[name].version, winners.get((name, kind))
            yield Damage(package=name, version=version, kind=kind, paths=tuple(sorted(paths)), of=checked[name], by=by)

    def _suspects(self) -> list[tuple[str, Mapping[str, _Claim], FileStat | None]]:
        """Files that size and time alone do not clear, with their claims and status, smallest first."""
        suspects = []
        for path, claims in self.owners.items():
            status = self._host.stat(self._absolute(path))
            claim = next(iter(claims.values()))
            if status is None or len(claims) > 1 or claim.size != status.size or _is_ambiguous(claims, status):
                smallest = min(claim.size for claim in claims.values())
                suspects.append((smallest, path, claims, status))
        return [suspect[1:] for suspect in sorted(suspects, key=lambda suspect: suspect[:2])]

    def _digest(self, path: str, status: FileStat) -> str | None:
        """Hash of a file, within the bound on bytes; None beyond it, or if the file cannot be read."""
        if status.size > self._bytes_left:
            self.unread += 1
            return None
        self._bytes_left -= status.size
        return _hash(self._host, self._absolute(path), status.size)

    def foreign(self) -> Iterator[Damage]:
        """Files in folders of packages that no package lists, by the package with most files in the folder; without compiled modules."""
        folders: dict[str, Counter[str]] = {}
        counts = Counter((path.rpartition("/")[0], name) for path, claims in self.owners.items() for name in claims)
        for (folder, name), count in counts.items():
            for outer in _parents(f"{folder}/"):
                if not outer or outer.startswith(("/", "..")) or outer.endswith(".dist-info"):
                    break
                folders.setdefault(outer, Counter())[name] += count
        found: dict[str, list[str]] = {}
        owned: dict[str, int] = {}
        for top in sorted({folder.partition("/")[0] for folder in folders}):
            for path in self._unlisted_below(top):
                inner = next(parent for parent in _parents(path) if parent in folders)
                owner = max(folders[inner], key=lambda name: (folders[inner][name], name))
                found.setdefault(owner, []).append(path)
                owned[owner] = folders[inner][owner]
        for name, paths in found.items():
            yield Damage(package=name, version=self.packages[name].version, kind="foreign", paths=tuple(sorted(paths)), of=owned[name])

    def _unlisted_below(self, folder: str) -> Iterator[str]:
        """Files below a folder that no package lists."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            for name in self._host.list_dir(f"{self._folder}/{here}"):
                path = f"{here}/{name}"
                if name == "__pycache__" or name.endswith((".pyc", ".dist-info")) or path in self._listed:
                    continue
                if is_dir(self._host, f"{self._folder}/{path}"):
                    waiting.append(path)
                else:
                    yield path

    def _absolute(self, path: str) -> str:
        if path.startswith("/"):
            return path
        return os.path.normpath(f"{self._folder}/{path}") if ".." in path else f"{self._folder}/{path}"


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_ambiguous(claims: Mapping[str, _Claim], status: FileStat) -> bool:
    """Whether only a file's content tells whose it is: two packages claim it, or it was written later than its package."""
    same_size = [claim for claim in claims.values() if claim.size == status.size]
    latest = status.mtime_ns - _INSTALLING_NS
    return any(0 < claim.written_ns < latest for claim in same_size) or len({claim.hash for claim in same_size}) > 1


def _kind(claim: _Claim, status: FileStat | None, digest: str | None) -> Kind | None:
    if status is None:
        return "missing"
    if status.size == 0 < claim.size:
        return "empty"
    return None if _matches(claim, status.size, digest) else "changed"


def _matches(claim: _Claim, size: int, digest: str | None) -> bool:
    """Whether a file matches its RECORD entry, as far as it was compared."""
    return claim.size == size and (digest is None or not claim.hash.startswith("sha256=") or claim.hash == digest)


def _hash(host: Host, path: str, size: int) -> str | None:
    """Hash of a file as RECORD writes it; None if it cannot be read."""
    import hashlib  # slow to import, and most runs hash nothing

    digest = hashlib.sha256()
    for offset in range(0, size, _CHUNK_BYTES):
        chunk = host.read_bytes(path, offset, _CHUNK_BYTES)
        if not chunk:
            return None
        digest.update(chunk)
    return record_hash(digest.digest())


def _rows(text: str, folder: str, written_ns: int) -> Iterator[tuple[str, _Claim | None]]:
    """Path of each file with its claim, if its size is recorded; without compiled modules and paths that lead far away."""
    for path, hash_, size in record_rows(text):
        if path.startswith("/") or path.endswith(".pyc"):
            continue
        inside = os.path.relpath(os.path.normpath(f"{folder}/{path}"), folder) if ".." in path else path
        if not inside.startswith("..") or inside.startswith(_OUTSIDE):
            yield inside, None if size is None else _Claim(size=size, hash=hash_.rstrip("="), written_ns=written_ns)


# ---- as problems of the facts


def with_overwritten(host: Host, facts: Facts, packages: Iterable[str]) -> Facts:
    """Add a problem for each of these packages whose libraries or modules are no longer its own."""
    pip = or_none(facts.packages.pip) or {}
    wanted = {name for name in packages if name in pip}
    if not wanted:
        return facts
    report = verify_files(host, package_folders(host, facts), wanted, code_only=True)
    problems = tuple(filter(None, map(_problem, report.damages)))
    return replace(facts, problems=(*facts.problems, *problems)) if problems else facts


def package_folders(host: Host, facts: Facts) -> list[str]:
    """Folders of packages in the environment that the facts describe."""
    prefix, version = facts.python.prefix, facts.python.version
    if not prefix or not version:
        return []
    line = ".".join(version.split(".")[:2])
    places = (
        f"{prefix}/lib/python{line}/site-packages",
        f"{prefix}/lib64/python{line}/site-packages",
        f"{prefix}/local/lib/python{line}/dist-packages",
    )
    return list(dict.fromkeys(host.realpath(place) for place in places if is_dir(host, place)))


def _problem(damage: Damage) -> Problem | None:
    """The damage in the words that a diagnosis recognises; modules that were removed to save space are none."""
    paths = [path for path in damage.paths if damage.kind != "missing" or not path.endswith(".py")]
    if not paths:
        return None
    count = f"{len(paths)} of {damage.of} files"
    if damage.kind == "changed":
        by = f" by {damage.by}" if damage.by else ""
        why = f"overwritten{by}: {count}, such as {paths[0]}, are not those that {damage.package} {damage.version} installed"
    else:
        state = "empty" if damage.kind == "empty" else "not there"
        why = f"removed: {count} that {damage.package} {damage.version} installed are {state}, such as {paths[0]}"
    return Problem(what=f"packages.pip.{damage.package}", why=why)
