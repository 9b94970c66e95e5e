"""Merge what several indexes offer of a package; the files of a release are decoded on first access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from packaging.version import Version

from cudnn_resolve.index.filename import newest_first
from cudnn_resolve.index.page import Page, files_of
from cudnn_resolve.index.settings import ALL, Settings
from cudnn_resolve.requirement.source import File, Listing, Offer


class Offered(NamedTuple):
    """Page of a package on one index or in one folder."""

    page: Page
    origin: str | None = None
    """URL of the index; None for a folder or a page of links."""


class _Offers(Sequence[Offer]):
    """Releases, each created on first access."""

    def __init__(self, versions: Sequence[str], read: Callable[[int], tuple[File, ...]]) -> None:
        self.versions = versions
        self._read = read
        self._made: dict[int, Offer] = {}

    def __len__(self) -> int:
        return len(self.versions)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        if number < 0:
            number += len(self)
        if number not in self._made:
            self._made[number] = Offer(self.versions[number], lambda: self._read(number))
        return self._made[number]

    def __iter__(self) -> Iterator[Offer]:
        return (self[number] for number in range(len(self)))


def make_listing(name: str, offered: Sequence[Offered], settings: Settings, origins: tuple[str, ...] = ()) -> Listing:
    """Releases on all indexes, filtered by the settings; `origins` are the indexes that have the package."""
    if len(offered) == 1:
        page, origin = offered[0]
        all_offers = _Offers(page.versions, lambda number: files_of(page, number, origin))
    else:
        all_offers = _merged(offered)
    offers: Sequence[Offer] = all_offers
    versions = all_offers.versions
    left_out: tuple[str, ...] = ()
    if settings.exclude_newer or settings.no_binary or settings.only_binary:
        offers, left_out = _filtered(name, all_offers, settings)
        versions = [offer.version for offer in offers]
    only_prereleases = bool(versions) and all(Version(version).is_prerelease for version in versions)
    return Listing(name=name, offers=offers, only_prereleases=only_prereleases, origins=origins, left_out=left_out)


def _merged(offered: Sequence[Offered]) -> _Offers:
    """All releases of all indexes."""
    places: dict[str, list[tuple[int, int]]] = {}
    """Spelling of a version to its indexes, by number, and its place on their pages."""
    for index in sorted(range(len(offered)), key=lambda index: -len(offered[index].page.versions)):  # the longest page spells versions
        for place, version in enumerate(offered[index].page.versions):
            places.setdefault(version, []).append((index, place))
    spellings = newest_first(places)

    def read(number: int) -> tuple[File, ...]:
        """The files of all indexes, each name once: the first index wins."""
        files: dict[str, File] = {}
        for index, place in sorted(place for version in spellings[number] for place in places[version]):
            for file in files_of(offered[index].page, place, offered[index].origin):
                files.setdefault(file.filename, file)
        return tuple(files.values())

    return _Offers([same[0] for same in spellings], read)


def _filtered(name: str, offers: Sequence[Offer], settings: Settings) -> tuple[list[Offer], tuple[str, ...]]:
    """Releases with the files that the settings admit, and descriptions of what is left out."""
    left_out: Counter[str] = Counter()
    admitted = []
    for offer in offers:
        files = []
        for file in offer.files:
            kind = _left_out_as(name, file, settings)
            if kind is None:
                files.append(file)
            else:
                left_out[kind] += 1
        if files:
            admitted.append(Offer(version=offer.version, files=tuple(files)))
    return admitted, tuple(f"{count} {kind.format(s='s' if count > 1 else '')}" for kind, count in left_out.items())


def _left_out_as(name: str, file: File, settings: Settings) -> str | None:
    """Why the settings leave a file out, as a noun with `{s}` for its plural; None if they admit it."""
    if settings.exclude_newer and file.origin:
        from cudnn_resolve.index.read_settings import moment

        uploaded = moment(file.uploaded) if file.uploaded else None
        if uploaded is None:
            return "file{s} without an upload time, which the index does not give"
        if uploaded >= settings.exclude_newer:
            return f"file{{s}} uploaded after {settings.exclude_newer[:19]}"
    if file.is_wheel and not settings.no_binary.isdisjoint({ALL, name}):
        return "wheel{s} (--no-binary)"
    if not file.is_wheel and not settings.only_binary.isdisjoint({ALL, name}):
        return "source archive{s} (--only-binary)"
    return None
