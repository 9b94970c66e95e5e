"""Merge what several indexes offer of a package; the files of a release are decoded on first access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from cudnn_resolve.index.filename import newest_first, parsed
from cudnn_resolve.index.page import Page, files_of
from cudnn_resolve.index.settings import ALL, Settings
from cudnn_resolve.requirement.source import File, Listing, Offer


class Offered(NamedTuple):
    """Page of a package on one index or in one folder."""

    page: Page
    origin: str | None = None
    """URL of the index; None for a folder or a page of links."""


def make_listing(name: str, offered: Sequence[Offered], settings: Settings, origins: tuple[str, ...] = ()) -> Listing:
    """Releases on all indexes, filtered by the settings; `origins` are the indexes that have the package."""
    if len(offered) == 1:
        page, origin = offered[0]
        offers = [Offer(version, partial(files_of, page, number, origin)) for number, version in enumerate(page.versions)]
    else:
        offers = _merged(offered)
    left_out: tuple[str, ...] = ()
    if settings.exclude_newer or settings.no_binary or settings.only_binary:
        offers, left_out = _filtered(name, offers, settings)
    only_prereleases = bool(offers) and all(parsed(offer.version).is_prerelease for offer in offers)
    return Listing(name=name, offers=offers, only_prereleases=only_prereleases, origins=origins, left_out=left_out)


def _merged(offered: Sequence[Offered]) -> list[Offer]:
    """All releases of all indexes."""
    places: dict[str, list[tuple[int, int]]] = {}
    """Spelling of a version to its indexes, by number, and its place on their pages."""
    for index in sorted(range(len(offered)), key=lambda index: -len(offered[index].page.versions)):  # the longest page spells versions
        for place, version in enumerate(offered[index].page.versions):
            places.setdefault(version, []).append((index, place))

    def read(spellings: Sequence[str]) -> tuple[File, ...]:
        """The files of all indexes, each name once: the first index wins."""
        files: dict[str, File] = {}
        for index, place in sorted(place for version in spellings for place in places[version]):
            for file in files_of(offered[index].page, place, offered[index].origin):
                files.setdefault(file.filename, file)
        return tuple(files.values())

    return [Offer(same[0], partial(read, same)) for same in newest_first(places)]


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
