"""PEP 440 and PEP 508 for versions and requirements that logs and machines tell, which may be anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from cudnn_resolve.facts.model import Facts


def within(specifier: str, version: str | None) -> bool:
    """True where a version (its public part) is within a specifier."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return version is not None and SpecifierSet(specifier).contains(Version(Version(version).public), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False


def is_version(text: str) -> bool:
    """True for a text that PEP 440 takes for a version."""
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


class Required(Struct, frozen=True, kw_only=True):
    """A requirement that holds on a machine."""

    name: str
    """Normalized."""
    specifier: SpecifierSet


def requirements_of(lines: Iterable[str], facts: Facts) -> Iterator[Required]:
    """The requirements that hold on the machine of the facts, extras apart; what is none, or has a marker without meaning, is left out."""
    from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    there = _environment(facts)
    for line in lines:
        try:
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate(there):
                continue
        except (InvalidRequirement, InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError):
            continue
        yield Required(name=str(canonicalize_name(requirement.name)), specifier=requirement.specifier)


def _environment(facts: Facts) -> dict[str, str]:
    """What markers ask for, of that machine and not of this one, as far as the facts say it."""
    system = facts.platform.system or "linux"
    there = {
        "extra": "",
        "sys_platform": {"windows": "win32"}.get(system, system),
        "platform_system": system.capitalize(),
        "os_name": "nt" if system == "windows" else "posix",
        "platform_machine": facts.platform.arch or "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    version = facts.python.version
    if version and is_version(version):
        there |= {"python_full_version": version, "python_version": ".".join(version.split(".")[:2])}
    return there
