"""What several indexes offer of one package, put together; files are decoded when a release is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from cudnn_resolve.index.cache import DamagedError
from cudnn_resolve.index.filename import is_prerelease
from cudnn_resolve.index.order import Key, sort_key
from cudnn_resolve.index.page import Shelf, files_of
from cudnn_resolve.index.settings import ALL, Settings
from cudnn_resolve.requirement.source import File, Listing, Offer


class Source(NamedTuple):
    """What one index or folder has."""

    shelf: Shelf
    origin: str | None = None
    """The index; None for a folder or a page of links."""
    mend: Callable[[], Shelf | None] = lambda: None
    """Gets the page anew where what was kept of it turns out to be damaged."""

    def files(self, number: int) -> tuple[File, ...]:
        """The files of the version with that place on the shelf."""
        try:
            return files_of(self.shelf, number, self.origin)
        except DamagedError:
            shelf = self.mend()
        version = self.shelf.versions[number]
        if shelf is None or version not in shelf.versions:
            return ()
        return files_of(shelf, shelf.versions.index(version), self.origin)


class _Offers(Sequence[Offer]):
    """Releases, each made when it is looked at."""

    def __init__(self, versions: Sequence[str], read: Callable[[int], tuple[File, ...]]) -> None:
        self._versions = versions
        self._read = read
        self._made: dict[int, Offer] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if number < 0:
            number += len(self)
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = Offer(self._versions[number], lambda: self._read(number))
        return found

    def __iter__(self) -> Iterator[Offer]:
        return (self[number] for number in range(len(self)))


def make_listing(name: str, sources: Sequence[Source], settings: Settings, origins: tuple[str, ...] = ()) -> Listing:
    """What the sources offer together, as the settings admit it; `origins` are the indexes that have it."""
    if len(sources) == 1:
        offers: Sequence[Offer] = _Offers(sources[0].shelf.versions, sources[0].files)
    else:
        offers = _merged(sources)
    left_out: tuple[str, ...] = ()
    if settings.exclude_newer or settings.no_binary or settings.only_binary:
        offers, left_out = _admitted(name, offers, settings)
    only_prereleases = bool(offers) and all(is_prerelease(version) for version in _versions(offers))
    return Listing(name=name, offers=offers, only_prereleases=only_prereleases, origins=origins, left_out=left_out)


def _versions(offers: Sequence[Offer]) -> Sequence[str]:
    return offers._versions if isinstance(offers, _Offers) else [offer.version for offer in offers]  # noqa: SLF001 - its own module


def _merged(sources: Sequence[Source]) -> Sequence[Offer]:
    """All releases of all sources. The longest list gives the order; the others are fitted in, most by their mere text."""
    longest = max(range(len(sources)), key=lambda one: len(sources[one].shelf.versions)) if sources else 0
    order: list[str] = list(sources[longest].shelf.versions) if sources else []
    places: dict[str, list[tuple[int, int]]] = {text: [(longest, number)] for number, text in enumerate(order)}
    for which, source in enumerate(sources):
        if which == longest:
            continue
        for number, text in enumerate(source.shelf.versions):
            if text not in places:
                key = sort_key(text)
                at = _place(order, key)
                if at == len(order) or sort_key(order[at]) != key:
                    order.insert(at, text)
                    places[text] = []
                else:
                    text = order[at]  # noqa: PLW2901 - as the others spell it
            places[text].append((which, number))

    def read(number: int) -> tuple[File, ...]:
        """The files of all, each name once: the source that stands first wins."""
        found: dict[str, File] = {}
        for which, place in sorted(places[order[number]]):
            for file in sources[which].files(place):
                found.setdefault(file.filename, file)
        return tuple(found.values())

    return _Offers(order, read)


def _place(order: Sequence[str], key: Key) -> int:
    """Where a version belongs among versions that stand newest first: the first that is not newer."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if sort_key(order[middle]) > key:
            low = middle + 1
        else:
            high = middle
    return low


def _admitted(name: str, offers: Sequence[Offer], settings: Settings) -> tuple[list[Offer], tuple[str, ...]]:
    """Releases with the files that the settings admit, and what was left out, in words."""
    no_wheels = ALL in settings.no_binary or name in settings.no_binary
    no_archives = ALL in settings.only_binary or name in settings.only_binary
    counts = {"newer": 0, "undated": 0, "wheels": 0, "archives": 0}
    kept = []
    for offer in offers:
        files = tuple(file for file in offer.files if _admits(file, settings.exclude_newer, counts, no=(no_wheels, no_archives)))
        if files:
            kept.append(Offer(version=offer.version, files=files))
    words = (
        (counts["newer"], f"uploaded after {(settings.exclude_newer or '')[:19]}"),
        (counts["undated"], "without a time of upload, on an index that gives none"),
        (counts["wheels"], "that are wheels (--no-binary)"),
        (counts["archives"], "that are source archives (--only-binary)"),
    )
    return kept, tuple(f"{count} file{'s' if count > 1 else ''} {what}" for count, what in words if count)


def _admits(file: File, newest: str | None, counts: dict[str, int], *, no: tuple[bool, bool]) -> bool:
    if newest and file.origin:
        from cudnn_resolve.index.config import moment

        when = moment(file.uploaded) if file.uploaded else None
        if when is None or when >= newest:
            counts["undated" if when is None else "newer"] += 1
            return False
    if no[0] and file.is_wheel:
        counts["wheels"] += 1
        return False
    if no[1] and not file.is_wheel:
        counts["archives"] += 1
        return False
    return True
