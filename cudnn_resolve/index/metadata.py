"""METADATA files: the few fields that a resolution needs, read within bounds. Source: core metadata specifications, PEP 566, 643."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.index.filename import is_version, version_in
from cudnn_resolve.requirement.source import Metadata

LARGEST_BYTES = 10 << 20
_MOST_REQUIRES = 20_000
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FIELD = re.compile(
    rb"^(?:metadata-version|name|version|requires-dist|requires-python|provides-extra|dynamic)[ \t]*:.*(?:\n[ \t].*)*",
    re.IGNORECASE | re.MULTILINE,
)


class MetadataError(ValueError):
    """A METADATA file that cannot be used; says why."""


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
    from packaging.metadata import parse_email

    if len(raw) > LARGEST_BYTES:
        raise MetadataError(f"is larger than {LARGEST_BYTES >> 20} MB")
    head = _HEAD_END.split(raw, 1)[0]
    # Only these fields: the parser takes time with the square of the names, and stops at a line that is no field.
    found, unparsed = parse_email(b"\n".join(_FIELD.findall(head)))

    def first(key: str, field: str) -> str:
        """One value, also where the field stands twice or is not UTF-8."""
        value = found.get(key) or next(iter(unparsed.get(field, ())), "")
        return _line(str(value))

    requires = tuple(map(_line, found.get("requires_dist", ())))
    name, version = first("name", "name"), first("version", "version")
    if not name or not is_version(version):
        raise MetadataError("says no name or no version")
    if len(requires) > _MOST_REQUIRES:
        raise MetadataError(f"has more than {_MOST_REQUIRES} requirements")
    if "requires-dist" in unparsed:
        raise MetadataError("has requirements that are not UTF-8")
    return Fields(
        form=first("metadata_version", "metadata-version") or "1.0",
        name=name,
        version=version,
        requires=tuple(one for one in requires if one),
        requires_python=first("requires_python", "requires-python") or None,
        extras=tuple(dict.fromkeys(map(_line, found.get("provides_extra", ())))),
        dynamic=frozenset(_line(value).lower() for value in found.get("dynamic", ())),
    )


def read_metadata(raw: bytes, filename: str, name: str) -> Metadata:
    """What the METADATA of the wheel `filename` of the package `name` (normalized) says; MetadataError where it is another's."""
    fields = read_fields(raw)
    check_identity(fields, filename, name)
    return Metadata(fields.requires, fields.requires_python, fields.extras)


def check_identity(fields: Fields, filename: str, name: str) -> None:
    """Reject metadata of another package or version than the name of its file says."""
    if canonicalize_name(fields.name) != name:
        raise MetadataError(f"is for the package {fields.name[:60]!a}")
    version = version_in(filename, name)
    if version is not None and Version(version) != Version(fields.version):
        raise MetadataError(f"is for version {fields.version[:60]!a}")


def _line(value: str) -> str:
    """A value that may have been folded, on one line."""
    return " ".join(part.strip() for part in value.splitlines())
