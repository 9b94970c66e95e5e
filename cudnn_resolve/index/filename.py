"""Names of wheels and source archives, taken apart cheaply: a page of an index holds thousands."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEPARATORS = re.compile(r"[-_.]+")
_VERSION = re.compile(
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?"
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"-(?=v?\d)", re.IGNORECASE)
_BEFORE_RELEASE = re.compile(r"a|b|c|dev|pre", re.IGNORECASE)
SDIST_ENDINGS = (".tar.gz", ".zip")


def normalize(name: str) -> str:
    """The name of a package as indexes know it: lower case, each run of `-_.` one hyphen. Source: PEP 503."""
    return _SEPARATORS.sub("-", name).lower()


def version_in(filename: str, name: str) -> str | None:
    """The version that the name of a wheel or source archive of the package `name` (normalized) says.

    None for what is neither (eggs, installers, signatures), belongs to another package, or is not PEP 440.
    `numpy-2.0.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl` gives `2.0.0`.
    """
    if filename.endswith(".whl"):
        parts = filename[:-4].split("-")
        if len(parts) not in (5, 6) or (len(parts) == 6 and not parts[2][:1].isdigit()):
            return None
        return _version(parts[0], parts[1], name)
    for ending in SDIST_ENDINGS:
        if filename.endswith(ending):
            return _of_archive(filename[: -len(ending)], name)
    return None


def projects_in(filename: str) -> Iterator[str]:
    """The packages (normalized) that a file may belong to by its name; for an archive, one for each place where a version may begin."""
    if filename.endswith(".whl"):
        yield normalize(filename.partition("-")[0])
        return
    for ending in SDIST_ENDINGS:
        if filename.endswith(ending):
            stem = filename[: -len(ending)]
            yield from (normalize(stem[: found.start()]) for found in _BEGINNING.finditer(stem))


def version_of_stem(stem: str, name: str) -> str | None:
    """As `version_in`, of the part of a wheel's name before its tags, `numpy-2.0.0`."""
    project, _, version = stem.partition("-")
    return _version(project, version, name)


def _version(project: str, version: str, name: str) -> str | None:
    version = version.replace("_", "-")
    return version if (project == name or normalize(project) == name) and is_version(version) else None


def _of_archive(stem: str, name: str) -> str | None:
    """The version in the stem of an archive: old ones have hyphens in the name, so the name is counted off."""
    hyphens = name.count("-")
    words = stem.split("-")
    for count in range(1, min(hyphens + 1, len(words) - 1) + 1):
        if normalize("-".join(words[:count])) == name:
            version = "-".join(words[count:])
            return version if is_version(version) else None
    return None


def is_version(text: str) -> bool:
    """True for a PEP 440 version; said without making one."""
    return len(text) <= 200 and _VERSION.fullmatch(text) is not None


def is_prerelease(version: str) -> bool:
    """True for an alpha, beta, candidate or development release; `version` is PEP 440."""
    return _BEFORE_RELEASE.search(version.partition("+")[0]) is not None
