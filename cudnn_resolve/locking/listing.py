"""What a list of packages is made of, and what every reader of one needs: rows, markers, remarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.resolution.marker import NO_MARKER


class Listed(Struct, frozen=True, kw_only=True):
    """One package of a list."""

    name: str
    """Normalized."""
    version: str
    line: int | None = None
    """Where it stands in the file; None where that is not known."""
    file: str | None = None
    """The file that names it; None = the list itself."""
    files: tuple[str, ...] = ()
    """Names of the files that the lock holds of it."""
    variants: tuple[str, ...] = ()
    """Variants whose indexes are asked for it, `cu118`: with them `2.6.0` means `2.6.0+cu118`."""
    extras: str = ""
    """Extras that are asked for with it, `[and-cuda]`."""
    cuda: str | None = None
    """The CUDA that a build of conda is for, `cpu` for one without; None for a wheel."""
    channel: str | None = None
    """The channel of a build of conda that is not the wheel's own maker's; of other packages any channel of conda."""
    built_from: str | None = None
    """What it is built from where it is installed, `a repository`; None for a wheel."""
    command: int = 0
    """Which command installs it, where several do one after the other."""
    alone: bool = False
    """True where nothing that it requires comes with it, `--no-deps`."""


class Loose(Struct, frozen=True, kw_only=True):
    """A requirement that admits more than one version."""

    name: str
    """Normalized."""
    text: str
    """As PEP 508 has it, without its marker."""
    line: int | None = None
    file: str | None = None
    variants: tuple[str, ...] = ()
    command: int = 0
    alone: bool = False


class Base(Struct, frozen=True, kw_only=True):
    """What a list says of the machine that the packages will be on: a base image, an environment of conda; None = nothing."""

    os: str | None = None
    """`ubuntu22.04`."""
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    """A whole version, or the major alone where nobody says more."""
    cudnn_of: str | None = None
    """The framework in whose own package that cuDNN lies: no other one finds it there."""
    of: str | None = None
    """The package whose CUDA and cuDNN the image brings."""
    source: Literal["conda", "apt"] = "conda"
    """Where CUDA and cuDNN come from."""


class PackageList(Struct, frozen=True, kw_only=True):
    """The packages of one file on one machine."""

    kind: str
    """What wrote it: `uv.lock`, `pip list`, …"""
    packages: tuple[Listed, ...]
    loose: tuple[Loose, ...] = ()
    """What is asked for without a version: an installer would choose."""
    constraints: tuple[str, ...] = ()
    """Limits on what an installer chooses, as PEP 508 has them."""
    clash: str | None = None
    """Why no installer takes the list."""
    base: Base | None = None
    python: str | None = None
    """Pythons that the list is for, as a specifier."""
    partial: bool = False
    """True where the installer brings more than the list names."""
    notes: tuple[str, ...] = ()
    """What of it is not judged, in words."""
    gaps: tuple[str, ...] = ()
    """What the file says and nobody followed, so that a verdict on the rest is no verdict on all."""


class Choice(Struct, frozen=True, kw_only=True):
    """What of a list with parts is meant, beyond what its tool installs by default."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    defaults: bool = True
    """False where groups for development are left out that the tool would install."""


_GAPS = 6
LONGEST_NAME = 200
"""Characters of a name; with more it would fill a message and is no package's."""


class Reading:
    """One list while it is read: what is asked of it, and what is to be said of it."""

    def __init__(self, where: str, environment: dict[str, str], choice: Choice, open_: Reader | None) -> None:
        self.where = where
        self.environment = environment
        """PEP 508 variables of the machine."""
        self.choice = choice
        self.open = open_
        """None where no further file may be read."""
        self.base: Base | None = None
        self.python: str | None = None
        self.loose: dict[str, Loose] = {}
        self.constraints: dict[str, None] = {}
        self.partial = False
        self.clash: str | None = None
        self.notes: dict[str, None] = {}
        self._gaps: dict[str, None] = {}

    def on(self, source: Literal["conda", "apt"], **known: str | None) -> None:
        """Keep what is known of the machine that the packages will be on."""
        told: dict[str, str | None] = {name: text for name, text in known.items() if text}
        if "cudnn" in told:
            told["cudnn_of"] = known.get("cudnn_of")
        self.base = replace(self.base or Base(), source=source, **told)

    @property
    def arch(self) -> str:
        """`x86_64` or `aarch64`."""
        return self.environment["platform_machine"]

    def note(self, text: str) -> None:
        """Note what changes no verdict."""
        self.notes.setdefault(text)

    def gap(self, text: str) -> None:
        """Note what could change a verdict; of many the first are kept."""
        if len(self._gaps) < _GAPS:
            self._gaps.setdefault(text)

    def refuse(self, text: str) -> None:
        """Note why no installer takes the list; of several reasons the first is kept."""
        self.clash = self.clash or text[:300]

    @property
    def gaps(self) -> tuple[str, ...]:
        """What could change a verdict."""
        return tuple(self._gaps)

    def holds(self, marker: Any, more: Mapping[str, Any] | None = None) -> bool:
        """True where a marker holds on the machine; one that cannot be judged does not exclude a package."""
        if not isinstance(marker, str) or not marker.strip():
            return True
        try:
            return Marker(marker).evaluate({"extra": "", **self.environment, **(more or {})})
        except NO_MARKER:
            return True

    def row(self, name: Any, version: Any, files: Iterable[Any] = (), **more: Any) -> Iterator[Listed]:
        """A row, where name and version are some."""
        if not isinstance(name, str) or not isinstance(version, str) or not name:
            return
        if len(name) > LONGEST_NAME:
            self.gap(f"no name of a package: {name[:60]}…")
            return
        try:
            Version(version)
        except (InvalidVersion, ValueError):
            self.gap(f"{name[:60]} has no version that can be read: {version[:40]!r}")
            return
        names = tuple(file for file in files if isinstance(file, str))
        yield Listed(name=canonicalize_name(name), version=version, files=names, **more)

    def chosen(self, asked: Iterable[str], known: Iterable[str], what: str) -> frozenset[str]:
        """The parts that are asked for, as the list spells them; InputError for one that it has not."""
        spelt = {canonicalize_name(name): name for name in known}
        asked = tuple(asked)
        missing = next((name for name in asked if canonicalize_name(name) not in spelt), None)
        if missing is not None:
            there = f"it has {', '.join(sorted(spelt.values())[:12])}" if spelt else "it has none"
            raise InputError(f"{self.where} has no {what} {missing!r:.60}", code="list-part", hint=there)
        return frozenset(spelt[canonicalize_name(name)] for name in asked)

    def for_python(self, specifier: Any) -> None:
        """Keep the Pythons that the list is for, where that can be read."""
        if isinstance(specifier, str) and specifier.strip():
            try:
                SpecifierSet(specifier)
            except (InvalidSpecifier, ValueError):
                return
            self.python = specifier


def dicts(value: Any) -> list[dict[str, Any]]:
    """The tables among the members of a list; none where it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def table(value: Any) -> dict[str, Any]:
    """The table; an empty one where it is none."""
    return value if isinstance(value, dict) else {}
