"""Shared libraries of an installed environment and of the system below it, for the link check."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from tempfile import TemporaryFile

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cudnn_resolve.evidence.elf import Elf, ElfError, read_elf
from cudnn_resolve.evidence.link_check import LIBRARY, PackagedLibrary, Site, search_directories
from cudnn_resolve.evidence.model import Evidence
from cudnn_resolve.evidence.wheel import WheelDamage, read_wheel, read_wheel_links
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.ldconfig import parse_cache
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.host.installed_files import RECORD_BYTES, InstalledPackage, packages_in
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.host.wheel_archive import Archive, bad_wheel
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.evidence import opened_names

_METADATA_BYTES = 4 << 20
_MOST_MODULES, _MOST_FOLDERS = 50, 500
_CACHE_BYTES = 64 << 20
_DIRECTORIES = ("/lib/{arch}-linux-gnu", "/usr/lib/{arch}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
"""Default directories of glibc's loader, on Debian and elsewhere."""


class SystemLibraries:
    """System libraries as the target's loader finds them by name; each is read once."""

    def __init__(self, host: Host, python: str) -> None:
        self._host = host
        self._read: dict[str, Elf | None] = {}
        program = self.look(host.realpath(python))
        self.arch = arch = program.arch if program else ""
        raw = host.read_bytes("/etc/ld.so.cache", 0, _CACHE_BYTES)
        self._cache: dict[str, list[str]] = {}
        for entry in (parse_cache(raw) if raw is not None else None) or ():
            if entry.arch in (arch, None):
                self._cache.setdefault(entry.name, []).append(entry.path)
        origin = os.path.dirname(host.realpath(python))
        rpath, runpath = (program.rpath, program.runpath) if program else (None, None)
        self.ahead = tuple(search_directories(host.environ.get("LD_LIBRARY_PATH"), origin))
        """The directories of LD_LIBRARY_PATH."""
        # ld.so(8): DT_RPATH counts only without a DT_RUNPATH.
        self._first = (*(() if runpath else search_directories(rpath, origin)), *self.ahead, *search_directories(runpath, origin))
        self._last = [entry.format(arch=arch) for entry in _DIRECTORIES]

    def find(self, name: str) -> tuple[str, ...]:
        """Paths of a library, in the loader's order of preference."""
        paths = (*self._existing(self._first, name), *self._cache.get(name, ()), *self._existing(self._last, name))
        return tuple(dict.fromkeys(paths))

    def _existing(self, folders: Iterable[str], name: str) -> list[str]:
        return [path for folder in folders if self.look(path := f"{folder}/{name}") is not None]

    def look(self, path: str) -> Elf | None:
        """The library at a path; None if a loader could not use it."""
        if path not in self._read:
            self._read[path] = read_library(self._host, path)
        return self._read[path]


def read_library(host: Host, path: str) -> Elf | None:
    """The library at a path; None if a loader could not use it."""
    try:
        return read_elf(lambda offset, size: host.read_bytes(path, offset, size), versions=True)
    except ElfError:
        return None


def installed_libraries(
    host: Host, roots: Iterable[str], *, leaving: Collection[str] = (), at: Mapping[str, str] | None = None
) -> Iterator[PackagedLibrary]:
    """Libraries of the packages in these folders, as their RECORD lists them, without the packages in `leaving`.

    Packages without a RECORD, such as those of the system and of conda, are searched in the usual places. `at` maps a folder that was
    staged elsewhere to its final place.
    """
    for root in dict.fromkeys(folder for place in roots for folder in (place, f"{place}/{FOLDER}")):
        place = (at or {}).get(root, root)
        for package in packages_in(host, root):
            if package.name in leaving and not root.endswith(f"/{FOLDER}"):
                continue
            record = host.read_text(f"{package.info}/RECORD", RECORD_BYTES)
            listed = _unrecorded(host, root, package) if record is None else (path for path, _, _ in record_rows(record))
            for path in listed:
                elf = read_library(host, os.path.normpath(f"{root}/{path}")) if LIBRARY.search(path) else None
                if elf is not None:
                    yield PackagedLibrary(package=package.name, path=os.path.normpath(f"{place}/{path}"), elf=elf)


def installed_site(host: Host, roots: Iterable[str], system: SystemLibraries, book: Book) -> Site:
    """The environment with these folders of packages as it is installed."""
    return planned_site(installed_libraries(host, roots), declared(host, roots), system, book)


def planned_site(
    libraries: Iterable[PackagedLibrary], packages: Mapping[str, tuple[str, frozenset[str]]], system: SystemLibraries, book: Book
) -> Site:
    """An environment with these libraries and packages."""
    opens = opened_names(book, packages)
    return Site(libraries=tuple(libraries), packages=packages, find=system.find, look=system.look, ahead=system.ahead, opens=opens)


def wheel_libraries(path: str, name: str, place: str, arch: str, folder: str) -> Iterator[PackagedLibrary]:
    """Libraries of a wheel that will be unpacked into the folder `place`; each is extracted in turn into `folder`.

    NVIDIA's own wheels hold gigabytes of them: only their names are read.
    """
    if name.startswith("nvidia-"):
        with Archive(path) as archive:
            members = [name for name in archive.contents().names if LIBRARY.search(name)]
        found = tuple((member, Elf(arch=arch, bits=64, soname=member.rpartition("/")[2])) for member in members)
    else:
        try:
            with open(path, "rb") as stream:
                found = read_wheel_links(stream, lambda: TemporaryFile(dir=folder))  # noqa: SIM115 - the reader closes it
        except (WheelDamage, OSError) as error:
            raise bad_wheel(path, str(error)) from None
    for member, elf in found:
        top, _, rest = member.partition("/")
        inside = rest.partition("/")[2] if top.endswith(".data") else member
        yield PackagedLibrary(package=name, path=f"{place}/{inside}", elf=elf)


def wheel_declared(path: str, info: str) -> frozenset[str]:
    """Names of the packages that a wheel requires; `info` is its `.dist-info` folder."""
    with Archive(path) as archive:
        return frozenset(_required(archive.text(f"{info}/METADATA") or ""))


def declared(host: Host, roots: Iterable[str], *, leaving: Collection[str] = ()) -> dict[str, tuple[str, frozenset[str]]]:
    """Packages in these folders: version, and names of the packages that each requires, including those of extras."""
    return {
        package.name: (package.version, frozenset(_required(host.read_text(f"{package.info}/METADATA", _METADATA_BYTES) or "")))
        for root in dict.fromkeys(roots)
        for package in packages_in(host, root)
        if package.name not in leaving
    }


def _unrecorded(host: Host, root: str, package: InstalledPackage) -> Iterator[str]:
    """Libraries of a package without RECORD: those in its modules' folders and in `lib` below them; paths are relative to `root`."""
    tops = (host.read_text(f"{package.info}/top_level.txt", _METADATA_BYTES) or package.name.replace("-", "_")).split()
    for top in tops[:_MOST_MODULES]:
        if "/" in top or top.startswith("."):
            continue
        inner = host.list_dir(f"{root}/{top}")[:_MOST_FOLDERS]
        for folder in (top, f"{top}/lib", *(f"{top}/{name}/lib" for name in inner)):
            yield from (f"{folder}/{file}" for file in host.list_dir(f"{root}/{folder}") if LIBRARY.search(file))


def _required(text: str) -> Iterator[str]:
    for line in text.partition("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            try:
                yield canonicalize_name(Requirement(line.partition(":")[2].strip()).name)
            except InvalidRequirement:
                continue


def wheel_evidence(path: str) -> Evidence:
    """Evidence in a wheel on this machine; raise WheelDamage if it cannot be read."""
    with open(path, "rb") as stream:
        return read_wheel(stream, TemporaryFile)
