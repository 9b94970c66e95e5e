"""PEP 440 for versions that logs and machines tell, which may be anything."""

from __future__ import annotations


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
