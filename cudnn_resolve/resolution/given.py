"""A set of packages as it is given: spelt as the tables spell it, and nothing in it chosen by a search."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.release import Release, parse_version

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""What is installed where nothing is: one object, by which machines share what is known of releases."""


class Given(Context):
    """A context in which nothing is chosen: a release that a search would avoid is there, and the advisory is told by itself."""

    def is_bad(self, release: Release) -> bool:  # noqa: ARG002
        """False: the needs of the others say whether it serves."""
        return False


def spelt(book: Book, packages: Mapping[str, str]) -> Mapping[str, str]:
    """The versions of frameworks as the tables write them, `2.6.0` for `2.6`; the same object where they are so already."""
    found = {name: _spelt(book, name, version) for name, version in packages.items()}
    return packages if found == packages else found


def _spelt(book: Book, name: str, version: str) -> str:
    framework, parsed = book.framework_of(name), parse_version(version)
    if framework is None or parsed is None:
        return version
    known = {row.wheel_version for row in book.framework(framework).builds if row.package == name}
    return version if version in known else next((one for one in known if parse_version(one) == parsed), version)
