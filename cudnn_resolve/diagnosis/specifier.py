"""Versions and requirements from logs and machines, which may contain anything: PEP 440 and PEP 508 if they are valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.facts.model import Facts

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


def within(specifier: str, version: str | None) -> bool:
    """True if a version's public part is within a specifier."""
    if not version:
        return False
    from packaging.version import Version

    from cudnn_resolve.resolution.release import parse_specifier, parse_version

    found, limits = parse_version(version), parse_specifier(specifier)
    return found is not None and limits is not None and limits.contains(Version(found.public), prereleases=True)


def is_version(text: str) -> bool:
    """True for a valid PEP 440 version."""
    from cudnn_resolve.resolution.release import parse_version

    return parse_version(text) is not None


class Required(Struct, frozen=True, kw_only=True):
    """A requirement that applies to a machine."""

    name: str
    """Normalized."""
    specifier: SpecifierSet


def requirements_of(lines: Iterable[str], facts: Facts) -> Iterator[Required]:
    """Requirements that apply to the machine of the facts, without extras; invalid ones and those with invalid markers are skipped."""
    from packaging.utils import canonicalize_name

    from cudnn_resolve.resolution.marker import MARKER_ERRORS
    from cudnn_resolve.resolution.release import parse_requirement

    there = _environment(facts)
    for line in lines:
        requirement = parse_requirement(line)
        try:
            holds = requirement is not None and (requirement.marker is None or requirement.marker.evaluate(there))
        except MARKER_ERRORS:
            continue
        if requirement is not None and holds:
            yield Required(name=str(canonicalize_name(requirement.name)), specifier=requirement.specifier)


def _environment(facts: Facts) -> dict[str, str]:
    """Marker environment of that machine, not this one, as far as the facts know it."""
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
