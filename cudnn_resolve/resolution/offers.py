"""What the indexes offer of packages, as far as the user accepts it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.source import IndexLocation, Offer
from cudnn_resolve.resolution.release import parse_requirement
from cudnn_resolve.resolution.tag import Target, best_file

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import File, Listing
    from cudnn_resolve.resolution.open_request import OpenRequest
    from cudnn_resolve.resolution.release import Release


class Offers:
    """Offers of the configured indexes, and of those that the matrix names."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest) -> None:
        self._book = book
        self._source = request.source
        self._direct = request.direct
        self._hashes = accepted_hashes(request, book)
        self._target = Target.of(machine)

    def accepted(self, package: str, offer: Offer) -> Offer:
        """Return the offer with the files alone whose hashes the user accepts."""
        hashes = self._hashes.get(package)
        return offer if hashes is None else with_hashes(offer, hashes)

    def at(self, package: str, index: str) -> Listing | None:
        """Return what an index of the matrix offers of a package; None where no index is asked."""
        row = self._book.index(index)
        return self._source.listing(package, IndexLocation(row.url, row.kind)) if self._source is not None else None

    def listing(self, package: str) -> Listing | None:
        """Return what the configured indexes offer of a package; None where they were not asked."""
        found = self._source.listing(package) if self._source is not None else None
        # What the matrix knows of an index that cannot be asked is more than what a folder of wheels has.
        return None if found is not None and found.is_partial and self._book.package(package) is not None else found

    def offer(self, release: Release) -> Offer | None:
        """The files of a release; None where no index was asked, or none has it.

        IndexUnavailableError where the index that the matrix names for it does not answer.
        """
        if release.offer is not None or self._source is None or release.index == "default":
            return release.offer
        listing = self.at(release.package, release.index)
        found = next((one for one in listing.offers if one.version == release.text), None) if listing is not None else None
        return self.accepted(release.package, found) if found is not None else None

    def file(self, offer: Offer) -> File | None:
        """The file of an offer that serves the target best; None where none does."""
        return best_file(offer.files, self._target)

    def is_answered(self, package: str) -> bool:
        """True where the indexes were asked for a package: what they do not have then is nowhere."""
        return package in self._direct or self.listing(package) is not None

    def accepts_by_hash(self, package: str) -> bool:
        """True where the user accepts files of a package by their hashes only."""
        return package in self._hashes

    def is_known(self, package: str) -> bool:
        """True where everything is known that the indexes offer of a package."""
        listing = self.listing(package)
        return listing is not None and bool(listing.offers) and not listing.is_partial

    @property
    def is_offline(self) -> bool:
        """True where indexes answer from the cache alone."""
        return self._source is not None and self._source.offline

    def origins(self, package: str) -> tuple[str, ...]:
        """Addresses of the indexes that have a package, where the best version of several wins."""
        listing = self.listing(package)
        return listing.origins if listing is not None else ()

    def left_out(self, package: str) -> tuple[str, ...]:
        """What the user's settings left out of the releases of a package, in words."""
        listing = self.listing(package)
        return listing.left_out if listing is not None else ()


def accepted_hashes(request: Request, book: Book) -> dict[str, frozenset[str]]:
    """`sha256:…` of the files that are accepted, for each package with such a limit; those of a framework hold for all its packages."""
    out: dict[str, frozenset[str]] = {}
    for extra in request.requirements:
        requirement = parse_requirement(extra.text) if extra.hashes else None
        if requirement is not None:
            out[canonicalize_name(requirement.name)] = frozenset(extra.hashes)
    for target in request.targets:
        if target.hashes:
            out.update(dict.fromkeys(book.framework(target.framework).packages, frozenset(target.hashes)))
    return out


def with_hashes(offer: Offer, accepted: Collection[str]) -> Offer:
    """The offer with the accepted files alone, perhaps none."""
    files = tuple(file for file in offer.files if any(f"{name}:{digest}" in accepted for name, digest in file.hashes.items()))
    return Offer(version=offer.version, files=files)
