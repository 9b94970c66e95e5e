"""Offers of the indexes, limited to the files that the user accepts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.source import File, IndexLocation, Listing, Offer
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import Release
from cudnn_resolve.resolution.tag import TargetPython, best_file


class Offers:
    """Offers of the configured indexes and of those that the matrix names."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest) -> None:
        self._book = book
        self._source = request.source
        self._direct = request.direct
        self._hashes = accepted_hashes(request, book)
        target = TargetPython.of(machine)
        self._best: Callable[[Offer], File | None] = cache(lambda offer: best_file(offer.files, target))

    def accepted(self, package: str, offer: Offer) -> Offer:
        """Keep only the files whose hashes the user accepts."""
        hashes = self._hashes.get(package)
        if hashes is None:
            return offer
        files = (file for file in offer.files if any(f"{name}:{digest}" in hashes for name, digest in file.hashes.items()))
        return Offer(version=offer.version, files=tuple(files))

    def on_index(self, package: str, version: str, index: str) -> Offer | None:
        """Accepted files of a release on an index of the matrix; None if no index is queried, or if that one does not have it.

        IndexUnavailableError if it does not answer.
        """
        row = self._book.index(index)
        listing = self._source.listing(package, IndexLocation(row.url, row.kind)) if self._source is not None else None
        offer = next((offer for offer in listing.offers if offer.version == version), None) if listing is not None else None
        return self.accepted(package, offer) if offer is not None else None

    def listing(self, package: str) -> Listing | None:
        """Listing of a package on the configured indexes; None if they were not queried."""
        listing = self._source.listing(package) if self._source is not None else None
        if listing is not None and listing.is_partial and self._book.is_harvested(package):
            return None  # the matrix knows more of an unreachable index than a folder of wheels does
        return listing

    def offer(self, release: Release) -> Offer | None:
        """Files of a release; errors as of `on_index`."""
        if release.offer is not None or release.index == "default":
            return release.offer
        return self.on_index(release.package, release.text, release.index)

    def file(self, offer: Offer | None) -> File | None:
        """The file of an offer that fits the target best; None if none does."""
        return self._best(offer) if offer is not None else None

    def is_answered(self, package: str) -> bool:
        """True if the indexes were queried for a package, so that what they lack does not exist."""
        return package in self._direct or self.listing(package) is not None

    def accepts_by_hash(self, package: str) -> bool:
        """True if the user accepts files of a package by their hashes only."""
        return package in self._hashes

    def is_known(self, package: str) -> bool:
        """True if the complete offers of a package are known."""
        listing = self.listing(package)
        return listing is not None and bool(listing.offers) and not listing.is_partial

    @property
    def is_offline(self) -> bool:
        """True if indexes are answered from the cache alone."""
        return self._source is not None and self._source.offline

    def origins(self, package: str) -> tuple[str, ...]:
        """URLs of the indexes that have a package, if the best version of several indexes wins."""
        listing = self.listing(package)
        return listing.origins if listing is not None else ()

    def left_out(self, package: str) -> tuple[str, ...]:
        """Descriptions of the releases of a package that the user's settings exclude."""
        listing = self.listing(package)
        return listing.left_out if listing is not None else ()


def accepted_hashes(request: Request, book: Book) -> dict[str, frozenset[str]]:
    """Package to the `sha256:…` of its accepted files, for packages with --hash; a framework's hashes apply to all its packages."""
    hashes = {line.name: frozenset(line.hashes) for line in request.requirements if line.hashes}
    for target in request.targets:
        if target.hashes:
            hashes.update(dict.fromkeys(book.framework(target.framework).packages, frozenset(target.hashes)))
    return hashes
