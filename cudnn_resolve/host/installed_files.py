"""Installed files held against RECORD: which are missing, empty, changed, or nobody's."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.facts.model import Facts, Problem, or_none
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.host.protocol import FileStat, Host, is_dir

Kind = Literal["missing", "empty", "changed", "foreign"]
_RECORD_BYTES = 64 << 20
_MOST_FILES = 1_000_000
_MOST_SUMMED_BYTES = 512 << 20
"""Of one environment, a second or two; the smallest files first."""
_PIECE_BYTES = 4 << 20
_INSTALLING_NS = 5_000_000_000
"""How much later than its RECORD an installer may still write a file of a package."""


_NEAR = ("../../../bin/", "../../../share/", "../../../include/", "../../../etc/")
"""Where files of a package lie that are none of its folder of packages."""


class Damage(Struct, frozen=True, kw_only=True):
    """The files of one package that are not as it installed them, all in the same manner."""

    package: str
    version: str
    kind: Kind
    paths: tuple[str, ...]
    """Below the folder of packages, or from `/` where they lie elsewhere; sorted."""
    of: int
    """Files of the package that were looked at."""
    by: str | None = None
    """The package whose files lie there instead."""

    @property
    def is_code(self) -> bool:
        """True where a library or a module is among them, tests left out."""
        return any(is_code(path) and not {"test", "tests"} & set(path.split("/")) for path in self.paths)

    @property
    def is_hollow(self) -> bool:
        """True where what says that the package is there is itself empty or missing."""
        return self.kind in ("empty", "missing") and any(path.endswith((".dist-info/RECORD", ".dist-info/METADATA")) for path in self.paths)


class FilesReport(Struct, frozen=True, kw_only=True):
    """What was looked at, and what is wrong with it."""

    damages: tuple[Damage, ...] = ()
    packages: int = 0
    files: int = 0
    unlisted: tuple[str, ...] = ()
    """Packages without a list of their files, of which nothing can be said."""
    unread: int = 0
    """Files changed since the installation that were too many to read."""


class _Claim(Struct, frozen=True, kw_only=True):
    """RECORD entry of one file, and when RECORD was written."""

    size: int
    sum: str
    """`sha256=…`, as RECORD writes it."""
    written_ns: int


class _Package(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    record: str
    """Path of its RECORD."""


def is_code(path: str) -> bool:
    """Return whether a file is a library or a module."""
    return path.endswith((".so", ".pyd", ".py")) or ".so." in path


def verify_files(
    host: Host, folders: Sequence[str], names: Collection[str] | None = None, *, code_only: bool = False, foreign: bool = False
) -> FilesReport:
    """Hold the files of the packages in these folders against their RECORD; `names` are those that count, all without.

    Sizes and times come first: an environment of several gigabytes is looked through in a moment. A sum is asked only of files that were
    written later than their package, and where two packages claim a file and both say the same size, up to a bound. `foreign` also tells
    files in folders of packages that no package lists.
    """
    report = FilesReport()
    for folder in dict.fromkeys(folders):
        site = _Site(host, folder, names, code_only=code_only)
        damages = [*site.damages(), *(site.foreign() if foreign else ())]
        report = FilesReport(
            damages=(*report.damages, *damages),
            packages=report.packages + len(site.packages),
            files=report.files + len(site.owners),
            unlisted=(*report.unlisted, *site.unlisted),
            unread=report.unread + site.unread,
        )
    return report


class _Site:
    """One folder of packages."""

    def __init__(self, host: Host, folder: str, names: Collection[str] | None, *, code_only: bool) -> None:
        self._host = host
        self._folder = folder
        self.packages: dict[str, _Package] = {}
        self.unlisted: list[str] = []
        self.owners: dict[str, dict[str, _Claim]] = {}
        """Path to package to claim, of files whose size is said."""
        self._listed: set[str] = set()
        self.unread = 0
        self._spoiled: list[Damage] = []
        for package in self._named(names):
            text = host.read_text(package.record, _RECORD_BYTES)
            seen = host.stat(package.record)
            if text is None or seen is None:
                metadata = package.record.removesuffix("RECORD") + "METADATA"
                if host.stat(metadata) is None:  # a name without a package
                    self._spoil(package, "missing", metadata)
                else:
                    self.unlisted.append(package.name)
                continue
            self.packages[package.name] = package
            if not text.strip():
                self._spoil(package, "empty", package.record)
            for path, claim in _rows(text, folder, seen.mtime_ns):
                self._listed.add(path)
                if claim is not None and len(self.owners) < _MOST_FILES and (not code_only or is_code(path)):
                    self.owners.setdefault(path, {})[package.name] = claim

    def _spoil(self, package: _Package, kind: Kind, path: str) -> None:
        self.packages[package.name], where = package, path.removeprefix(f"{self._folder}/")
        self._spoiled.append(Damage(package=package.name, version=package.version, kind=kind, paths=(where,), of=1))

    def _named(self, names: Collection[str] | None) -> Iterator[_Package]:
        for entry in sorted(self._host.list_dir(self._folder)):
            stem = entry.removesuffix(".dist-info")
            name, _, version = stem.partition("-")
            if stem != entry and name and not entry.startswith("~") and (names is None or canonicalize_name(name) in names):
                yield _Package(name=canonicalize_name(name), version=version, record=f"{self._folder}/{entry}/RECORD")

    def damages(self) -> Iterator[Damage]:
        """Files that are missing, empty or changed, by package.

        An empty `__init__.py` may be missing: the wheels of NVIDIA share `nvidia/__init__.py`, which goes with the first that is replaced,
        and the folder is imported without it (PEP 420).
        """
        found: dict[tuple[str, Kind], list[str]] = {}
        winners: dict[tuple[str, Kind], str] = {}
        of = Counter(name for claims in self.owners.values() for name in claims)
        unsure = []
        for path, claims in self.owners.items():
            seen = self._host.stat(self._place(path))
            claim = next(iter(claims.values()))
            if seen is None or len(claims) > 1 or claim.size != seen.size or _is_doubtful(claims, seen):
                unsure.append((min(one.size for one in claims.values()), path, claims, seen))
        left = _MOST_SUMMED_BYTES
        for _, path, claims, seen in sorted(unsure, key=lambda one: one[:2]):
            sum_now: str | None = None
            if seen is not None and _is_doubtful(claims, seen):
                if seen.size <= left:
                    left -= seen.size
                    sum_now = _sum(self._host, self._place(path), seen.size)
                else:
                    self.unread += 1
            for name, claim in claims.items():
                kind = _kind(claim, seen, sum_now) if seen or claim.size or not path.endswith("/__init__.py") else None
                if kind is not None:
                    found.setdefault((name, kind), []).append(path)
                    others = [one for one, its in claims.items() if one != name and seen and _is_own(its, seen.size, sum_now)]
                    if others:
                        winners[name, kind] = others[-1]
        yield from self._spoiled
        for (name, kind), paths in found.items():
            version, by = self.packages[name].version, winners.get((name, kind))
            yield Damage(package=name, version=version, kind=kind, paths=tuple(sorted(paths)), of=of[name], by=by)

    def foreign(self) -> Iterator[Damage]:
        """Files in folders of packages that none of them lists, by the package that has most of that folder; compiled ones left out."""
        folders: dict[str, Counter[str]] = {}
        inside = Counter((path.rpartition("/")[0], name) for path, claims in self.owners.items() for name in claims)
        for (folder, name), count in inside.items():
            for outer in _upwards(f"{folder}/"):
                if not outer or outer.startswith(("/", "..")) or outer.endswith(".dist-info"):
                    break
                folders.setdefault(outer, Counter())[name] += count
        found: dict[str, list[str]] = {}
        of: dict[str, int] = {}
        for folder in sorted({one.partition("/")[0] for one in folders}):
            for path in self._below(folder):
                inner = next(one for one in _upwards(path) if one in folders)
                owner = max(folders[inner], key=lambda name: (folders[inner][name], name))
                found.setdefault(owner, []).append(path)
                of[owner] = folders[inner][owner]
        for name, paths in found.items():
            yield Damage(package=name, version=self.packages[name].version, kind="foreign", paths=tuple(sorted(paths)), of=of[name])

    def _below(self, folder: str) -> Iterator[str]:
        """What no package lists below a folder."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            for name in self._host.list_dir(f"{self._folder}/{here}"):
                path = f"{here}/{name}"
                if name == "__pycache__" or name.endswith((".pyc", ".dist-info")):
                    continue
                if path in self._listed:
                    continue
                if is_dir(self._host, f"{self._folder}/{path}"):
                    waiting.append(path)
                else:
                    yield path

    def _place(self, path: str) -> str:
        if path.startswith("/"):
            return path
        return os.path.normpath(f"{self._folder}/{path}") if ".." in path else f"{self._folder}/{path}"


def _upwards(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_doubtful(claims: Mapping[str, _Claim], seen: FileStat) -> bool:
    """True where only its content tells whose a file is: two packages claim it, or it was written later than the package was."""
    same = [claim for claim in claims.values() if claim.size == seen.size]
    latest = seen.mtime_ns - _INSTALLING_NS
    return any(0 < claim.written_ns < latest for claim in same) or (len(same) > 1 and len({claim.sum for claim in same}) > 1)


def _kind(claim: _Claim, seen: FileStat | None, sum_now: str | None) -> Kind | None:
    if seen is None:
        return "missing"
    if seen.size == 0 < claim.size:
        return "empty"
    return None if _is_own(claim, seen.size, sum_now) else "changed"


def _is_own(claim: _Claim, size: int, sum_now: str | None) -> bool:
    """True where a file matches the entry, as far as it was compared."""
    return claim.size == size and (sum_now is None or not claim.sum.startswith("sha256=") or claim.sum == sum_now)


def _sum(host: Host, path: str, size: int) -> str | None:
    """Hash of a file as RECORD writes it; None where it cannot be read."""
    import base64  # slow to import, and most runs sum up nothing
    import hashlib

    digest = hashlib.sha256()
    for offset in range(0, size, _PIECE_BYTES):
        piece = host.read_bytes(path, offset, _PIECE_BYTES)
        if not piece:
            return None
        digest.update(piece)
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _rows(text: str, folder: str, written_ns: int) -> Iterator[tuple[str, _Claim | None]]:
    """Path of each file with its claim where its size is said, compiled ones left out; a path that leads far away is none of a package."""
    for path, said, size in record_rows(text):
        if path.startswith("/") or path.endswith(".pyc"):
            continue
        inside = os.path.relpath(os.path.normpath(f"{folder}/{path}"), folder) if ".." in path else path
        if not inside.startswith("..") or inside.startswith(_NEAR):
            yield inside, None if size is None else _Claim(size=size, sum=said.rstrip("="), written_ns=written_ns)


# ---- as problems of the facts


def with_overwritten(host: Host, facts: Facts, packages: Iterable[str]) -> Facts:
    """Add a problem for each of these packages whose libraries and modules are no longer its own."""
    pip = or_none(facts.packages.pip) or {}
    wanted = {name for name in packages if name in pip}
    if not wanted:
        return facts
    found = [
        problem for one in verify_files(host, package_folders(host, facts), wanted, code_only=True).damages for problem in _problem(one)
    ]
    return replace(facts, problems=(*facts.problems, *found)) if found else facts


def package_folders(host: Host, facts: Facts) -> list[str]:
    """Return the folders of packages of the environment that the facts describe."""
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


def _problem(one: Damage) -> Iterator[Problem]:
    """The damage in the words that a diagnosis knows; modules that somebody took away to save room are none."""
    paths = [path for path in one.paths if one.kind != "missing" or not path.endswith(".py")]
    if not paths:
        return
    count = f"{len(paths)} of {one.of} files"
    if one.kind == "changed":
        by = f" by {one.by}" if one.by else ""
        why = f"overwritten{by}: {count}, such as {paths[0]}, are not those that {one.package} {one.version} installed"
    else:
        what = "empty" if one.kind == "empty" else "not there"
        why = f"removed: {count} that {one.package} {one.version} installed are {what}, such as {paths[0]}"
    yield Problem(what=f"packages.pip.{one.package}", why=why)
