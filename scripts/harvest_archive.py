"""Requirements of a source archive that can be read without building it."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser

from packaging.version import Version

LARGEST_MEMBER_BYTES = 1024 * 1024
STATIC = Version("2.2")
"""Metadata version from which PKG-INFO is complete (PEP 643)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """The parts of a METADATA file that are used, unchanged."""

    requires: tuple[str, ...]
    extras: tuple[str, ...]


def parse_metadata(text: str) -> Metadata:
    """Return the requirements and extras of a METADATA or PKG-INFO."""
    headers = HeaderParser().parsestr(text)
    return Metadata(requires=tuple(headers.get_all("Requires-Dist", [])), extras=tuple(headers.get_all("Provides-Extra", [])))


def archive_metadata(data: bytes) -> Metadata | None:
    """Return the requirements in PKG-INFO, or in the requires.txt of setuptools; None if there are none, or the archive is damaged."""
    try:
        members = dict(_members(data))
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError):
        return None
    listed = {path: text for path, text in members.items() if path.endswith("/requires.txt")}
    info = min((path for path in members if path.endswith("/PKG-INFO")), key=len, default=None)
    if info is not None:
        known = parse_metadata(members[info])
        if known.requires or Version(HeaderParser().parsestr(members[info]).get("Metadata-Version", "1.0")) >= STATIC:
            return known
    if listed:
        return _parse_requires(listed[min(listed, key=len)])
    has_egg_info = any(".egg-info/" in path for path in members)
    return Metadata(requires=(), extras=()) if has_egg_info else None


def _members(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield path and text of the relevant members."""
    wanted = re.compile(r"[^/]+/(PKG-INFO|(.*/)?[^/]+\.egg-info/(PKG-INFO|requires\.txt))")
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if wanted.fullmatch(member.filename):
                    with archive.open(member) as stream:
                        yield member.filename, stream.read(LARGEST_MEMBER_BYTES).decode("utf-8", "replace")
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            if entry.isfile() and wanted.fullmatch(entry.name.removeprefix("./")):
                content = tar.extractfile(entry)
                if content is not None:
                    yield entry.name.removeprefix("./"), content.read(LARGEST_MEMBER_BYTES).decode("utf-8", "replace")


def _parse_requires(text: str) -> Metadata:
    """Parse setuptools' requires.txt, whose sections are `[extra]`, `[extra:marker]` and `[:marker]`."""
    requires, extras, condition = [], [], ""
    for plain in text.splitlines():
        line = plain.strip()
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            parts = [f"({marker})"] if marker and extra else [marker] if marker else []
            if extra:
                extras.append(extra)
                parts.append(f'extra == "{extra}"')
            condition = " and ".join(parts)
        elif line and not line.startswith("#"):
            requires.append(f"{line}; {condition}" if condition else line)
    return Metadata(requires=tuple(requires), extras=tuple(dict.fromkeys(extras)))
