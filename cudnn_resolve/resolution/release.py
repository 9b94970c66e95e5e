"""One release of a pip package, and the texts of its metadata parsed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
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
    """What of a release takes a look at its files or its metadata."""

    fit: Fit
    tags: tuple[str, ...]
    requires: tuple[str, ...] | None
    """Requires-Dist lines; None = not known without asking the index, see `ReleaseMetadata.requires`."""
    requires_python: str | None = None
    yanked: bool = False


class Release(Struct, kw_only=True, eq=False):
    """One installable release of a pip package; compared by identity.

    Most releases are turned down for their version alone, so their details are looked at when somebody asks for them.
    """

    package: str
    version: Version
    text: str
    """The version as the index writes it."""
    look: Callable[[], Details]
    """Makes `details`."""
    index: str = "default"
    build: Build | None = None
    """The build of the framework, where the package is one."""
    offer: Offer | None = None
    """Its files; None where no index was asked, or it is on another index, see `Offers.offer`."""
    pre_counts: bool = False
    """True where the package has no final release: then a pre-release is taken without being asked for."""
    served: bool = True
    """False where the indexes were asked and do not have it."""
    late: str | None = None
    """Why it does not count, in words, where the user left out what was uploaded too late."""
    seen: Details | None = None
    """`details`, once somebody has asked for them."""

    def __repr__(self) -> str:
        return f"Release({self.package} {self.text}, {self.index})"

    @property
    def details(self) -> Details:
        """What its files and its metadata say, looked at once."""
        if self.seen is None:
            self.seen = self.look()
        return self.seen

    @property
    def fit(self) -> Fit:
        """How its files meet the target."""
        return self.details.fit

    @property
    def tags(self) -> tuple[str, ...]:
        """Compressed tags of its files; `SDIST` where only a source archive serves."""
        return self.details.tags

    @property
    def requires(self) -> tuple[str, ...] | None:
        """Requires-Dist lines; None = not known without asking the index, see `ReleaseMetadata.requires`."""
        return self.details.requires

    @property
    def requires_python(self) -> str | None:
        """The specifier of its Requires-Python."""
        return self.details.requires_python

    @property
    def yanked(self) -> bool:
        """True where it was withdrawn."""
        return self.details.yanked


def order(release: Release) -> tuple[Version, bool, Version]:
    """Newest first; of one public version the configured index before those that name a local part."""
    version = release.version
    return version if version.local is None else Version(version.public), release.index == "default", version


SDIST = ("sdist",)
"""The tags of a release that only a source archive serves."""


LATE = "newer than --exclude-newer allows"
"""What is said of a release that was uploaded too late."""
UNDATED = f"of a day that nobody knows, perhaps {LATE}"
"""What is said of one of which the tables do not know when it was uploaded."""


def is_late(day: str | None, limit: str | None) -> bool:
    """True for a day of upload that is not wholly before the time from which on uploads do not count."""
    return day is not None and limit is not None and f"{day}T23:59:59.999999Z" >= limit


def extras_of(build: Build) -> tuple[str, ...]:
    """The extras that bring the CUDA libraries of a build."""
    return tuple(extra.strip() for extra in (build.extra or "").split(",") if extra.strip())


@lru_cache(maxsize=4096)
def parse_requirement(line: str) -> Requirement | None:
    """The requirement in a Requires-Dist line; None for a line that is none."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def declared(own: tuple[str, ...] | None, like: str | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The requirements of a build: its own, and where `like` says so those of the default index's wheel but for the NVIDIA part.

    None where they are not known.
    """
    if own is None and like is None:
        return other
    if like is None or other is None:
        return own
    return (*(own or ()), *(line for line in other if not _is_of_variant(line)))


def _is_of_variant(line: str) -> bool:
    """True for a requirement that differs from variant to variant: NVIDIA's libraries and the compiler built for them."""
    requirement = parse_requirement(line)
    return requirement is not None and canonicalize_name(requirement.name).startswith(("nvidia-", "cuda-", "triton", "pytorch-triton"))


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


def version_within(limit: SpecifierSet) -> str | None:
    """A version that a limit admits, near its upper end, whether there is such a release or not; None where nothing is within it."""
    near = []
    for one in limit:
        bound = parse_version(one.version.removesuffix(".*"))
        if bound is not None:
            lower = ((*bound.release[:place], number - 1, 99) for place, number in enumerate(bound.release) if number)
            near += [bound, *(Version(".".join(map(str, release))) for release in ((*bound.release, 99), *lower))]
    found = [one for one in near if limit.contains(one, prereleases=True)]
    return str(max(found)) if found else None


def is_far(declared: Requirement | None, version: str) -> bool:
    """True for a version older than what is declared, or of another minor than the one that is pinned."""
    found = parse_version(version)
    for one in declared.specifier if declared is not None else ():
        wanted = parse_version(one.version.removesuffix(".*"))
        if found is None or wanted is None:
            continue
        if (one.operator in (">=", "~=", ">") and found < wanted) or (one.operator == "==" and found.release[:2] != wanted.release[:2]):
            return True
    return False


UNLISTED = ("unlisted",)
"""The tags of a release that the tables do not know."""


def unlisted(name: str, version: str, index: str = "default") -> Release:
    """A release of which only name and version are known."""
    parsed = parse_version(version)
    assert parsed is not None
    return Release(
        package=name,
        version=parsed,
        text=version,
        look=lambda: Details(fit=EVERYWHERE, tags=UNLISTED, requires=None),
        index=index,
    )
