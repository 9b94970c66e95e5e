"""A release of a pip package, and cached parsers for versions, specifiers and requirements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cudnn_resolve.resolution.tag import EVERYWHERE, Fit

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.source import Offer


class Details(NamedTuple):
    """The part of a release that takes reading its files or its metadata."""

    fit: Fit
    """How its files fit the target."""
    tags: tuple[str, ...]
    """Compressed tag sets of its files; `SDIST` if only a source archive fits."""
    requires: tuple[str, ...] | None
    """Requires-Dist lines; None if only the index knows them, see `ReleaseMetadata.requires`."""
    requires_python: str | None = None
    yanked: bool = False


class Release(Struct, kw_only=True, eq=False, dict=True):
    """An installable release of a pip package; compared by identity.

    Most releases are rejected by their version alone, so the details are computed on first use.
    """

    package: str
    version: Version
    text: str
    """Version as the index spells it."""
    load_details: Callable[[], Details]
    index: str = "default"
    build: Build | None = None
    """The framework's build, if the package is a framework."""
    offer: Offer | None = None
    """Its files; None if no index was queried or it is on another index, see `Offers.offer`."""
    pre_counts: bool = False
    """True if a pre-release needs no opt-in because the package has no final release."""
    is_on_index: bool = True
    """False if the indexes were queried and do not have it."""
    too_new: str | None = None
    """Why the upload limit excludes it: `is newer than --exclude-newer allows`."""

    def __repr__(self) -> str:
        return f"Release({self.package} {self.text}, {self.index})"

    @cached_property
    def details(self) -> Details:
        """Details from its files and its metadata."""
        return self.load_details()


def sort_key(release: Release) -> tuple[Version, bool, Version]:
    """Ascending order by public version; the configured index sorts above indexes with local versions."""
    version = release.version
    return version if version.local is None else Version(version.public), release.index == "default", version


SDIST = ("sdist",)
"""Tags of a release with only a source archive for the target."""
UNLISTED = ("unlisted",)
"""Tags of a release that the tables do not list."""
TOO_NEW = "is newer than --exclude-newer allows"
UNDATED = "has no known upload date and may be newer than --exclude-newer allows"


def is_too_new(day: str | None, limit: str | None) -> bool:
    """True if some upload of that day (`2024-01-31`) is not before an upload limit (ISO 8601, UTC)."""
    return day is not None and limit is not None and f"{day}T23:59:59.999999Z" >= limit


def extras_of(build: Build) -> tuple[str, ...]:
    """Extras that install the CUDA libraries of a build."""
    return tuple(extra.strip() for extra in (build.extra or "").split(",") if extra.strip())


@lru_cache(maxsize=4096)
def parse_requirement(line: str) -> Requirement | None:
    """Parse a PEP 508 requirement; None if it is invalid."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def excludes(text: str, version: Version | str) -> bool:
    """True if a text is a requirement that excludes a version."""
    requirement = parse_requirement(text)
    return requirement is not None and not requirement.specifier.contains(version, prereleases=True)


@lru_cache(maxsize=16384)
def parse_version(text: str) -> Version | None:
    """Parse a PEP 440 version; None if it is invalid."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=16384)
def row_version(text: str) -> Version:
    """Parse the version of a row, which the tables have checked."""
    return Version(text)


@lru_cache(maxsize=4096)
def row_specifier(text: str) -> SpecifierSet:
    """Parse the specifier of a row, which the tables have checked."""
    return SpecifierSet(text)


@lru_cache(maxsize=4096)
def parse_specifier(text: str) -> SpecifierSet | None:
    """Parse a PEP 440 specifier; None if it is invalid."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def build_requires(own: tuple[str, ...] | None, like: str | None, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Requires-Dist lines of a build: its own and, with `like`, the variant-independent ones of the default index's wheel.

    None if unknown.
    """
    if own is None and like is None:
        return default
    if like is None or default is None:
        return own
    return (*(own or ()), *(line for line in default if not _depends_on_variant(line)))


def _depends_on_variant(line: str) -> bool:
    """True for NVIDIA's libraries and for the compilers built for them."""
    requirement = parse_requirement(line)
    return requirement is not None and canonicalize_name(requirement.name).startswith(("nvidia-", "cuda-", "triton", "pytorch-triton"))


def version_within(limit: SpecifierSet) -> str | None:
    """A version near the upper end of a specifier, released or not; None if no version matches."""
    candidates = []
    for part in limit:
        bound = parse_version(part.version.removesuffix(".*"))
        if bound is not None:
            lower = ((*bound.release[:place], number - 1, 99) for place, number in enumerate(bound.release) if number)
            candidates += [bound, *(Version(".".join(map(str, release))) for release in ((*bound.release, 99), *lower))]
    matching = [version for version in candidates if limit.contains(version, prereleases=True)]
    return str(max(matching)) if matching else None


def is_far(declared: Requirement | None, version: str) -> bool:
    """True for a version older than the declared minimum, or of another minor than the declared pin."""
    found = parse_version(version)
    for part in declared.specifier if declared is not None else ():
        wanted = parse_version(part.version.removesuffix(".*"))
        if found is None or wanted is None:
            continue
        if (part.operator in (">=", "~=", ">") and found < wanted) or (part.operator == "==" and found.release[:2] != wanted.release[:2]):
            return True
    return False


def is_newer_major(declared: Requirement | None, version: str) -> bool:
    """True for a version of a newer major than the declared bounds allow."""
    found = parse_version(version)
    for part in declared.specifier if declared is not None and found is not None else ():
        most = parse_version(part.version.removesuffix(".*"))
        if found is None or most is None or part.operator not in ("<", "<=", "~=", "==", "==="):
            continue
        if found.major > most.major - (part.operator == "<" and not any(most.release[1:])):
            return True
    return False


def unlisted_release(name: str, version: str, index: str = "default") -> Release:
    """A release of which only name and version are known."""
    parsed = parse_version(version)
    assert parsed is not None
    details = Details(fit=EVERYWHERE, tags=UNLISTED, requires=None)
    return Release(package=name, version=parsed, text=version, load_details=lambda: details, index=index)
