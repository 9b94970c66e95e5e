"""One release of a pip package, and the texts of its metadata parsed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from cudnn_resolve.record import dataclass
from cudnn_resolve.resolution.tag import Fit

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.source import Offer


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Release:
    """One installable release of a pip package."""

    package: str
    version: Version
    text: str
    """The version as the index writes it."""
    fit: Fit
    tags: tuple[str, ...]
    requires: tuple[str, ...] | None
    """Requires-Dist lines; None = not known without asking the index, see `Shelf.requires`."""
    requires_python: str | None = None
    yanked: bool = False
    index: str = "default"
    build: Build | None = None
    """The build of the framework, where the package is one."""
    offer: Offer | None = None
    """Its files; None where no index was asked, or it is on another index, see `Shelf.offer`."""
    lone: bool = False
    """True where the package has no final release: then a pre-release is taken without being asked for."""
    served: bool = True
    """False where the indexes were asked and do not have it."""


@lru_cache(maxsize=4096)
def parse_requirement(line: str) -> Requirement | None:
    """The requirement in a Requires-Dist line; None for a line that is none."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


@lru_cache(maxsize=16384)
def parse_version(text: str) -> Version | None:
    """The PEP 440 version, None for text that is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=4096)
def specifier(text: str) -> SpecifierSet | None:
    """The PEP 440 specifier, None for text that is none."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None
