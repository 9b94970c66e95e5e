"""What several indexes offer of one package, put together; files are decoded when a release is looked at."""

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
    """What one index or folder has of a package."""

    page: Page
    origin: str | None = None
    """The index; None for a folder or a page of links."""


class _Offers(Sequence[Offer]):
    """Releases, each made when it is looked at."""

    def __init__(self, versions: Sequence[str], read: Callable[[int], tuple[File, ...]]) -> None:
        self.versions = versions
        self._read = read
        self._made: dict[int, Offer] = {}

    def __len__(self) -> int:
        return len(self.versions)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if number < 0:
            number += len(self)
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = Offer(self.versions[number], lambda: self._read(number))
        return found

    def __iter__(self) -> Iterator[Offer]:
        return (self[number] for number in range(len(self)))


def make_listing(name: str, offered: Sequence[Offered], settings: Settings, origins: tuple[str, ...] = ()) -> Listing:
    """What the indexes offer together, as the settings admit it; `origins` are those that have it."""
    if len(offered) == 1:
        page, origin = offered[0]
        made = _Offers(page.versions, lambda number: files_of(page, number, origin))
    else:
        made = _merged(offered)
    offers: Sequence[Offer] = made
    versions = made.versions
    left_out: tuple[str, ...] = ()
    if settings.exclude_newer or settings.no_binary or settings.only_binary:
        offers, left_out = _admitted(name, made, settings)
        versions = [offer.version for offer in offers]
    only_prereleases = bool(versions) and all(Version(version).is_prerelease for version in versions)
    return Listing(name=name, offers=offers, only_prereleases=only_prereleases, origins=origins, left_out=left_out)


def _merged(offered: Sequence[Offered]) -> _Offers:
    """All releases of all indexes."""
    places: dict[str, list[tuple[int, int]]] = {}
    for which in sorted(range(len(offered)), key=lambda which: -len(offered[which].page.versions)):  # the longest list spells
        for number, version in enumerate(offered[which].page.versions):
            places.setdefault(version, []).append((which, number))
    spellings = newest_first(places)

    def read(number: int) -> tuple[File, ...]:
        """The files of all, each name once: the index that stands first wins."""
        found: dict[str, File] = {}
        for which, place in sorted(place for version in spellings[number] for place in places[version]):
            for file in files_of(offered[which].page, place, offered[which].origin):
                found.setdefault(file.filename, file)
        return tuple(found.values())

    return _Offers([same[0] for same in spellings], read)


def _admitted(name: str, offers: Sequence[Offer], settings: Settings) -> tuple[list[Offer], tuple[str, ...]]:
    """Releases with the files that the settings admit, and what was left out, in words."""
    left_out: Counter[str] = Counter()
    kept = []
    for offer in offers:
        files = []
        for file in offer.files:
            why = _why_not(name, file, settings)
            if why is None:
                files.append(file)
            else:
                left_out[why] += 1
        if files:
            kept.append(Offer(version=offer.version, files=tuple(files)))
    return kept, tuple(f"{count} file{'s' if count > 1 else ''} {why}" for why, count in left_out.items())


def _why_not(name: str, file: File, settings: Settings) -> str | None:
    """Why the settings leave a file out, in words; None where they admit it."""
    if settings.exclude_newer and file.origin:
        from cudnn_resolve.index.config import moment

        when = moment(file.uploaded) if file.uploaded else None
        if when is None:
            return "without a time of upload, on an index that gives none"
        if when >= settings.exclude_newer:
            return f"uploaded after {settings.exclude_newer[:19]}"
    if file.is_wheel and not settings.no_binary.isdisjoint({ALL, name}):
        return "that are wheels (--no-binary)"
    if not file.is_wheel and not settings.only_binary.isdisjoint({ALL, name}):
        return "that are source archives (--only-binary)"
    return None
