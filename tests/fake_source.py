"""Package indexes that are a dictionary: what a resolution asks of them, and what it asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from packaging.version import Version

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.source import File, IndexLocation, Listing, Metadata, Offer

ORIGIN = "https://index.example/simple"


class Published(NamedTuple):
    """One release on the index."""

    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("py3-none-any",)
    """`sdist` stands for a source archive."""
    requires_python: str | None = None
    yanked: str | None = None
    garbled: bool = False
    """True where its metadata cannot be read."""
    extras: tuple[str, ...] = ()
    uploaded: str | None = None


class FakeSource:
    """Releases by package and version; a package that is not there is on no index."""

    def __init__(self, packages: Mapping[str, Mapping[str, Published]], unavailable: Iterable[str] = ()) -> None:
        self._packages = packages
        self._unavailable = set(unavailable)
        self._listings: dict[tuple[str, str | None], Listing] = {}
        self.offline = False
        self.exclude_newer: str | None = None
        self.notes: list[str] = []
        self.listed: list[str] = []
        self.read: list[str] = []
        """Files whose metadata was asked for, in order."""
        self.expected: list[str] = []

    def listing(self, name: str, place: IndexLocation | None = None) -> Listing | None:
        if place is not None and place.url in self._unavailable:
            raise IndexUnavailableError(f"{place.url} does not answer", code="index-unreachable")
        self.listed.append(name)
        key = (name, place.url if place else None)
        if key not in self._listings:
            self._listings[key] = self._list(name, place)
        return self._listings[key]

    def _list(self, name: str, place: IndexLocation | None) -> Listing:
        origin = place.url if place else ORIGIN
        releases = self._packages.get(name if place is None else f"{place.url} {name}", {})
        ordered = sorted(releases, key=Version, reverse=True)
        offers = tuple(Offer(version=version, files=files(name, version, releases[version], origin)) for version in ordered)
        lone = bool(offers) and all(Version(version).is_prerelease for version in ordered)
        return Listing(name=name, offers=offers, only_prereleases=lone)

    def metadata(self, name: str, file: File) -> Metadata | None:
        self.read.append(file.filename)
        version = file.filename.split("-")[1].removesuffix(".tar.gz")
        published = self._packages[name][version]
        if published.garbled:
            raise IndexUnavailableError(f"the metadata of {file.filename} is garbled", code="metadata-invalid")
        guessed = None if file.is_wheel else "its build may add some"
        return Metadata(published.requires, published.requires_python, published.extras, guessed)

    def prefetch(self, names: Iterable[str]) -> None:
        self.expected.extend(names)

    def completed(self, files: Sequence[File]) -> list[File]:
        return list(files)

    def prefetch_metadata(self, name: str, file: File) -> None:
        del name, file


def files(name: str, version: str, published: Published, origin: str = ORIGIN) -> tuple[File, ...]:
    """The files of a release."""
    stem = f"{name.replace('-', '_')}-{version}"
    names = [f"{stem}.tar.gz" if tag == "sdist" else f"{stem}-{tag}.whl" for tag in published.tags]
    return tuple(
        File(
            filename=one,
            url=f"{origin}/{name}/{one}",
            hashes={"sha256": sha256(one.encode()).hexdigest()},
            size=1000 + len(one),
            requires_python=published.requires_python,
            yanked=published.yanked,
            uploaded=published.uploaded,
            origin=origin,
        )
        for one in names
    )


def index_of(book: Book, more: Mapping[str, Mapping[str, Published]] | None = None, without: Iterable[str] = ()) -> FakeSource:
    """An index that has what the matrix lists for the configured one, and more; `without`: `package==version` that it lacks."""
    out: dict[str, dict[str, Published]] = {}
    gone = set(without)
    for name in book.packages():
        for row in book.releases(name):
            if f"{name}=={row.version}" not in gone:
                requires = (row.requires or {}).get("x86_64", ())
                tags = row.tags or ("py3-none-any",)
                out.setdefault(name, {})[row.version] = Published(requires, tags, row.requires_python, "" if row.yanked else None)
    for name, releases in (more or {}).items():
        out.setdefault(name, {}).update(releases)
    return FakeSource(out)
