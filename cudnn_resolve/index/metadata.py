"""METADATA files: the few fields that a resolution needs, read within bounds. Source: core metadata specifications, PEP 566, 643."""

from __future__ import annotations

from typing import NamedTuple

from cudnn_resolve.index.filename import is_version, normalize, version_in
from cudnn_resolve.requirement.source import Metadata

LARGEST_BYTES = 10 << 20
_MOST_REQUIRES = 20_000
_LONGEST_LINE = 65_536


class MetadataError(ValueError):
    """A METADATA file that cannot be believed; says why."""


class Fields(NamedTuple):
    """The fields of a METADATA or PKG-INFO file that count here."""

    form: str
    """Metadata-Version."""
    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str | None
    extras: tuple[str, ...]
    dynamic: frozenset[str]
    """Names of fields that a build may change, lower case."""


def read_fields(raw: bytes) -> Fields:
    """What the head of a METADATA file says; MetadataError where name or version is missing or it is too large."""
    if len(raw) > LARGEST_BYTES:
        raise MetadataError(f"is larger than {LARGEST_BYTES >> 20} MB")
    found: dict[str, list[str]] = {}
    for key, value in _headers(raw):
        found.setdefault(key, []).append(value)
    name, version = found.get("name", [""])[0], found.get("version", [""])[0]
    if not name or not is_version(version):
        raise MetadataError("says no name or no version")
    requires = tuple(found.get("requires-dist", ()))
    if len(requires) > _MOST_REQUIRES:
        raise MetadataError(f"has more than {_MOST_REQUIRES} requirements")
    return Fields(
        form=found.get("metadata-version", ["1.0"])[0],
        name=name,
        version=version,
        requires=requires,
        requires_python=found.get("requires-python", [""])[0] or None,
        extras=tuple(dict.fromkeys(found.get("provides-extra", ()))),
        dynamic=frozenset(value.lower() for value in found.get("dynamic", ())),
    )


def read_metadata(raw: bytes, filename: str, name: str) -> Metadata:
    """What the METADATA of the wheel `filename` of the package `name` (normalized) says; MetadataError where it is another's."""
    fields = read_fields(raw)
    check_identity(fields, filename, name)
    return Metadata(fields.requires, fields.requires_python, fields.extras)


def check_identity(fields: Fields, filename: str, name: str) -> None:
    """Nothing; MetadataError where the metadata speaks of another package or version than the name of its file."""
    from packaging.version import Version

    if normalize(fields.name) != name:
        raise MetadataError(f"is for the package {fields.name[:60]!a}")
    version = version_in(filename, name)
    if version is not None and version != fields.version and Version(version) != Version(fields.version):
        raise MetadataError(f"is for version {fields.version[:60]!a}")


_WANTED = frozenset({"metadata-version", "name", "version", "requires-dist", "requires-python", "provides-extra", "dynamic"})


def _headers(raw: bytes) -> list[tuple[str, str]]:
    """The wanted headers, in order; a line that starts with white space belongs to the header before it."""
    found: list[tuple[str, str]] = []
    wanted = False
    for line in raw.split(b"\n"):
        line = line.rstrip(b"\r")  # noqa: PLW2901 - the line, without what some writers leave
        if not line:
            break
        if line[:1] in (b" ", b"\t"):
            if wanted and len(found[-1][1]) < _LONGEST_LINE:
                key, value = found[-1]
                found[-1] = (key, f"{value} {line[:_LONGEST_LINE].decode('utf-8', 'replace').strip()}")
            continue
        key_raw, colon, rest = line.partition(b":")
        key = key_raw[:40].decode("ascii", "replace").strip().lower()
        wanted = bool(colon) and key in _WANTED
        if wanted:
            found.append((key, rest[:_LONGEST_LINE].decode("utf-8", "replace").strip()))
    return found
