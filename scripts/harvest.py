#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=23.1", "pip", "requests>=2.31", "rich>=13.4", "tomli>=2; python_version < '3.11'"]
# ///
"""Writes matrices/wheel/: what the configured package index holds of the packages that harvest_packages.toml lists.

Per release: version, day of upload, Requires-Python, wheel tags and Requires-Dist. The index is pip's (`pip config`, PIP_INDEX_URL) or
--index-url. Wheels are never downloaded, only their metadata, which is kept in a cache outside the repository, so that a second
run reads pages and nothing else, and an interrupted one goes on where it was. A table whose rows are as they were is not touched.
With --new, what a release requires stays as its table says, cache or no cache, unless its files are others than then.

The form of a release row:

    version          as PEP 440 normalizes it; pre-releases where the list wants them or the package has nothing else
    date             of the first upload
    yanked           true where every file is
    requires_python  as the index says
    tags             compressed tag sets: the wheels of one interpreter and ABI joined over their platforms, manylinux names as
                     PEP 600 spells them, of one wheel only the lowest glibc; x86_64, aarch64 and any, Linux with glibc only;
                     ["sdist"] where there is a source archive and no such wheel; a release with neither is left out
    metadata         id of the [[metadata]] with its Requires-Dist, or one for each architecture where they differ; that of the newest
                     Python's wheel, or with `each_python` of all of them, told apart by markers; or of a source archive that is small
                     and says it; left out where it is not known

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read: the tables of
those packages stay as they are.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from harvest_archive import Metadata
from harvest_index import CONNECTIONS, Index, IndexFailure, RemoteFile, ask_names_once, configured_index
from harvest_marker import ARCHITECTURES
from harvest_progress import told
from harvest_table import Content, Release, Span, Table, plain_row, releases, table
from harvest_text import expanded, rendered
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "harvest_packages.toml")
MATRICES = os.path.join(os.path.dirname(HERE), "matrices", "wheel")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Packages that are read alike."""

    packages: tuple[str, ...]
    architectures: tuple[str, ...] = ARCHITECTURES
    """Whose wheels are asked for metadata."""
    span: Span = field(default_factory=Span)
    newest: int | None = None
    """So many releases are asked for metadata; None = all."""
    content: Content = field(default_factory=Content)


@dataclass(kw_only=True, slots=True)
class Harvest:
    """What one run has read."""

    releases: dict[str, list[Release]] = field(default_factory=dict)
    metadata: dict[str, Metadata] = field(default_factory=dict)
    """By the URL of the file."""
    kept: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By package and version, what releases require on each architecture that need not be asked for it."""
    unread: set[str] = field(default_factory=set)
    """Packages of which something could not be read; their tables stay as they are."""
    failures: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the program."""
    options = _options(argv)
    with open(options.list, "rb") as stream:
        listed = tomllib.load(stream)
    groups = _groups(listed, options.package)
    index = Index(options.index_url or configured_index(), options.cache)
    harvest = Harvest()
    _read_pages(index, groups, harvest)
    if options.new:
        for group in groups:
            for name in group.packages:
                harvest.kept[name] = _kept(os.path.join(options.out, f"{name}.toml"), harvest.releases.get(name, ()), group.content)
    wanted = dict(_wanted(groups, harvest))
    if len(wanted) > options.most:
        print(f"harvest: {len(wanted)} files to ask, more than --most {options.most}", file=sys.stderr)
        return 2
    _read_metadata(index, wanted, harvest)
    changes = 0
    for name, group in sorted(((name, one) for one in groups for name in one.packages), key=itemgetter(0)):
        found = harvest.releases.get(name)
        if found and name not in harvest.unread:
            rows = table(name, found, lambda file: harvest.metadata.get(file.url), group.content, harvest.kept.get(name))
            changes += _settle(rows, os.path.join(options.out, f"{name}.toml"), write=not options.check)
    if options.missing:
        print(*_missing(options.out), sep="\n")
    for failure in harvest.failures:
        print(f"harvest: {failure}", file=sys.stderr)
    print(f"{len(harvest.releases)} packages, {len(wanted)} files asked, {changes} tables {'to change' if options.check else 'written'}")
    return 2 if harvest.failures else int(options.check and changes > 0)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser = argparse.ArgumentParser(prog="harvest", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--package", action="append", metavar="NAME", help="only this package of the list; may be repeated")
    parser.add_argument("--check", action="store_true", help="say what would change, write nothing")
    parser.add_argument("--new", action="store_true", help="ask only for the metadata of releases that the tables do not have like this")
    parser.add_argument("--missing", action="store_true", help="name what the newest releases require and no table holds")
    parser.add_argument("--index-url", metavar="URL", help="simple API to ask (that of pip)")
    parser.add_argument(
        "--cache", metavar="DIR", default=os.path.join(home, "cudnn-resolve-harvest"), help="metadata read before (%(default)s)"
    )
    parser.add_argument("--most", type=int, metavar="N", default=30_000, help="refuse to ask for the metadata of more files (%(default)s)")
    parser.add_argument("--list", metavar="FILE", default=LIST, help=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="DIR", default=MATRICES, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _groups(listed: dict[str, Any], only: Sequence[str] | None) -> list[Group]:
    groups = [_group(one, listed["drop_extras"]) for one in listed["group"]]
    if not only:
        return groups
    names = {canonicalize_name(name) for name in only}
    unknown = names.difference(*(group.packages for group in groups))
    if unknown:
        raise SystemExit(f"harvest: not in the list: {', '.join(sorted(unknown))}")
    return [replace(group, packages=tuple(name for name in group.packages if name in names)) for group in groups]


def _group(given: dict[str, Any], drop_extras: Sequence[str]) -> Group:
    spans = {key: given[key] for key in ("since", "prereleases") if key in given}
    known = {
        "packages",
        "architectures",
        "newest",
        "placeholders",
        "versions",
        "drop_extras",
        "keep_extras",
        "dates",
        "each_python",
        *spans,
    }
    unknown = given.keys() - known
    if unknown:
        raise SystemExit(f"harvest: no such key of a group: {', '.join(sorted(unknown))}")
    keep = given.get("keep_extras")
    return Group(
        packages=tuple(given["packages"]),
        architectures=tuple(given.get("architectures", ARCHITECTURES)),
        span=Span(placeholders=frozenset(given.get("placeholders", ())), versions=tuple(given.get("versions", ())), **spans),
        newest=given.get("newest"),
        content=Content(
            drop_extras=frozenset((*drop_extras, *given.get("drop_extras", ()))),
            keep_extras=None if keep is None else frozenset(keep),
            dates=given.get("dates", True),
            each_python=given.get("each_python", False),
        ),
    )


def _read_pages(index: Index, groups: Sequence[Group], harvest: Harvest) -> None:
    asked = [(name, group) for group in groups for name in group.packages]

    def read(pair: tuple[str, Group]) -> list[RemoteFile] | IndexFailure:
        try:
            return index.files(pair[0])
        except IndexFailure as failure:
            return failure

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for (name, group), files in told(zip(asked, pool.map(read, asked), strict=True), "pages", len(asked)):
            if isinstance(files, IndexFailure):
                harvest.failures.append(str(files))
            else:
                harvest.releases[name] = releases(name, files, group.span)


def _wanted(groups: Iterable[Group], harvest: Harvest) -> Iterator[tuple[str, tuple[str, RemoteFile]]]:
    """The files whose metadata is needed, each with its package, by URL."""
    for group in groups:
        for name in group.packages:
            found = harvest.releases.get(name, [])
            for release in found if group.newest is None else found[-group.newest :]:
                if str(release.version) in harvest.kept.get(name, ()):
                    continue
                served = {arch: release.speakers(arch, each_python=group.content.each_python) for arch in ARCHITECTURES}
                asked = [arch for arch in group.architectures if served[arch]]
                for arch in asked or ARCHITECTURES:
                    yield from ((file.url, (name, file)) for _, file in served[arch])


def _read_metadata(index: Index, wanted: dict[str, tuple[str, RemoteFile]], harvest: Harvest) -> None:
    def read(pair: tuple[str, RemoteFile]) -> Metadata | IndexFailure | None:
        try:
            return index.metadata(pair[1])
        except IndexFailure as failure:
            return failure

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for url, known in told(zip(wanted, pool.map(read, wanted.values()), strict=True), "files", len(wanted)):
            if isinstance(known, IndexFailure):
                harvest.failures.append(str(known))
                harvest.unread.add(wanted[url][0])
            elif known is not None:
                harvest.metadata[url] = known


def _kept(path: str, found: Iterable[Release], chosen: Content) -> dict[str, dict[str, Any]]:
    """What the table says that releases require on each architecture, of those whose files are as it says."""
    try:
        with open(path, "rb") as stream:
            before = expanded(tomllib.load(stream))
    except FileNotFoundError:
        return {}
    entries = {one["id"]: {key: value for key, value in one.items() if key != "id"} for one in before["metadata"]}
    kept = {}
    rows = {row["version"]: {**row, **({"date": row["date"].isoformat()} if "date" in row else {})} for row in before["release"]}
    for release in found:
        row = rows.get(str(release.version), {})
        ids = row.pop("metadata", {})
        if row == plain_row(release, dates=chosen.dates):
            numbers = ids if isinstance(ids, dict) else dict.fromkeys(ARCHITECTURES, ids)
            kept[str(release.version)] = {arch: entries[number] for arch, number in numbers.items()}
    return kept


def _settle(rows: Table, path: str, *, write: bool) -> bool:
    """True where the file does not hold these rows; then says what is new and, if told so, writes them."""
    try:
        with open(path, "rb") as stream:
            before = expanded(tomllib.load(stream))
    except FileNotFoundError:
        before = {}
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    text = rendered(rows, today)
    after = expanded(tomllib.loads(text))
    if {**before, "read": None} == {**after, "read": None}:
        return False
    print(f"{rows.package}: {_difference(before, after)}")
    if write:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    return True


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """In words: releases that came, went and changed."""
    old, new = ({row["version"]: _meant(row, one) for row in one.get("release", ())} for one in (before, after))
    parts = (
        ("new", [version for version in new if version not in old]),
        ("gone", [version for version in old if version not in new]),
        ("changed", [version for version in new if version in old and old[version] != new[version]]),
    )
    told = [f"{len(versions)} {word} ({', '.join(versions[-5:])})" for word, versions in parts if versions]
    return "; ".join(told) or "written otherwise"


def _meant(row: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """A release with its requirements in place of their ids, which may all move."""
    entries = {entry["id"]: entry.get("requires") for entry in one.get("metadata", ())}
    ids = row.get("metadata")
    return {**row, "metadata": {arch: entries.get(number) for arch, number in ids.items()} if isinstance(ids, dict) else entries.get(ids)}


def _missing(out: str) -> list[str]:
    """Names in the Requires-Dist of the newest five releases of any table, without an extra, that have no table."""
    known = {name.removesuffix(".toml") for name in os.listdir(out)}
    wanted: set[str] = set()
    for name in known:
        with open(os.path.join(out, f"{name}.toml"), "rb") as stream:
            one = expanded(tomllib.load(stream))
        ids = {row.get("metadata") for row in one["release"][-5:] if not isinstance(row.get("metadata"), dict)}
        ids.update(number for row in one["release"][-5:] if isinstance(row.get("metadata"), dict) for number in row["metadata"].values())
        for entry in one.get("metadata", ()):
            lines = [Requirement(line) for line in entry.get("requires", ())] if entry["id"] in ids else []
            wanted.update(canonicalize_name(line.name) for line in lines if "extra" not in str(line.marker or ""))
    return sorted(wanted - known)


if __name__ == "__main__":
    ask_names_once()
    sys.exit(main())
