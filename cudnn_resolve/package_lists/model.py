"""Lists of packages that other tools write: the values, and what every reader of one shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.masking import without_logins
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.resolution.marker import MARKER_ERRORS

LONGEST_NAME = 200
"""Characters of a package name; no real one is longer, and it would fill a message."""
_MOST_GAPS = 6


class _Listed(Struct, frozen=True, kw_only=True):
    name: str
    """Normalized."""
    line: int | None = None
    """Line in the file; None if unknown."""
    file: str | None = None
    """The file that names it; None = the list itself."""
    variants: tuple[str, ...] = ()
    """Variants whose indexes are used for it, `cu118`: with them `2.6.0` means `2.6.0+cu118`."""
    command: int = 0
    """Number of the command that installs it."""
    alone: bool = False
    """Installed without its dependencies (`--no-deps`)."""


class ListedPackage(_Listed, frozen=True, kw_only=True):
    """One package of a list, with its version."""

    version: str
    files: tuple[str, ...] = ()
    """Names of its files in the lock."""
    extras: str = ""
    """Requested extras, `[and-cuda]`."""
    cuda: str | None = None
    """CUDA of a conda build, `cpu` for one without; None for a wheel."""
    channel: str | None = None
    """Channel of a conda build that the maker of the wheels does not publish; for packages other than frameworks, any conda channel."""
    built_from: str | None = None
    """What it is built from at installation, such as `a repository`; None for a wheel."""


class LooseRequirement(_Listed, frozen=True, kw_only=True):
    """A requirement that admits more than one version."""

    text: str
    """The requirement (PEP 508) without its marker."""


class BaseEnvironment(Struct, frozen=True, kw_only=True):
    """What a list says of the system below its packages: a base image, or a conda environment; None = unknown."""

    os: str | None = None
    """`ubuntu22.04`."""
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    """A full version, or only the major."""
    cudnn_of: str | None = None
    """The framework whose own package contains that cuDNN, where no other framework finds it."""
    of: str | None = None
    """The package whose CUDA and cuDNN the image contains."""
    source: Literal["conda", "apt"] = "conda"
    """Origin of CUDA and cuDNN."""


class PackageList(Struct, frozen=True, kw_only=True):
    """The packages that one file lists for one machine."""

    kind: str
    """Format of the file: `uv.lock`, `pip list`, …"""
    packages: tuple[ListedPackage, ...]
    loose: tuple[LooseRequirement, ...] = ()
    """Requirements whose versions an installer would choose."""
    constraints: tuple[str, ...] = ()
    """Limits (PEP 508) on the versions that an installer chooses."""
    clash: str | None = None
    """Why no installer accepts the list."""
    base: BaseEnvironment | None = None
    python: str | None = None
    """Supported Python versions, as a specifier."""
    partial: bool = False
    """The installer adds packages that the list does not name."""
    notes: tuple[str, ...] = ()
    """Parts that are not judged, but cannot change the verdict."""
    gaps: tuple[str, ...] = ()
    """Parts that were not evaluated and could change the verdict."""


class PartSelection(Struct, frozen=True, kw_only=True):
    """Parts of a lock to judge beyond those that its tool installs by default."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    defaults: bool = True
    """Include the development groups that the tool installs by default."""


class ReadContext:
    """State while a list is read: the machine, the selected parts, and what has been found so far."""

    def __init__(self, where: str, environment: dict[str, str], selection: PartSelection, open_: Reader | None) -> None:
        self.where = where
        """Name of the list in messages."""
        self.environment = environment
        """PEP 508 variables of the machine."""
        self.selection = selection
        self.open = open_
        """Reads other files; None if that is not allowed."""
        self.base: BaseEnvironment | None = None
        self.python: str | None = None
        self.loose: dict[str, LooseRequirement] = {}
        self.constraints: dict[str, None] = {}
        self.partial = False
        self.clash: str | None = None
        self.notes: dict[str, None] = {}
        self._gaps: dict[str, None] = {}

    @property
    def arch(self) -> str:
        """`x86_64` or `aarch64`."""
        return self.environment["platform_machine"]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Parts that were not evaluated and could change the verdict."""
        return tuple(self._gaps)

    def note(self, text: str) -> None:
        """Record a part that is not judged, but cannot change the verdict."""
        self.notes.setdefault(text)

    def gap(self, text: str) -> None:
        """Record a part that was not evaluated and could change the verdict; only the first few are kept."""
        if len(self._gaps) < _MOST_GAPS:
            self._gaps.setdefault(text)

    def note_index(self, url: str) -> None:
        """Record a further index: a private one may have another build under the same name."""
        self.note(f"packages also come from {without_logins(url)[:80]} (judged by name and version only)")

    def miss_version(self, name: object) -> None:
        """Record a package whose version only a build determines."""
        self.gap(f"{name!s:.60} has no version in the lock: it comes from a folder or a repository")

    def refuse(self, text: str) -> None:
        """Record why no installer accepts the list; the first reason is kept."""
        self.clash = self.clash or text[:300]

    def update_base(self, source: Literal["conda", "apt"], **known: str | None) -> None:
        """Add known properties of the base environment."""
        found: dict[str, str | None] = {name: text for name, text in known.items() if text}
        if "cudnn" in found:
            found["cudnn_of"] = known.get("cudnn_of")
        self.base = replace(self.base or BaseEnvironment(), source=source, **found)

    def require_python(self, specifier: Any) -> None:
        """Record the supported Python versions, unless the specifier is invalid."""
        if isinstance(specifier, str) and specifier.strip():
            try:
                SpecifierSet(specifier)
            except (InvalidSpecifier, ValueError):
                return
            self.python = specifier

    def holds(self, marker: Any) -> bool:
        """True if a marker holds on the machine; an invalid one does not exclude a package."""
        if not isinstance(marker, str) or not marker.strip():
            return True
        try:
            return Marker(marker).evaluate({"extra": "", **self.environment})
        except MARKER_ERRORS:
            return True

    def package(self, name: Any, version: Any, files: Iterable[Any] = (), **fields: Any) -> Iterator[ListedPackage]:
        """Yield the package; nothing if it has no name or version, or an invalid one, which is a gap."""
        if not isinstance(name, str) or not isinstance(version, str) or not name:
            return
        if len(name) > LONGEST_NAME:
            self.gap(f"not a package name: {name[:60]}…")
            return
        try:
            Version(version)
        except (InvalidVersion, ValueError):
            self.gap(f"{name[:60]} has an invalid version: {version[:40]!r}")
            return
        names = tuple(file for file in files if isinstance(file, str))
        yield ListedPackage(name=canonicalize_name(name), version=version, files=names, **fields)

    def selected(self, wanted: Iterable[str], known: Iterable[str], what: str) -> frozenset[str]:
        """The wanted parts as the list spells them; raises InputError for one that it does not have."""
        spelling = {canonicalize_name(name): name for name in known}
        wanted = tuple(wanted)
        missing = next((name for name in wanted if canonicalize_name(name) not in spelling), None)
        if missing is not None:
            hint = f"it has {', '.join(sorted(spelling.values())[:12])}" if spelling else "it has none"
            raise InputError(f"{self.where} has no {what} {missing!r:.60}", code="list-part", hint=hint)
        return frozenset(spelling[canonicalize_name(name)] for name in wanted)


def dicts(value: Any) -> list[dict[str, Any]]:
    """The tables in a list; empty if it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def table(value: Any) -> dict[str, Any]:
    """The value if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}
