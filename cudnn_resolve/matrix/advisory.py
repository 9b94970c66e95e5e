"""Advisories that apply to a set of packages on a machine, planned or installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from cudnn_resolve.matrix import row
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.version import Capability


def advisories_of(book: Book, packages: Mapping[str, str], gpus: Collection[Capability]) -> Iterator[tuple[str, row.Advisory]]:
    """Yield each package with an advisory about its version on these GPUs."""
    for name, version in packages.items():
        for advisory in book.advisories(name):
            affects_gpu = not advisory.capability or any(gpu in advisory.capability for gpu in gpus)
            if affects_gpu and _contains(SpecifierSet(advisory.versions), version) and _has_companion(advisory, packages):
                yield name, advisory


def _has_companion(advisory: row.Advisory, packages: Mapping[str, str]) -> bool:
    wanted = [Requirement(text) for text in advisory.beside]
    return not wanted or any(one.name in packages and _contains(one.specifier, packages[one.name]) for one in wanted)


def _contains(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
