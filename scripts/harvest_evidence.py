#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Write matrices/evidence/: what the wheels of harvest_evidence.toml need, and the GPUs that they have code for.

Of each release one wheel per architecture is read, that of the newest Python, whole and as a stream, by `cudnn_resolve.evidence`. Results
are cached outside the repository, so that an interrupted run continues where it stopped, and a second one reads only pages and new
wheels. With --new, releases up to the newest of a table keep their rows, whatever is cached. The index is pip's, or --index-url.

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read: the tables of
those packages stay as they are.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import requests
from harvest_command import command_line, exit_code, read_table, read_toml, rows_text, selected, update_rows
from harvest_index import TIMEOUT_S, Index, IndexFailure, RemoteFile, configured_index
from harvest_marker import ARCHITECTURES
from harvest_progress import progress
from harvest_table import Span, releases
from packaging.version import Version

from cudnn_resolve.evidence.wheel import WheelDamage, read_wheel, summary


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the program."""
    new = "read only releases newer than those of the table"
    options = command_line("harvest_evidence", __doc__, listed="harvest_evidence.toml", tables="evidence", new=new).parse_args(argv)
    index = Index(options.index_url or configured_index(), options.cache)
    failures = changes = 0
    packages = selected(read_toml(options.list)["group"], options.package)
    for name, group in progress(packages, "packages", len(packages)):
        path = os.path.join(options.out, f"{name}.toml")
        try:
            rows = list(_rows(index, name, group, _known_rows(path) if options.new else []))
        except IndexFailure as error:
            print(f"harvest: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        changes += update_rows(name, (row["version"] for row in rows), path, _table(name, rows), write=not options.check)
    return exit_code(options, changes, failures)


def _known_rows(path: str) -> list[dict[str, Any]]:
    """Return the rows of a table, one per release and architecture, oldest first."""
    defaults: dict[str, Any] = {"cuda": None, "needs": [], "frameworks": [], "same_line": False, "code": []}
    rows = [
        {**defaults, **row, "version": version, "arch": arch}
        for row in read_table(path).get("wheel", ())
        for version in row["version"]
        for arch in row.get("arch", ["any"])
    ]
    return sorted(rows, key=lambda row: (Version(row["version"]), row["arch"] not in ARCHITECTURES[:1]))


def _rows(index: Index, name: str, group: dict[str, Any], known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the known rows, then one for each newer release and architecture with a readable wheel, oldest first."""
    yield from known
    found = releases(name, index.files(name), Span())
    if known:
        found = [release for release in found if release.version > Version(known[-1]["version"])]
    for release in found[-group.get("newest", len(found)) :] if found else ():
        for arch in ARCHITECTURES:
            wheel = release.best_wheel(arch)
            if wheel is None:
                continue
            evidence = _evidence(index, wheel.file, group.get("largest_mb", 150) << 20)
            if evidence is not None and (evidence["binaries"] or "any" not in wheel.platforms or arch == ARCHITECTURES[0]):
                yield {"version": str(release.version), "arch": "any" if "any" in wheel.platforms else arch, **evidence}


def _evidence(index: Index, file: RemoteFile, largest: int) -> dict[str, Any] | None:
    """Return the evidence of a wheel, cached; None for one that is too large or damaged.

    A wheel that was too large is read again if the limit has grown.
    """
    cached = index.cache.get("evidence", file.url)
    if cached is not None and "said" in cached and (cached["said"] is not None or cached.get("largest", 0) >= largest):
        return cached["said"]  # type: ignore[no-any-return]
    evidence = _read(file, largest)
    index.cache.put("evidence", file.url, {"file": file.name, "said": evidence, "largest": largest})
    return evidence


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


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    """Render a table: releases with equal evidence share a row, and so do architectures with the same releases."""
    alike: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {}
    for row in rows:
        fields = {key: row[key] for key in ("cuda", "needs", "frameworks", "same_line", "code") if row[key]}
        alike.setdefault(json.dumps(fields), (fields, {}))[1].setdefault(row["arch"], []).append(row["version"])
    shared = []
    for fields, versions_by_arch in alike.values():
        arches_by_versions: dict[tuple[str, ...], list[str]] = {}
        for arch, versions in versions_by_arch.items():
            arches_by_versions.setdefault(tuple(versions), []).append(arch)
        for common, arches in arches_by_versions.items():
            shared.append({"version": common, **({"arch": arches} if arches != ["any"] else {}), **fields})
    return rows_text("harvest_evidence.py", name, "wheel", shared)


if __name__ == "__main__":
    sys.exit(main())
