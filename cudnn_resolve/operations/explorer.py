"""`matrix html`: the site of the tables, with the joint maps that the resolution computes; what is computed is kept in the cache."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from typing import TypeVar

import msgspec
from msgspec import Struct
from packaging.version import Version

from cudnn_resolve._version import __version__
from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.files import write_atomic
from cudnn_resolve.host.pool import spread
from cudnn_resolve.host.tablecache import checksum
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.host.user_folders import cache_folder
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import digest
from cudnn_resolve.operations.listener import SILENT, Listener, pace
from cudnn_resolve.report.explorer import MARK, Joint, Look, pages
from cudnn_resolve.resolution.joint_map import BuildReach, Drivers, Pair, pair, reach

Layers = tuple[tuple[str, ...], tuple[str, ...]]
"""Folders of further rows for the tables: those that the user names, and those of the project."""
JOINT = ("torch", "tensorflow", "jax", "onnxruntime")
"""The frameworks whose joint maps are drawn, each with each."""
RELEASES = 14
"""How many releases of each a joint map has."""
_LARGEST_BYTES = 64 << 20
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_ROOMS = ("evidence", "facts", "matrix", "requirement", "resolution")
"""Rooms of which an answer comes."""


class Site(Struct, frozen=True, kw_only=True):
    """What `matrix html` wrote."""

    folder: str
    pages: int
    bytes: int
    cells: int
    """Pairs of releases in the joint maps."""
    computed: int
    """Those that no earlier run had left in the cache."""


class _Kept(Struct, frozen=True, kw_only=True):
    """A line of the cache of pairs."""

    asked: tuple[str, str]
    found: Pair


class _Reached(Struct, frozen=True, kw_only=True):
    """A line of the cache of frameworks: the places of its builds in their table, each with where it runs."""

    framework: str
    found: tuple[tuple[int, dict[str, Drivers]], ...]


_Line = TypeVar("_Line", _Kept, _Reached)


def write_site(layers: Layers, folder: str, listener: Listener = SILENT, *, releases: int = RELEASES) -> Site:
    """Write the pages into a folder; the joint maps have so many `releases` of each framework. UsageError for a file in its place."""
    _check_folder(folder)
    book = _book(layers)
    reaches = _reaches(book, listener)
    joints, computed = joint_maps(layers, releases, listener)
    listener.tell("writing the pages")
    style, script = (
        (disk.content(os.path.join(_PACKAGE, "report", f"explorer.{kind}"), _LARGEST_BYTES) or b"").decode() for kind in ("css", "js")
    )
    written = pages(book, reaches, joints, Look(style=style, script=script, version=__version__))
    for name, text in written.items():
        write_atomic(os.path.join(folder, name), text)
    return Site(
        folder=folder,
        pages=len(written),
        bytes=sum(len(text.encode()) for text in written.values()),
        cells=sum(len(one.pairs) for one in joints),
        computed=computed,
    )


def _check_folder(folder: str) -> None:
    """Make the folder before minutes are spent on its pages; UsageError where something else than such pages would be overwritten."""
    if disk.kind(folder) == "file":
        raise UsageError(f"-o {folder} is a file", code="usage-path", hint="name the folder that the pages go into")

    start = f"{folder}/index.html"
    if disk.kind(start) is not None and MARK.encode() not in (disk.content(start, _LARGEST_BYTES) or b""):
        raise UsageError(f"-o {folder} holds an index.html of something else", code="usage-path", hint="name another folder")
    disk.make_folder(folder)
    if not disk.writable(folder):
        raise WorldError(f"cannot write into {folder}", code="write-failed", hint="name a folder that you may write into")


@cache
def _book(layers: Layers) -> Book:
    return open_book(*layers)


def _reaches(book: Book, listener: Listener) -> dict[str, Sequence[BuildReach]]:
    """Where the builds of each framework run."""
    path = _path(book, "reach")
    known = {one.framework: one.found for one in _read(path, _Reached)}
    names = (*JOINT, *(one for one in book.frameworks() if one not in JOINT))
    reaches: dict[str, Sequence[BuildReach]] = {}
    for number, name in enumerate(names, start=1):
        builds = book.framework(name).builds
        if name in known:
            reaches[name] = [BuildReach(build=builds[place], pythons=pythons) for place, pythons in known[name]]
            continue
        listener.tell(f"reading the releases of {name}, {number} of {len(names)} frameworks")
        reaches[name] = reach(book, name)
        places = {id(build): place for place, build in enumerate(builds)}
        _keep(path, _Reached(framework=name, found=tuple((places[id(one.build)], one.pythons) for one in reaches[name])))
    return reaches


def joint_maps(layers: Layers, releases: int, listener: Listener = SILENT) -> tuple[list[Joint], int]:
    """The joint maps, and how many of their pairs were computed for them; the others an earlier run left in the cache."""
    book = _book(layers)
    shown = {name: newest_of_minors(book, name)[:releases] for name in JOINT}
    places = {
        (f"{book.framework(first).packages[0]}=={old}", f"{book.framework(second).packages[0]}=={new}"): (first, second, old, new)
        for first, second in combinations(JOINT, 2)
        for old in shown[first]
        for new in shown[second]
    }
    path = _path(book, "joint")
    known = {one.asked: one.found for one in _read(path, _Kept)}
    missing = [asked for asked in places if asked not in known]
    for asked, found in _compute(layers, missing, listener):
        known[asked] = found
        _keep(path, _Kept(asked=asked, found=found))
    joints = [
        Joint(
            first=first,
            second=second,
            pairs={place[2:]: known[asked] for asked, place in places.items() if place[:2] == (first, second)},
        )
        for first, second in combinations(JOINT, 2)
    ]
    return joints, len(missing)


def newest_of_minors(book: Book, name: str) -> tuple[str, ...]:
    """The newest releases of a framework with a GPU build, the newest first: one of each minor, of a long one one in each quarter."""
    entries = [one for one in digest(book, name).entries if one.build.cuda is not None and not one.build.yanked]
    final = {one.build.version: one.date or "" for one in entries if not Version(one.build.version).is_prerelease}
    minors: dict[object, list[str]] = {}
    for version in final:
        minors.setdefault(Version(version).release[:2], []).append(version)
    chosen: list[str] = []
    for versions in minors.values():
        quarters = {(final[one][:4], (int(final[one][5:7] or 1) - 1) // 3): one for one in reversed(versions)}
        chosen += sorted(quarters.values(), key=versions.index) if len(versions) > 12 else versions[:1]
    return tuple(chosen)


def _compute(layers: Layers, missing: list[tuple[str, str]], listener: Listener) -> Iterator[tuple[tuple[str, str], Pair]]:
    """What the resolution says of each pair, in child processes."""
    if not missing:
        return

    began = clock.seconds()
    tasks = ((layers, asked) for asked in missing)
    for done, ((_, asked), found) in enumerate(spread(_pair, tasks), start=1):
        full = 24 * done // len(missing)
        bar = "━" * full + "╌" * (24 - full)
        listener.tell(f"{bar} {pace(done, len(missing), 'pairs of releases', began)}")
        yield asked, found


def _pair(task: tuple[Layers, tuple[str, str]]) -> Pair:
    layers, asked = task
    return pair(_book(layers), *asked)


def _path(book: Book, what: str) -> str | None:
    """The file of that cache for these tables and this program; None where nothing can be kept."""
    folder = cache_folder()
    if folder is None:
        return None
    files = sorted(path for room in _ROOMS for path in disk.files_below(os.path.join(_PACKAGE, room)) if path.endswith(".py"))
    program = checksum(disk.content(path, _LARGEST_BYTES) or b"" for path in files)
    disk.make_folder(os.path.join(folder, what), 0o700)
    return os.path.join(folder, what, f"{book.version}.{program}.jsonl")


def _keep(path: str | None, line: _Kept | _Reached) -> None:
    """Write a line for later runs."""
    if path is not None:
        disk.append(path, b"\n" + msgspec.json.encode(line), synced=True)  # what a kill cut off ends before it


def _read(path: str | None, kind: type[_Line]) -> Iterator[_Line]:
    """What is kept; a line that a kill cut off is passed over."""
    for line in ((disk.content(path, _LARGEST_BYTES) if path is not None else None) or b"").splitlines():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=kind)
