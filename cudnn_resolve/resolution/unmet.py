"""Unmet requirements within a set of packages, as `pip check` reports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.utils import canonicalize_name

from cudnn_resolve.resolution.marker import applies, marker_environment
from cudnn_resolve.resolution.release import parse_requirement, parse_version

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from cudnn_resolve.requirement.machine import Machine


class Unmet(Struct, frozen=True, kw_only=True):
    """A requirement that a set does not meet."""

    by: str
    """The package that declares it."""
    version: str
    requirement: Requirement
    name: str
    """The required package."""
    found: str | None
    """Its version in the set; None if it is missing."""

    @property
    def who(self) -> str:
        """`tensorstore 0.1.71`."""
        return f"{self.by} {self.version}"

    @property
    def text(self) -> str:
        """`tensorstore 0.1.71 requires ml-dtypes>=0.3.1`."""
        return f"{self.who} requires {self.requirement.name}{self.requirement.specifier}"


def unmet(requires: Mapping[str, tuple[str, ...]], packages: Mapping[str, str], machine: Machine) -> Iterator[Unmet]:
    """Requirements that a set does not meet on a machine, sorted by the declaring package.

    `requires`: Requires-Dist lines of each package. An invalid version (a local archive) meets every requirement.
    """
    environment = marker_environment(machine)
    for by, lines in sorted(requires.items()):
        for line in lines if by in packages else ():
            requirement = parse_requirement(line)
            if requirement is None:
                continue
            name = canonicalize_name(requirement.name)
            found = packages.get(name)
            version = parse_version(found) if found is not None else None
            if found is not None and (version is None or requirement.specifier.contains(version, prereleases=True)):
                continue
            if applies(requirement, environment):
                yield Unmet(by=by, version=packages[by], requirement=requirement, name=name, found=found)
