"""Files that a user accepts by their hashes alone: `--hash` in a requirements file."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.source import Offer
from cudnn_resolve.resolution.release import parse_requirement

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request


def accepted_hashes(request: Request, book: Book) -> dict[str, frozenset[str]]:
    """`sha256:…` of the files that are accepted, for each package with such a limit; those of a framework hold for all its packages."""
    out: dict[str, frozenset[str]] = {}
    for extra in request.extras:
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
