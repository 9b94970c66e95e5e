#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Writes matrices/evidence/: what the wheels of harvest_evidence.toml need, and for which GPUs they hold code.

Of each release one wheel for each architecture is read, that of the newest Python, whole and as a stream, by `cudnn_resolve.evidence`. What
was read is kept in a cache outside the repository, so that an interrupted run goes on where it was, and a second one reads pages and
new wheels only. With --new, releases up to the newest of a table stay as the table says, cache or no cache. The index is pip's, or
--index-url.

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read: the tables of
those packages stay as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import requests
from harvest_index import TIMEOUT_S, Index, IndexFailure, RemoteFile, configured_index
from harvest_marker import ARCHITECTURES
from harvest_progress import told
from harvest_table import Release, Span, Wheel, releases
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.evidence.wheel import WheelDamage, read_wheel, summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "matrices", "evidence")
LIST = os.path.join(HERE, "harvest_evidence.toml")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cudnn-resolve-harvest")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the program."""
    options = _options(argv)
    with open(options.list, "rb") as stream:
        groups = tomllib.load(stream)["group"]
    index = Index(options.index_url or configured_index(), options.cache)
    failures = changes = 0
    for name, group in told(asked := asked_for(groups, options.package), "packages", len(asked)):
        path = os.path.join(options.out, f"{name}.toml")
        try:
            rows = list(_rows(index, name, group, options.cache, _kept(path) if options.new else []))
        except IndexFailure as error:
            print(f"harvest: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        changes += settle(name, rows, path, _table(name, rows), write=not options.check)
    print(f"{changes} tables {'to change' if options.check else 'written'}, {failures} packages not read")
    return 2 if failures else int(options.check and changes > 0)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="harvest_evidence", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--package", action="append", metavar="NAME", type=canonicalize_name, help="only this package; may be repeated")
    parser.add_argument("--check", action="store_true", help="say what would change, write nothing")
    parser.add_argument("--new", action="store_true", help="read only releases that are newer than those of the table")
    parser.add_argument("--index-url", metavar="URL", help="simple API to ask (that of pip)")
    parser.add_argument("--cache", metavar="DIR", default=CACHE, help="what was read before (%(default)s)")
    parser.add_argument("--list", metavar="FILE", default=LIST, help=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="DIR", default=OUT, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def asked_for(groups: Sequence[dict[str, Any]], only: Sequence[str] | None) -> list[tuple[str, dict[str, Any]]]:
    """The packages to be read, each with its group."""
    return [(name, group) for group in groups for name in group["packages"] if not only or name in only]


def _kept(path: str) -> list[dict[str, Any]]:
    """The entries of a table, in the order of their releases; none where there is no table."""
    try:
        with open(path, "rb") as stream:
            rows = tomllib.load(stream)["wheel"]
    except FileNotFoundError:
        return []
    nothing: dict[str, Any] = {"cuda": None, "needs": [], "frameworks": [], "same_line": False, "code": []}
    every = [
        {**nothing, **row, "version": one, "arch": arch} for row in rows for one in row["version"] for arch in row.get("arch", ["any"])
    ]
    return sorted(every, key=lambda one: (Version(one["version"]), one["arch"] not in ARCHITECTURES[:1]))


def _rows(index: Index, name: str, group: dict[str, Any], cache: str, kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One entry for each release and architecture of which a wheel could be read, oldest first; those that are `kept` are not read."""
    yield from kept
    found = releases(name, index.files(name), Span())
    if kept:
        found = [one for one in found if one.version > Version(kept[-1]["version"])]
    for release in found[-group.get("newest", len(found)) :] if found else ():
        for arch in ARCHITECTURES:
            wheel = spokesman(release, arch)
            if wheel is None:
                continue
            said = _evidence(wheel.file, cache, group.get("largest_mb", 150) << 20)
            if said is not None and (said["binaries"] or "any" not in wheel.platforms or arch == ARCHITECTURES[0]):
                yield {"version": str(release.version), "arch": "any" if "any" in wheel.platforms else arch, **said}


def spokesman(release: Release, arch: str) -> Wheel | None:
    """The wheel that stands for a release on an architecture: its own platform's, for the newest Python."""
    served = sorted((one for one in release.wheels if one.serves(arch)), key=Wheel.rank)
    return served[-1] if served else None


def _evidence(file: RemoteFile, cache: str, largest: int) -> dict[str, Any] | None:
    """What the table says of a wheel; from the cache where it was read before, None for one that is too large or damaged.

    One that was too large is asked again where the limit is higher now.
    """
    kept = os.path.join(cache, "evidence", hashlib.sha256(file.url.encode()).hexdigest() + ".json")
    try:
        with open(kept, encoding="utf-8") as stream:
            before = json.load(stream)
        if before["said"] is not None or before.get("largest", 0) >= largest:
            return before["said"]  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError):
        pass
    said = _read(file, largest)
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    with open(kept + ".part", "w", encoding="utf-8") as stream:
        json.dump({"file": file.name, "said": said, "largest": largest}, stream)
    os.replace(kept + ".part", kept)
    return said


def _read(file: RemoteFile, largest: int) -> dict[str, Any] | None:
    with tempfile.TemporaryFile() as wheel:
        try:
            with requests.get(file.url, stream=True, timeout=TIMEOUT_S) as answer:
                answer.raise_for_status()
                if int(answer.headers.get("Content-Length", 0)) > largest:
                    print(f"  {file.name}: larger than {largest >> 20} MB, not read", file=sys.stderr)
                    return None
                for part in answer.iter_content(1 << 20):
                    wheel.write(part)
        except requests.RequestException as error:
            raise IndexFailure(f"{file.name}: {type(error).__name__}") from error
        try:
            found = read_wheel(wheel, tempfile.TemporaryFile)
        except WheelDamage as error:
            print(f"  {file.name}: {error}", file=sys.stderr)
            return None
    if found.unread:
        print(f"  {file.name}: {'; '.join(found.unread)}", file=sys.stderr)
        return None
    print(f"  {file.name}: {len(found.binaries)} libraries", file=sys.stderr)
    return summary(found)


def settle(name: str, rows: list[dict[str, Any]], path: str, text: str, *, write: bool) -> bool:
    """Write a table where its rows differ from those that are there; True where they do."""
    try:
        with open(path, encoding="utf-8") as stream:
            before = stream.read()
    except OSError:
        before = ""
    if _without_day(before) == _without_day(text) or not rows:
        return False
    new = [version for version in dict.fromkeys(one["version"] for one in rows) if json.dumps(version) not in before]
    print(f"{name}: " + (f"{len(new)} new ({', '.join(new[-5:])})" if new else "changed"))
    if write:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
    return True


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    """The TOML text: releases with equal evidence share a row, and so do architectures with the same of them."""
    alike: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {}
    for one in rows:
        fields = {key: one[key] for key in ("cuda", "needs", "frameworks", "same_line", "code") if one[key]}
        alike.setdefault(json.dumps(fields), (fields, {}))[1].setdefault(one["arch"], []).append(one["version"])
    lines = []
    for fields, releases_of in alike.values():
        shared: dict[tuple[str, ...], list[str]] = {}
        for arch, versions in releases_of.items():
            shared.setdefault(tuple(versions), []).append(arch)
        for versions_alike, arches in shared.items():
            row = {"version": versions_alike, **({"arch": arches} if arches != ["any"] else {}), **fields}
            lines.append(f"  {{{', '.join(f'{key} = {json.dumps(value)}' for key, value in row.items())}}},\n")
    today = datetime.now(timezone.utc).date()
    head = f'origin = "harvested"\nscript = "scripts/harvest_evidence.py"\nread = {today}\npackage = "{name}"\n\nwheel = [\n'
    return head + "".join(lines) + "]\n"


def _without_day(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("read = ")]


if __name__ == "__main__":
    sys.exit(main())
