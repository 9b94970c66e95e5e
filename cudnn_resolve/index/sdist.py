"""Read the metadata of a source archive without running it. Sources: PEP 517, 643, 625; setuptools' egg-info."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator

from msgspec.structs import replace

from cudnn_resolve.index import metadata as core
from cudnn_resolve.index.metadata import Fields, MetadataError
from cudnn_resolve.requirement.source import Metadata

_MOST_MEMBERS = 200_000
_MOST_UNPACKED = 2 << 30
_SECTION = re.compile(r"\[([^:\]]*)(?::([^\]]*))?\]")


def read_archive_metadata(path: str, filename: str, name: str) -> Metadata:
    """Metadata of a source archive; `guessed` if a build could change it. Raise MetadataError if it has none that is usable."""
    try:
        files = dict(_members(path, filename))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise MetadataError(f"is a damaged archive ({type(error).__name__})") from None
    raw = files.get("PKG-INFO") or files.get("egg-info/PKG-INFO")
    if raw is None:
        raise MetadataError("is a source archive without PKG-INFO")
    fields = core.read_fields(raw)
    core.check_identity(fields, filename, name)
    if _is_final(fields):
        return fields.metadata
    listed = files.get("egg-info/requires.txt")
    if listed is not None:
        requires, extras = _read_requires(listed.decode("utf-8", "replace"))
        guessed = "it is a source archive, and its build may change what it requires"
        return replace(fields.metadata, requires=requires, extras=extras, guessed=guessed)
    return replace(fields.metadata, guessed="it is a source archive whose PKG-INFO lists no requirements, and its build may add some")


def _is_final(fields: Fields) -> bool:
    """Whether no build may change the requirements: PEP 643."""
    major, _, minor = fields.form.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return False
    return (int(major), int(minor)) >= (2, 2) and not fields.dynamic & {"requires-dist", "requires-python", "provides-extra"}


def _members(path: str, filename: str) -> Iterator[tuple[str, bytes]]:
    """PKG-INFO of the top folder, and PKG-INFO and requires.txt of its egg-info; read in order, within bounds."""
    if filename.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist()[:_MOST_MEMBERS]:
                kind = _kind(info.filename)
                if kind and info.file_size <= core.LARGEST_BYTES:
                    with archive.open(info) as stream:
                        yield kind, stream.read(core.LARGEST_BYTES)
        return
    unpacked = 0
    with tarfile.open(path, "r:gz") as archive:
        for count, member in enumerate(archive):
            unpacked += member.size
            if count > _MOST_MEMBERS or unpacked > _MOST_UNPACKED:
                raise MetadataError("is an archive of implausible size")
            kind = _kind(member.name)
            if kind and member.isreg() and member.size <= core.LARGEST_BYTES:
                found = archive.extractfile(member)
                if found is not None:
                    yield kind, found.read(core.LARGEST_BYTES)


def _kind(name: str) -> str | None:
    parts = name.removeprefix("./").split("/")
    if len(parts) == 2 and parts[1] == "PKG-INFO":
        return "PKG-INFO"
    if len(parts) in (3, 4) and parts[-2].endswith(".egg-info") and parts[-1] in ("PKG-INFO", "requires.txt"):
        return f"egg-info/{parts[-1]}"
    return None


def _read_requires(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Requirements and extras of a requires.txt: `[extra:marker]` starts a section; lines before the first always apply."""
    requires = []
    extras: dict[str, None] = {}
    condition = ""
    for line in text.splitlines():
        line = line.strip()  # noqa: PLW2901 - the same line, stripped
        if not line or line.startswith("#"):
            continue
        section = _SECTION.fullmatch(line)
        if section:
            extra, marker = section[1].strip(), (section[2] or "").strip()
            if extra:
                extras[extra] = None
            parts = [f"({marker})"] if marker else []
            parts += [f'extra == "{extra}"'] if extra else []
            condition = " and ".join(parts)
        elif condition:
            space = " " if "@" in line else ""
            requires.append(f"{line}{space}; {condition}")
        else:
            requires.append(line)
    return tuple(requires), tuple(extras)
