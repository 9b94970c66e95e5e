"""A user's request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.source import Direct


class Target(Struct, frozen=True, kw_only=True):
    """A framework requirement."""

    text: str
    """As the user wrote it: `tensorflow==2.15`."""
    framework: str
    """Name of the framework in the matrix."""
    specifier: SpecifierSet
    package: str | None = None
    """The requested distribution if its name is not the framework's (`tensorflow-gpu`, `cupy-cuda12x`)."""
    extras: tuple[str, ...] = ()
    origin: str | None = None
    """File and line; None for the command line."""
    marker: str | None = None
    """PEP 508 marker; None = every environment."""
    hashes: tuple[str, ...] = ()
    """`sha256:…` of the only accepted files; empty = any file."""
    pre: bool = False
    """True if pre-releases count."""
    parts: tuple[Target, ...] = ()
    """The targets that it was merged from; empty if it was requested once."""


class RequirementLine(Struct, frozen=True, kw_only=True):
    """A further pip requirement (`-r`), or a constraint (`-c`)."""

    text: str
    origin: str
    """File and line, `requirements.txt:3`."""
    constraint: bool = False
    """True if it only limits a package and does not request it."""
    hashes: tuple[str, ...] = ()
    """`sha256:…` of the only accepted files; empty = any file."""

    @property
    def requirement(self) -> Requirement:
        """The text, parsed."""
        return _parse(self.text)

    @property
    def name(self) -> str:
        """Normalized name of the package."""
        return canonicalize_name(self.requirement.name)


_parse = lru_cache(maxsize=1024)(Requirement)


class Limit(Struct, frozen=True, kw_only=True):
    """A limit on the CUDA or cuDNN of the stack."""

    text: str
    """As the user wrote it: `<12`."""
    specifier: SpecifierSet


class Request(Struct, frozen=True, kw_only=True):
    """Everything the user asks for, as a plain value; indexes and progress callbacks are passed separately."""

    targets: tuple[Target, ...]
    conditional: tuple[Target, ...] = ()
    """Targets with a marker that has not been evaluated yet; see `resolution.marker`."""
    absent: tuple[Target, ...] = ()
    """Targets whose marker is false on the machine."""
    requirements: tuple[RequirementLine, ...] = ()
    cuda: Limit | None = None
    cudnn: Limit | None = None
    prefer: Literal["installed", "newest"] = "installed"
    driver_policy: Literal["minor", "strict"] = "minor"
    device: Literal["gpu", "cpu"] = "gpu"
    strict_pins: bool = False
    channel: Literal["pip", "apt", "auto"] = "auto"
    pre: bool = False
    """True if pre-releases count like other releases."""
    variant_indexes: bool = True
    """False to use the configured indexes only, and none of those that the matrix names for variants."""
    preferences: Mapping[str, str] = field(default_factory=dict)
    """Package to the version to try first after the installed one: the pins of a lock."""
    direct: Mapping[str, Direct] = field(default_factory=dict)
    """Direct references by normalized package name."""
    allow_break: frozenset[str] = frozenset()
    """Installed frameworks that may stop working, by their names in the matrix."""
    strict_installed: bool = False
    """True to honour everything that an unrequested installed framework declares, and not only what it needs to work."""
    reinstall: frozenset[str] = frozenset()
    """Installed packages to reinstall even if their version stays."""
    verb: str = "plan"
    """The command in use; proposed commands use it too."""
    context: tuple[tuple[str, str], ...] = ()
    """Options that describe the machine, as given (`("--driver", "535.104.05")`), for proposed commands to repeat."""
    settings: tuple[tuple[str, str], ...] = ()
    """Package sources set in requirements files, as options: a proposed command that omits these files must repeat them."""
