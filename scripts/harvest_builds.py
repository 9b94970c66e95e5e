#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Write matrices/measured/: CUDA, cuDNN and GPU code of framework builds, read out of their wheels.

Of each release one wheel per architecture is read, that of the newest Python: the members listed in harvest_builds.toml, by range
requests, unpacked one at a time. `matrix check` compares the framework tables with the result. Results are cached outside the repository,
so that an interrupted run continues where it stopped. The newest releases come first; with --stated only small members are read, which
takes minutes, and a wheel whose libraries were not read yet has no GPU code in the table. With --new, a wheel whose GPU code is in the
table keeps its row, whatever is cached.

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import requests
from harvest_command import command_line, exit_code, read_table, read_toml, rows_text, selected, update_rows
from harvest_index import TIMEOUT_S, Index, IndexFailure, Positioned, RemoteFile, configured_index, remote_archive
from harvest_marker import ARCHITECTURES
from harvest_progress import progress
from harvest_table import Span, releases
from packaging.requirements import InvalidRequirement, Requirement
from urllib3.exceptions import HTTPError

from cudnn_resolve.evidence.binary import read_binary
from cudnn_resolve.evidence.elf import ElfError

BLOCK = 1 << 20
Read = Callable[[RemoteFile, str], dict[str, Any]]
CUDA = re.compile(
    r"""\bcuda(?:_version)?["']?\s*(?::\s*[\w\[\]., ]+)?[:=]\s*["']?(\d{1,2}\.\d{1,2})\b|["']cuda["']:\s*["']?(\d{1,2}\.\d{1,2})"""
)
CUDNN = re.compile(r"""\bcudnn(?:_version)?["']?\s*[:=]\s*(?:\{\s*["']version["']:\s*)?["']?(\d{1,2}(?:\.\d{1,3}){0,3})\b""")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the program."""
    new = "read only wheels without GPU code in the table"
    parser = command_line("harvest_builds", __doc__, listed="harvest_builds.toml", tables="measured", new=new)
    parser.add_argument("--stated", action="store_true", help="read no libraries that are not cached")
    parser.add_argument("--newest", type=int, metavar="N", help="read uncached libraries of the N newest releases only")
    options = parser.parse_args(argv)
    index = Index(options.index_url or configured_index(), options.cache)
    failures = changes = 0
    packages = selected(read_toml(options.list)["group"], options.package)
    for name, group in progress(packages, "packages", len(packages)):
        path = os.path.join(options.out, f"{name}.toml")
        try:
            rows = list(_rows(index, name, group, options, _known_rows(path) if options.new else {}))
        except (IndexFailure, zipfile.BadZipFile, zlib.error, EOFError) as error:
            print(f"harvest: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        rows = [row for row in reversed(rows) if row["cuda"] or row["cudnn"] or row["code"]]
        changes += update_rows(name, (row["version"] for row in rows), path, _table(name, rows), write=not options.check)
    return exit_code(options, changes, failures)


def _known_rows(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of a table that have GPU code, by version and architecture."""
    return {
        (version, arch): {"cuda": None, "cudnn": None, **row, "version": version, "arch": arch}
        for row in read_table(path).get("build", ())
        if "code" in row
        for version in row["version"]
        for arch in row["arch"]
    }


def _rows(
    index: Index, name: str, group: dict[str, str], options: argparse.Namespace, known_rows: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each release and architecture with a wheel for Linux, newest first; known rows are not read again."""
    for number, release in enumerate(reversed(releases(name, index.files(name), Span()))):
        reads = not options.stated and (options.newest is None or number < options.newest)
        for arch in reversed(ARCHITECTURES):
            wheel = release.best_wheel(arch)
            if wheel is None:
                continue
            if (known := known_rows.get((str(release.version), arch))) is not None:
                yield known
                continue
            stated = _cached(index, wheel.file, "stated", group["states"], partial(_stated, index)) or {}
            libraries = (_cached(index, wheel.file, "code", group["code"], _code if reads else None) or {"libraries": {}})["libraries"]
            own = [library for path, library in libraries.items() if not re.fullmatch(group.get("beside", "none"), path)]
            compiled = {library["cuda"] for library in own if library["cuda"]}
            pins = _pins(index, wheel.file, arch)
            yield {
                "version": str(release.version),
                "arch": arch,
                "cuda": stated.get("cuda") or (compiled.pop() if len(compiled) == 1 else None),
                "cudnn": pins.pop() if len(pins) == 1 else stated.get("cudnn"),
                "code": sorted({target for library in own for target in library["code"]}, key=_code_key),
            }


def _code_key(target: str) -> tuple[bool, int, str]:
    return target.startswith("compute"), int(re.sub(r"\D", "", target)), target


def _pins(index: Index, file: RemoteFile, arch: str) -> set[str]:
    """Return the cuDNN releases that the wheel pins on an architecture."""
    metadata = index.metadata(file)
    found = set()
    for line in metadata.requires if metadata else ():
        with suppress(InvalidRequirement):
            requirement = Requirement(line)
            machine = {"platform_system": "Linux", "sys_platform": "linux", "platform_machine": arch, "extra": "and-cuda"}
            if re.fullmatch(r"nvidia-cudnn-cu\d+", requirement.name) and (
                requirement.marker is None or requirement.marker.evaluate(machine)
            ):
                found |= {clause.version for clause in requirement.specifier if clause.operator == "=="}
    return found


def _cached(index: Index, file: RemoteFile, kind: str, pattern: str, read: Read | None) -> dict[str, Any] | None:
    """Return what `read` gives for a wheel, cached; None if it is not cached and `read` is None."""
    key = f"{file.url} {kind} {pattern}"
    cached = index.cache.get("builds", key)
    if cached is not None and "said" in cached:
        return cached["said"]  # type: ignore[no-any-return]
    if read is None:
        return None
    found = read(file, pattern)
    index.cache.put("builds", key, {"file": file.name, "kind": kind, "said": found})
    return found


def _stated(index: Index, file: RemoteFile, pattern: str) -> dict[str, Any]:
    """Return CUDA and cuDNN as stated by modules of the wheel."""
    with remote_archive(index, file) as archive:
        members = [member for member in archive.infolist() if re.fullmatch(pattern, member.filename)]
        text = "\n".join(archive.read(member).decode("utf-8", "replace") for member in members)
    cudas = {found[1] or found[2] for found in CUDA.finditer(text)}
    cudnns = set(CUDNN.findall(text))
    return {"cuda": cudas.pop() if len(cudas) == 1 else None, "cudnn": cudnns.pop() if len(cudnns) == 1 else None}


def _code(file: RemoteFile, pattern: str) -> dict[str, Any]:
    """Return GPU code, toolkit and needed libraries of the framework's own libraries, by path."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(_Stream(file.url)) as archive:
        for member in archive.infolist():
            if not re.fullmatch(pattern, member.filename):
                continue
            with archive.open(member) as source, tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(source, copy, BLOCK)
                try:
                    binary = read_binary(copy, member.filename)
                except ElfError as error:
                    print(f"  {file.name}: {member.filename}: {error}", file=sys.stderr)
                    continue
            found[member.filename] = {
                "code": [str(target) for target in binary.code if target not in binary.strays],
                "cuda": str(binary.cuda) if binary.cuda else None,
                "needed": list(binary.needed),
            }
    print(f"  {file.name}: {len(found)} libraries", file=sys.stderr)
    return {"libraries": found}


class _Stream(Positioned):
    """Remote file for `zipfile` that reads sequentially from one response."""

    def __init__(self, url: str) -> None:
        self._url, self._next = url, -1
        self._answer: requests.Response | None = None
        try:
            with requests.get(url, timeout=TIMEOUT_S, headers={"Range": "bytes=0-0", "Accept-Encoding": "identity"}) as answer:
                answer.raise_for_status()
                self._size = int(answer.headers["Content-Range"].rpartition("/")[2])
        except (requests.RequestException, KeyError, ValueError) as error:
            raise IndexFailure(f"{url.rsplit('/', 1)[-1]}: {type(error).__name__}") from error

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        try:
            data = self._read(wanted)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise IndexFailure(f"{self._url.rsplit('/', 1)[-1]}: {type(error).__name__}") from error
        buffer[: len(data)] = data
        self._at += len(data)
        self._next = self._at
        return len(data)

    def _read(self, wanted: int) -> bytes:
        if self._answer is None or self._next != self._at:
            self.close_answer()
            span = {"Range": f"bytes={self._at}-", "Accept-Encoding": "identity", "User-Agent": "cudnn-resolve-harvest"}
            self._answer = requests.get(self._url, stream=True, timeout=TIMEOUT_S, headers=span)
            if self._answer.status_code != requests.codes.partial_content:
                raise IndexFailure(f"{self._url.rsplit('/', 1)[-1]}: the index returned {self._answer.status_code} to a range request")
        return bytes(self._answer.raw.read(wanted))

    def close_answer(self) -> None:
        """Close the current response."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        self.close_answer()
        super().close()


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    """Render a table: releases with equal columns share a row."""
    shared: dict[str, dict[str, Any]] = {}
    for row in rows:
        fields = {"arch": [row["arch"]], **{key: row[key] for key in ("cuda", "cudnn", "code") if row[key]}}
        shared.setdefault(json.dumps(fields), {"version": [], **fields})["version"].append(row["version"])
    return rows_text("harvest_builds.py", name, "build", shared.values())


if __name__ == "__main__":
    sys.exit(main())
