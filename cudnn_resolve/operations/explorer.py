"""`matrix html`: a website of the tables, with joint maps computed by the resolution and cached."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from typing import Generic, TypeVar

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
from cudnn_resolve.listener import SILENT, Listener, pace
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import digest
from cudnn_resolve.report.explorer import MARK, Joint, Look, pages
from cudnn_resolve.resolution.joint_map import BuildReach, Drivers, Pair, pair, reach

Layers = tuple[tuple[str, ...], tuple[str, ...]]
"""Folders with additional rows: those that the user names, and those of the project."""
JOINT = ("torch", "tensorflow", "jax", "onnxruntime")
"""Frameworks with joint maps, one for each pair."""
RELEASES = 14
"""Releases of each framework in a joint map."""
_LIMIT_BYTES = 64 << 20
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
V = TypeVar("V")
_Reaches = tuple[tuple[int, dict[str, Drivers]], ...]
"""Where the builds of a framework run, each by its position in the table."""
_ROOMS = ("evidence", "facts", "matrix", "requirement", "resolution")
"""Rooms that decide an answer, for the cache key."""


class Site(Struct, frozen=True, kw_only=True):
    """Statistics of a website written by `matrix html`."""

    folder: str
    pages: int
    bytes: int
    cells: int
    """Pairs of releases in the joint maps."""
    computed: int
    """Pairs that were not in the cache."""


class _Cache(Generic[V]):
    """Values by key in a file of JSON lines for these tables and this program, which grows with each value; truncated lines are skipped."""

    def __init__(self, book: Book, what: str, kind: type[V]) -> None:
        self.values: dict[str, V] = {}
        self._path: str | None = None
        folder = cache_folder()
        if folder is None:
            return
        files = sorted(path for room in _ROOMS for path in disk.files_below(os.path.join(_PACKAGE, room)) if path.endswith(".py"))
        program = checksum(disk.content(path, _LIMIT_BYTES) or b"" for path in files)
        disk.make_folder(os.path.join(folder, what), 0o700)
        self._path = os.path.join(folder, what, f"{book.version}.{program}.jsonl")
        decoder = msgspec.json.Decoder(tuple[str, kind])  # type: ignore[valid-type]
        for line in (disk.content(self._path, _LIMIT_BYTES) or b"").splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                key, self.values[key] = decoder.decode(line)

    def add(self, key: str, value: V) -> None:
        """Keep a value."""
        self.values[key] = value
        if self._path is not None:
            disk.append(self._path, b"\n" + msgspec.json.encode((key, value)), synced=True)  # the newline ends a truncated line


def write_site(layers: Layers, folder: str, listener: Listener = SILENT, *, releases: int = RELEASES) -> Site:
    """Write the pages into a folder, with that many `releases` of each framework in a joint map; UsageError if it holds something else."""
    _prepare_folder(folder)
    book = _book(layers)
    reaches = _reaches(book, listener)
    joints, computed = joint_maps(layers, releases, listener)
    listener.tell("writing the pages")
    texts = pages(book, reaches, joints, Look(style=_asset("css"), script=_asset("js"), version=__version__))
    for name, text in texts.items():
        write_atomic(os.path.join(folder, name), text)
    return Site(
        folder=folder,
        pages=len(texts),
        bytes=sum(len(text.encode()) for text in texts.values()),
        cells=sum(len(joint.pairs) for joint in joints),
        computed=computed,
    )


def _asset(kind: str) -> str:
    return (disk.content(os.path.join(_PACKAGE, "report", f"explorer.{kind}"), _LIMIT_BYTES) or b"").decode()


def _prepare_folder(folder: str) -> None:
    """Make the folder before minutes are spent on its pages; UsageError if that would overwrite something else."""
    if disk.kind(folder) == "file":
        raise UsageError(f"-o {folder} is a file", code="usage-path", hint="name the folder for the pages")
    start = f"{folder}/index.html"
    if disk.kind(start) is not None and MARK.encode() not in (disk.content(start, _LIMIT_BYTES) or b""):
        raise UsageError(f"-o {folder} holds an unrelated index.html", code="usage-path", hint="name another folder")
    disk.make_folder(folder)
    if not disk.writable(folder):
        raise WorldError(f"cannot write to {folder}", code="write-failed", hint="name a writable folder")


@cache
def _book(layers: Layers) -> Book:
    return open_book(*layers)


def _reaches(book: Book, listener: Listener) -> dict[str, Sequence[BuildReach]]:
    """Where the builds of each framework run."""
    cache = _Cache(book, "reach", _Reaches)
    names = (*JOINT, *(name for name in book.frameworks() if name not in JOINT))
    reaches: dict[str, Sequence[BuildReach]] = {}
    for number, name in enumerate(names, start=1):
        builds = book.framework(name).builds
        if name not in cache.values:
            listener.tell(f"reading the releases of {name}, {number} of {len(names)} frameworks")
            positions = {id(build): position for position, build in enumerate(builds)}
            cache.add(name, tuple((positions[id(row.build)], row.pythons) for row in reach(book, name)))
        reaches[name] = [BuildReach(build=builds[position], pythons=pythons) for position, pythons in cache.values[name]]
    return reaches


def joint_maps(layers: Layers, releases: int, listener: Listener = SILENT) -> tuple[list[Joint], int]:
    """The joint maps, and the number of their pairs that were computed; the others were in the cache."""
    book = _book(layers)
    shown = {name: newest_of_minors(book, name)[:releases] for name in JOINT}
    places = {
        (f"{book.framework(first).packages[0]}=={old}", f"{book.framework(second).packages[0]}=={new}"): (first, second, old, new)
        for first, second in combinations(JOINT, 2)
        for old in shown[first]
        for new in shown[second]
    }
    cache = _Cache(book, "joint", Pair)
    missing = [pins for pins in places if " ".join(pins) not in cache.values]
    for pins, found in _compute_pairs(layers, missing, listener):
        cache.add(" ".join(pins), found)
    joints = [
        Joint(
            first=first,
            second=second,
            pairs={place[2:]: cache.values[" ".join(pins)] for pins, place in places.items() if place[:2] == (first, second)},
        )
        for first, second in combinations(JOINT, 2)
    ]
    return joints, len(missing)


def newest_of_minors(book: Book, name: str) -> tuple[str, ...]:
    """The newest GPU releases of a framework, newest first: one for each minor, or one for each quarter of a minor with many."""
    entries = [entry for entry in digest(book, name).entries if entry.build.cuda is not None and not entry.build.yanked]
    final = {entry.build.version: entry.date or "" for entry in entries if not Version(entry.build.version).is_prerelease}
    minors: dict[object, list[str]] = {}
    for version in final:
        minors.setdefault(Version(version).release[:2], []).append(version)
    chosen: list[str] = []
    for versions in minors.values():
        quarters = {(final[version][:4], (int(final[version][5:7] or 1) - 1) // 3): version for version in reversed(versions)}
        chosen += sorted(quarters.values(), key=versions.index) if len(versions) > 12 else versions[:1]
    return tuple(chosen)


def _compute_pairs(layers: Layers, missing: list[tuple[str, str]], listener: Listener) -> Iterator[tuple[tuple[str, str], Pair]]:
    """Resolve each pair, in child processes."""
    if not missing:
        return
    began = clock.seconds()
    tasks = ((layers, pins) for pins in missing)
    for done, ((_, pins), found) in enumerate(spread(_compute_pair, tasks), start=1):
        full = 24 * done // len(missing)
        bar = "━" * full + "╌" * (24 - full)
        listener.tell(f"{bar} {pace(done, len(missing), 'pairs of releases', began)}")
        yield pins, found


def _compute_pair(task: tuple[Layers, tuple[str, str]]) -> Pair:
    layers, pins = task
    return pair(_book(layers), *pins)
