#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=23.1", "pip", "requests>=2.31", "rich>=13.4", "tomli>=2; python_version < '3.11'"]
# ///
"""Write matrices/wheel/: the releases on the configured package index of the packages listed in harvest_packages.toml.

Per release: version, upload day, Requires-Python, wheel tags and Requires-Dist. The index is pip's (`pip config`, PIP_INDEX_URL) or
--index-url. Wheels are never downloaded, only their metadata, which is cached outside the repository, so that a second run reads only
pages, and an interrupted one continues where it stopped. A table with unchanged rows is not rewritten. With --new, the requirements of a
release stay as in its table, whatever is cached, unless its files have changed.

A release row:

    version          normalized by PEP 440; pre-releases only if the list asks for them or the package has nothing else
    date             of the first upload
    yanked           true if every file is
    requires_python  as on the index
    tags             compressed tag sets: the wheels of one interpreter and ABI joined over their platforms, manylinux names as
                     in PEP 600, only the lowest glibc of a wheel; x86_64, aarch64 and any, Linux with glibc only;
                     ["sdist"] if there is a source archive and no such wheel; a release with neither is left out
    metadata         id of the [[metadata]] with its Requires-Dist, or one per architecture if they differ; from the wheel for the
                     newest Python, or with `each_python` from all, distinguished by markers; or from a small source archive with
                     static metadata; left out if unknown

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read: the tables of
those packages stay as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from harvest_archive import Metadata
from harvest_command import command_line, parse_toml, read_table, read_toml, today, write_table
from harvest_index import CONNECTIONS, Index, IndexFailure, RemoteFile, cache_name_lookups, configured_index
from harvest_marker import ARCHITECTURES
from harvest_progress import progress
from harvest_table import Content, Release, Span, Table, plain_row, releases, table
from harvest_text import expanded, rendered
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Packages with the same settings."""

    packages: tuple[str, ...]
    architectures: tuple[str, ...] = ARCHITECTURES
    """Architectures whose wheels are read for metadata."""
    span: Span = field(default_factory=Span)
    newest: int | None = None
    """Number of newest releases read for metadata; None = all."""
    content: Content = field(default_factory=Content)


@dataclass(kw_only=True, slots=True)
class Harvest:
    """Results of one run."""

    releases: dict[str, list[Release]] = field(default_factory=dict)
    metadata: dict[str, Metadata] = field(default_factory=dict)
    """Metadata by URL of the file."""
    kept: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Package, version and architecture to the metadata entry of releases that need not be read."""
    unread: set[str] = field(default_factory=set)
    """Packages with a file that could not be read; their tables stay as they are."""
    failures: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the program."""
    options = _options(argv)
    groups = _groups(read_toml(options.list), options.package)
    index = Index(options.index_url or configured_index(), options.cache)
    harvest = Harvest()
    _read_pages(index, groups, harvest)
    if options.new:
        for group in groups:
            for name in group.packages:
                harvest.kept[name] = _known_entries(
                    os.path.join(options.out, f"{name}.toml"), harvest.releases.get(name, ()), group.content
                )
    wanted = dict(_wanted(groups, harvest))
    if len(wanted) > options.most:
        print(f"harvest: {len(wanted)} files to read, more than --most {options.most}", file=sys.stderr)
        return 2
    _read_metadata(index, wanted, harvest)
    changes = 0
    for name, group in sorted(((name, each) for each in groups for name in each.packages), key=itemgetter(0)):
        found = harvest.releases.get(name)
        if found and name not in harvest.unread:
            rows = table(name, found, lambda file: harvest.metadata.get(file.url), group.content, harvest.kept.get(name))
            changes += _update(rows, os.path.join(options.out, f"{name}.toml"), write=not options.check)
    if options.missing:
        print(*_missing(options.out), sep="\n")
    for failure in harvest.failures:
        print(f"harvest: {failure}", file=sys.stderr)
    print(f"{len(harvest.releases)} packages, {len(wanted)} files read, {changes} tables {'to change' if options.check else 'written'}")
    return 2 if harvest.failures else int(options.check and changes > 0)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    new = "read only the metadata of releases that are new or have changed files"
    parser = command_line("harvest", __doc__, listed="harvest_packages.toml", tables="wheel", new=new)
    parser.add_argument("--missing", action="store_true", help="list the requirements of the newest releases that have no table")
    parser.add_argument("--most", type=int, metavar="N", default=30_000, help="refuse to read the metadata of more files (%(default)s)")
    return parser.parse_args(argv)


def _groups(listed: dict[str, Any], only: Sequence[str] | None) -> list[Group]:
    groups = [_group(given, listed["drop_extras"]) for given in listed["group"]]
    if not only:
        return groups
    names = set(only)
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
        raise SystemExit(f"harvest: unknown keys of a group: {', '.join(sorted(unknown))}")
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
    packages = [(name, group) for group in groups for name in group.packages]

    def read(pair: tuple[str, Group]) -> list[RemoteFile] | IndexFailure:
        try:
            return index.files(pair[0])
        except IndexFailure as failure:
            return failure

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for (name, group), files in progress(zip(packages, pool.map(read, packages), strict=True), "pages", len(packages)):
            if isinstance(files, IndexFailure):
                harvest.failures.append(str(files))
            else:
                harvest.releases[name] = releases(name, files, group.span)


def _wanted(groups: Iterable[Group], harvest: Harvest) -> Iterator[tuple[str, tuple[str, RemoteFile]]]:
    """Yield the URL, package and file of needed metadata."""
    for group in groups:
        for name in group.packages:
            found = harvest.releases.get(name, [])
            for release in found if group.newest is None else found[-group.newest :]:
                if str(release.version) in harvest.kept.get(name, ()):
                    continue
                sources = {arch: release.metadata_files(arch, each_python=group.content.each_python) for arch in ARCHITECTURES}
                available = [arch for arch in group.architectures if sources[arch]]
                for arch in available or ARCHITECTURES:
                    yield from ((file.url, (name, file)) for _, file in sources[arch])


def _read_metadata(index: Index, wanted: dict[str, tuple[str, RemoteFile]], harvest: Harvest) -> None:
    def read(pair: tuple[str, RemoteFile]) -> Metadata | IndexFailure | None:
        try:
            return index.metadata(pair[1])
        except IndexFailure as failure:
            return failure

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for url, known in progress(zip(wanted, pool.map(read, wanted.values()), strict=True), "files", len(wanted)):
            if isinstance(known, IndexFailure):
                harvest.failures.append(str(known))
                harvest.unread.add(wanted[url][0])
            elif known is not None:
                harvest.metadata[url] = known


def _known_entries(path: str, found: Iterable[Release], chosen: Content) -> dict[str, dict[str, Any]]:
    """Return the metadata entries in a table, by version and architecture, of releases whose files are unchanged."""
    before = expanded(read_table(path))
    entries = {entry["id"]: {key: value for key, value in entry.items() if key != "id"} for entry in before["metadata"]}
    known = {}
    rows = {row["version"]: {**row, **({"date": row["date"].isoformat()} if "date" in row else {})} for row in before["release"]}
    for release in found:
        row = rows.get(str(release.version), {})
        ids = row.pop("metadata", {})
        if row == plain_row(release, dates=chosen.dates):
            numbers = ids if isinstance(ids, dict) else dict.fromkeys(ARCHITECTURES, ids)
            known[str(release.version)] = {arch: entries[number] for arch, number in numbers.items()}
    return known


def _update(rows: Table, path: str, *, write: bool) -> bool:
    """Replace a table whose rows differ, printing what is new, and return whether they do."""
    before = expanded(read_table(path))
    text = rendered(rows, today())
    after = expanded(parse_toml(text))
    if {**before, "read": None} == {**after, "read": None}:
        return False
    print(f"{rows.package}: {_difference(before, after)}")
    if write:
        write_table(path, text)
    return True


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Describe releases that were added, removed and changed."""
    old, new = ({row["version"]: _resolved(row, table) for row in table.get("release", ())} for table in (before, after))
    parts = (
        ("new", [version for version in new if version not in old]),
        ("gone", [version for version in old if version not in new]),
        ("changed", [version for version in new if version in old and old[version] != new[version]]),
    )
    return "; ".join(f"{len(versions)} {word} ({', '.join(versions[-5:])})" for word, versions in parts if versions) or "reformatted"


def _resolved(row: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Return a release with its requirements in place of their ids, which may change."""
    entries = {entry["id"]: entry.get("requires") for entry in table.get("metadata", ())}
    ids = row.get("metadata")
    return {**row, "metadata": {arch: entries.get(number) for arch, number in ids.items()} if isinstance(ids, dict) else entries.get(ids)}


def _missing(out: str) -> list[str]:
    """Return the packages without a table that the newest five releases of any table require without an extra."""
    known = {name.removesuffix(".toml") for name in os.listdir(out)}
    wanted: set[str] = set()
    for name in known:
        found = expanded(read_toml(os.path.join(out, f"{name}.toml")))
        ids = {number for row in found["release"][-5:] for number in _ids(row.get("metadata"))}
        for entry in found["metadata"]:
            lines = [Requirement(line) for line in entry.get("requires", ())] if entry["id"] in ids else []
            wanted.update(canonicalize_name(line.name) for line in lines if "extra" not in str(line.marker or ""))
    return sorted(wanted - known)


def _ids(metadata: int | dict[str, int] | None) -> Iterable[int | None]:
    return metadata.values() if isinstance(metadata, dict) else (metadata,)


if __name__ == "__main__":
    cache_name_lookups()
    sys.exit(main())
