"""What a user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field
from packaging.specifiers import SpecifierSet

from cudnn_resolve.requirement.source import Direct


class Target(Struct, frozen=True, kw_only=True):
    """One framework that the user asks for."""

    text: str
    """The user's own words, `tensorflow==2.15`."""
    framework: str
    """Name of the framework in the matrix."""
    specifier: SpecifierSet
    package: str | None = None
    """The distribution, where the user named one that is not the framework's own name (`tensorflow-gpu`, `cupy-cuda12x`)."""
    extras: tuple[str, ...] = ()
    origin: str | None = None
    """File and line where it stands; None = the command line."""
    marker: str | None = None
    """The environments that it is for (PEP 508); None = every one."""
    hashes: tuple[str, ...] = ()
    """`sha256:…` of the files that alone are accepted; empty where none is said."""
    pre: bool = False
    """True where pre-releases count."""
    parts: tuple[Target, ...] = ()
    """The targets that it was merged from; empty for one that was asked for once."""


class RequirementLine(Struct, frozen=True, kw_only=True):
    """A further pip requirement of the project (`-r`), or a constraint (`-c`)."""

    text: str
    origin: str
    """File and line, `requirements.txt:3`."""
    constraint: bool = False
    """True where it limits a package without asking for it."""
    hashes: tuple[str, ...] = ()
    """`sha256:…` of the files that alone are accepted; empty where none is said."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit on the CUDA or cuDNN of the stack."""

    text: str
    """The user's own words, `<12`."""
    specifier: SpecifierSet


class Request(Struct, frozen=True, kw_only=True):
    """Everything that the user asks for: a plain value. What is open (indexes, progress) travels beside it."""

    targets: tuple[Target, ...]
    conditional: tuple[Target, ...] = ()
    """Targets with a marker, which count where it holds; see `resolution.marker`."""
    absent: tuple[Target, ...] = ()
    """Targets whose marker does not hold on the machine that the request was settled for."""
    requirements: tuple[RequirementLine, ...] = ()
    cuda: Limit | None = None
    cudnn: Limit | None = None
    prefer: Literal["installed", "newest"] = "installed"
    driver_policy: Literal["minor", "strict"] = "minor"
    device: Literal["gpu", "cpu"] = "gpu"
    strict_pins: bool = False
    channel: Literal["pip", "apt", "auto"] = "auto"
    pre: bool = False
    """True where pre-releases count like other releases."""
    variant_indexes: bool = True
    """False where packages come from the configured indexes only, and from none that the matrix names for a variant."""
    preferences: Mapping[str, str] = field(default_factory=dict)
    """Package to the version that is tried first, after what is installed: the pins of a lock."""
    direct: Mapping[str, Direct] = field(default_factory=dict)
    """Packages that come from one place only, by their normalized names."""
    allow_break: frozenset[str] = frozenset()
    """Installed frameworks that may stop working, by their names in the matrix."""
    strict_installed: bool = False
    """True where everything that an installed framework declares holds, whether asked for or not; tried before what lets go of some."""
    reinstall: frozenset[str] = frozenset()
    """Installed packages whose files are laid anew although their version stays."""
    verb: str = "plan"
    """The command that asks: the one that is proposed where it cannot be answered."""
    context: tuple[tuple[str, str], ...] = ()
    """Options that describe the machine, as the user gave them (`("--driver", "535.104.05")`): commands that are proposed repeat them."""
    settings: tuple[tuple[str, str], ...] = ()
    """What files set of where packages come from, as options: a proposed command that leaves the files out says it itself."""
