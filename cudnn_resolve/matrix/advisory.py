"""Which advisories are about a set of packages on a machine, be they planned or installed."""

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
    """Each advisory about these versions of packages on these GPUs, behind the package that it is about."""
    for name, version in packages.items():
        component = book.component(name)
        for one in (*book.advisories(name), *(book.advisories("cudnn") if component is not None and component.library == "cudnn" else ())):
            aimed = not one.capability or any(gpu in one.capability for gpu in gpus)
            if aimed and _holds(SpecifierSet(one.versions), version) and _is_beside(one, packages):
                yield name, one


def _is_beside(one: row.Advisory, packages: Mapping[str, str]) -> bool:
    wanted = [Requirement(text) for text in one.beside]
    return not wanted or any(each.name in packages and _holds(each.specifier, packages[each.name]) for each in wanted)


def _holds(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
