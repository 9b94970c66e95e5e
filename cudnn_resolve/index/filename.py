"""File names of wheels and source archives: pages hold thousands of them, including old ones that `packaging.utils` refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from packaging.utils import canonicalize_name
from packaging.version import Version

_VERSION_START = re.compile(r"-(?=v?\d)", re.IGNORECASE)
_LONGEST_VERSION = 200
SDIST_ENDINGS = (".tar.gz", ".zip")


def version_in(filename: str, name: str) -> str | None:
    """Version in the file name of a wheel or source archive of the package `name` (normalized).

    None for other files (eggs, installers, signatures), files of another package, and versions that are not PEP 440.
    `numpy-2.0.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl` gives `2.0.0`.
    """
    if filename.endswith(".whl"):
        return _version_of_wheel(filename[:-4].rsplit("-", 3)[0], name)
    stem = next((filename[: -len(ending)] for ending in SDIST_ENDINGS if filename.endswith(ending)), "")
    words = stem.split("-")
    for count in range(1, min(name.count("-") + 1, len(words) - 1) + 1):  # old archives have hyphens in the name, and in the version
        if canonicalize_name("-".join(words[:count])) == name:
            return _checked(name, "-".join(words[count:]), name)
    return None


@lru_cache(maxsize=4096)
def _version_of_wheel(start: str, name: str) -> str | None:
    """Version of a wheel, given its file name up to the tags; cached, since a page names each version up to a hundred times."""
    parts = start.split("-")
    if len(parts) not in (2, 3) or (len(parts) == 3 and not parts[2][:1].isdigit()):
        return None
    return _checked(parts[0], parts[1].replace("_", "-"), name)


def _checked(project: str, version: str, name: str) -> str | None:
    """The version, if it is valid and of the package."""
    return version if canonicalize_name(project) == name and is_version(version) else None


def projects_in(filename: str) -> Iterator[str]:
    """Packages (normalized) that a file may belong to by its name: for an archive, one for each place where a version may start."""
    if filename.endswith(".whl"):
        yield canonicalize_name(filename.partition("-")[0])
    for ending in SDIST_ENDINGS:
        if filename.endswith(ending):
            stem = filename[: -len(ending)]
            yield from (canonicalize_name(stem[: found.start()]) for found in _VERSION_START.finditer(stem))


parsed = lru_cache(maxsize=4096)(Version)
"""Parse a PEP 440 version; ValueError for anything else. Versions are needed to check, to sort and to merge the files of a page."""


def is_version(text: str) -> bool:
    """Whether a text is a PEP 440 version."""
    try:
        parsed(text)
    except ValueError:
        return False
    return len(text) <= _LONGEST_VERSION and text == text.strip()


def newest_first(versions: Iterable[str]) -> list[list[str]]:
    """Spellings of each version, newest version first."""
    grouped: dict[Version, list[str]] = {}
    for text in versions:
        grouped.setdefault(parsed(text), []).append(text)
    return [grouped[version] for version in sorted(grouped, reverse=True)]
