#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Writes matrices/measured/: CUDA, cuDNN and GPU code of the builds of frameworks, read out of their wheels.

Of each release one wheel for each architecture is read, that of the newest Python: the members of harvest_builds.toml, by range
requests, unpacked one at a time. `matrix check` holds the builds of the framework tables against it. What was read is kept in a cache
outside the repository, so that an interrupted run goes on where it was. The newest releases come first; with --stated only the small
members are read, which takes minutes, and a wheel whose libraries were not read yet has no GPU code in the table. With --new, a wheel of
which the table tells the GPU code stays as it says, cache or no cache.

Exit: 0 done, or with --check nothing to change; 1 with --check something to change; 2 something could not be read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any

import requests
from harvest_evidence import CACHE, asked_for, settle, spokesman
from harvest_index import TIMEOUT_S, Index, IndexFailure, Positioned, RemoteFile, configured_index, remote_archive
from harvest_marker import ARCHITECTURES
from harvest_progress import told
from harvest_table import Span, releases
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from urllib3.exceptions import HTTPError

from cudnn_resolve.evidence.binary import read_binary
from cudnn_resolve.evidence.elf import ElfError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "matrices", "measured")
LIST = os.path.join(HERE, "harvest_builds.toml")
BLOCK = 1 << 20
Read = Callable[[RemoteFile, str], dict[str, Any]]
CUDA = re.compile(
    r"""\bcuda(?:_version)?["']?\s*(?::\s*[\w\[\]., ]+)?[:=]\s*["']?(\d{1,2}\.\d{1,2})\b|["']cuda["']:\s*["']?(\d{1,2}\.\d{1,2})"""
)
CUDNN = re.compile(r"""\bcudnn(?:_version)?["']?\s*[:=]\s*(?:\{\s*["']version["']:\s*)?["']?(\d{1,2}(?:\.\d{1,3}){0,3})\b""")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the program."""
    options = _options(argv)
    with open(options.list, "rb") as stream:
        groups = tomllib.load(stream)["group"]
    index = Index(options.index_url or configured_index(), options.cache)
    failures = changes = 0
    for name, group in told(asked := asked_for(groups, options.package), "packages", len(asked)):
        path = os.path.join(options.out, f"{name}.toml")
        rows: list[dict[str, Any]] = []
        try:
            for row in _rows(index, name, group, options, _kept(path) if options.new else {}):
                rows.insert(0, row)
        except (IndexFailure, zipfile.BadZipFile, zlib.error, EOFError) as error:
            print(f"harvest: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        rows = [one for one in rows if one["cuda"] or one["cudnn"] or one["code"]]
        changes += settle(name, rows, path, _table(name, rows), write=not options.check)
    print(f"{changes} tables {'to change' if options.check else 'written'}, {failures} packages not read")
    return 2 if failures else int(options.check and changes > 0)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="harvest_builds", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--package", action="append", metavar="NAME", type=canonicalize_name, help="only this package; may be repeated")
    parser.add_argument("--check", action="store_true", help="say what would change, write nothing")
    parser.add_argument("--new", action="store_true", help="read only wheels of which the table tells no GPU code")
    parser.add_argument("--stated", action="store_true", help="read no library that was not read before")
    parser.add_argument("--newest", type=int, metavar="N", help="read new libraries of the N newest releases only")
    parser.add_argument("--index-url", metavar="URL", help="simple API to ask (that of pip)")
    parser.add_argument("--cache", metavar="DIR", default=CACHE, help="what was read before (%(default)s)")
    parser.add_argument("--list", metavar="FILE", default=LIST, help=argparse.SUPPRESS)
    parser.add_argument("--out", metavar="DIR", default=OUT, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _kept(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The entries of a table with GPU code, by version and architecture."""
    try:
        with open(path, "rb") as stream:
            rows = tomllib.load(stream)["build"]
    except FileNotFoundError:
        return {}
    told = [
        {"cuda": None, "cudnn": None, **row, "version": one, "arch": arch} for row in rows for one in row["version"] for arch in row["arch"]
    ]
    return {(one["version"], one["arch"]): one for one in told if "code" in one}


def _rows(
    index: Index, name: str, group: dict[str, str], options: argparse.Namespace, kept: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """One entry for each release and architecture with a wheel for Linux, newest first; those that are `kept` are not read."""
    for number, release in enumerate(reversed(releases(name, index.files(name), Span()))):
        reads = not options.stated and (options.newest is None or number < options.newest)
        for arch in reversed(ARCHITECTURES):
            wheel = spokesman(release, arch)
            if wheel is None:
                continue
            if (known_already := kept.get((str(release.version), arch))) is not None:
                yield known_already
                continue
            said = _cached(options.cache, wheel.file, "stated", group["states"], partial(_stated, index)) or {}
            known = _cached(options.cache, wheel.file, "code", group["code"], _code if reads else None) or {"libraries": {}}
            own = [one for path, one in known["libraries"].items() if not re.fullmatch(group.get("beside", "none"), path)]
            compiled = {one["cuda"] for one in own if one["cuda"]}
            pins = _pins(index, wheel.file, arch)
            yield {
                "version": str(release.version),
                "arch": arch,
                "cuda": said.get("cuda") or (compiled.pop() if len(compiled) == 1 else None),
                "cudnn": pins.pop() if len(pins) == 1 else said.get("cudnn"),
                "code": sorted({target for one in own for target in one["code"]}, key=_natural),
            }


def _natural(target: str) -> tuple[bool, int, str]:
    return target.startswith("compute"), int(re.sub(r"\D", "", target)), target


def _pins(index: Index, file: RemoteFile, arch: str) -> set[str]:
    """Releases of cuDNN that the wheel pins on that architecture."""
    metadata = index.metadata(file)
    found = set()
    for line in metadata.requires if metadata else ():
        with suppress(InvalidRequirement):
            one = Requirement(line)
            place = {"platform_system": "Linux", "sys_platform": "linux", "platform_machine": arch, "extra": "and-cuda"}
            if re.fullmatch(r"nvidia-cudnn-cu\d+", one.name) and (one.marker is None or one.marker.evaluate(place)):
                found |= {spec.version for spec in one.specifier if spec.operator == "=="}
    return found


def _cached(cache: str, file: RemoteFile, kind: str, pattern: str, read: Read | None) -> dict[str, Any] | None:
    """What was read of a wheel, from the cache where it was before; None where it was not and `read` is None."""
    key = hashlib.sha256(f"{file.url} {kind} {pattern}".encode()).hexdigest()
    path = os.path.join(cache, "builds", key + ".json")
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)["said"]  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError):
        if read is None:
            return None
    said: dict[str, Any] = read(file, pattern)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8") as stream:
        json.dump({"file": file.name, "kind": kind, "said": said}, stream)
    os.replace(path + ".part", path)
    return said


def _stated(index: Index, file: RemoteFile, pattern: str) -> dict[str, Any]:
    """CUDA and cuDNN as the modules of the wheel state them."""
    with remote_archive(index, file) as archive:
        texts = [archive.read(one).decode("utf-8", "replace") for one in archive.infolist() if re.fullmatch(pattern, one.filename)]
    text = "\n".join(texts)
    cudas = {one[1] or one[2] for one in CUDA.finditer(text)}
    cudnns = set(CUDNN.findall(text))
    return {"cuda": cudas.pop() if len(cudas) == 1 else None, "cudnn": cudnns.pop() if len(cudnns) == 1 else None}


def _code(file: RemoteFile, pattern: str) -> dict[str, Any]:
    """GPU code, toolkit and needed libraries of the framework's own libraries, each with its name."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(_Stream(file.url)) as archive:
        for member in archive.infolist():
            if not re.fullmatch(pattern, member.filename):
                continue
            with archive.open(member) as source, tempfile.TemporaryFile() as copy:
                while piece := source.read(BLOCK):
                    copy.write(piece)
                try:
                    one = read_binary(copy, member.filename)
                except ElfError as error:
                    print(f"  {file.name}: {member.filename}: {error}", file=sys.stderr)
                    continue
            found[member.filename] = {
                "code": [str(target) for target in one.code if target not in one.strays],
                "cuda": str(one.cuda) if one.cuda else None,
                "needed": list(one.needed),
                "opens": list(one.opens),
            }
    print(f"  {file.name}: {len(found)} libraries", file=sys.stderr)
    return {"libraries": found}


class _Stream(Positioned):
    """A remote file for `zipfile`: what is read one after the other comes in one answer."""

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
                raise IndexFailure(f"{self._url.rsplit('/', 1)[-1]}: the index answers {self._answer.status_code} to a range request")
        return bytes(self._answer.raw.read(wanted))

    def close_answer(self) -> None:
        """End the answer that is being read."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        self.close_answer()
        super().close()


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    """The TOML text: releases that are alike share a row."""
    shared: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for one in rows:
        fields = {key: one[key] for key in ("cuda", "cudnn", "code") if one[key]}
        if fields:
            fields = {"arch": [one["arch"]], **fields}
            shared.setdefault(json.dumps(fields), (fields, []))[1].append(one["version"])
    lines = [
        f"  {{version = {json.dumps(versions)}, " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in fields.items()) + "},\n"
        for fields, versions in shared.values()
    ]
    today = datetime.now(timezone.utc).date()
    head = f'origin = "harvested"\nscript = "scripts/harvest_builds.py"\nread = {today}\npackage = "{name}"\n\nbuild = [\n'
    return head + "".join(lines) + "]\n"


if __name__ == "__main__":
    sys.exit(main())
