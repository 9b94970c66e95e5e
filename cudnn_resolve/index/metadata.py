"""Parse the few fields of METADATA that a resolution needs, within bounds. Source: core metadata specifications, PEP 566, 643."""

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
    """A METADATA file that cannot be used."""


class Fields(NamedTuple):
    """The relevant fields of a METADATA or PKG-INFO file."""

    form: str
    """Metadata-Version."""
    name: str
    version: str
    metadata: Metadata
    dynamic: frozenset[str]
    """Lower-case names of fields that a build may change."""


def read_fields(raw: bytes) -> Fields:
    """Fields in the head of a METADATA file; raise MetadataError if name or version is missing, or it is too large."""
    from packaging.metadata import parse_email

    if len(raw) > LARGEST_BYTES:
        raise MetadataError(f"is larger than {LARGEST_BYTES >> 20} MB")
    head = _HEAD_END.split(raw, 1)[0]
    # Only these fields: the parser's time grows with the square of the names, and it stops at a line that is not a field.
    fields, unparsed = parse_email(b"\n".join(_FIELD.findall(head)))

    def first(key: str, field: str) -> str:
        """One value, even if the field occurs twice or is not UTF-8."""
        value = fields.get(key) or next(iter(unparsed.get(field, ())), "")
        return _line(str(value))

    requires = tuple(map(_line, fields.get("requires_dist", ())))
    name, version = first("name", "name"), first("version", "version")
    if not name or not is_version(version):
        raise MetadataError("has no name or no valid version")
    if len(requires) > _MOST_REQUIRES:
        raise MetadataError(f"has more than {_MOST_REQUIRES} requirements")
    if "requires-dist" in unparsed:
        raise MetadataError("has requirements that are not UTF-8")
    return Fields(
        form=first("metadata_version", "metadata-version") or "1.0",
        name=name,
        version=version,
        metadata=Metadata(
            requires=tuple(filter(None, requires)),
            requires_python=first("requires_python", "requires-python") or None,
            extras=tuple(dict.fromkeys(map(_line, fields.get("provides_extra", ())))),
        ),
        dynamic=frozenset(_line(value).lower() for value in fields.get("dynamic", ())),
    )


def read_metadata(raw: bytes, filename: str, name: str) -> Metadata:
    """Metadata of the wheel `filename` of the package `name` (normalized); raise MetadataError if it is of another one."""
    fields = read_fields(raw)
    check_identity(fields, filename, name)
    return fields.metadata


def check_identity(fields: Fields, filename: str, name: str) -> None:
    """Reject metadata of another package or version than its file name states; raises MetadataError."""
    if canonicalize_name(fields.name) != name:
        raise MetadataError(f"is for the package {fields.name[:60]!a}")
    version = version_in(filename, name)
    if version is not None and Version(version) != Version(fields.version):
        raise MetadataError(f"is for version {fields.version[:60]!a}")


def _line(value: str) -> str:
    """Unfold a value to one line."""
    return " ".join(part.strip() for part in value.splitlines())
