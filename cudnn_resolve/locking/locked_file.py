"""Files of an index as a lock names them."""

from __future__ import annotations

import re
from datetime import datetime
from os.path import isabs, join, normpath, relpath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from msgspec.structs import replace

from cudnn_resolve.masking import redacted

if TYPE_CHECKING:
    from cudnn_resolve.requirement.source import File

HASHES = ("sha256", "sha384", "sha512")
"""Hash algorithms that both pip and uv accept as proof."""
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|\+00:00)?", re.ASCII)


def locked_file(file: File, base: str, *, by_path: bool = False) -> dict[str, Any]:
    """Fields of a file in a lock in the folder `base`: a path for files below that folder, a URL for all others.

    With `by_path`, every local file gets a path: uv takes archives from no `file://` URL.
    """
    path = _path_below(file.url, base) or (_local_path(file.url) if by_path else None)
    return {
        "url": redacted(file.url) if path is None else None,
        "path": path,
        "size": file.size,
        "upload_time": _utc(file.uploaded) if file.uploaded else None,
        "hashes": hashes_of(file),
    }


def with_absolute_url(file: File, folder: str) -> File:
    """Replace a path relative to the lock's folder by a `file://` URL."""
    if "://" in file.url:
        return file
    return replace(file, url=file_url(normpath(join(folder, file.url))))


def file_url(path: str) -> str:
    """The `file://` URL of a path."""
    return f"file://{quote(path, errors='surrogateescape')}"


def hashes_of(file: File) -> dict[str, str]:
    """The hashes that pip and uv accept, sorted by algorithm."""
    return {name: digest.lower() for name, digest in sorted(file.hashes.items()) if name in HASHES}


def relative_path(base: str, path: str) -> str:
    """The path relative to the folder `base`, if both are absolute."""
    return relpath(path, base) if isabs(path) and isabs(base) else path


def _path_below(url: str, base: str) -> str | None:
    """The relative path of a local file below the folder `base`; None for any other URL."""
    local = _local_path(url)
    if local is None:
        return None
    path = relative_path(base, local)
    return None if isabs(path) or path.startswith("..") else path


def _local_path(url: str) -> str | None:
    """The path in a `file://` URL of this machine."""
    parts = urlsplit(url)
    return unquote(parts.path, errors="surrogateescape") if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def _utc(text: str) -> datetime | None:
    """Parse an index's timestamp to whole seconds; None if it is invalid."""
    found = _TIMESTAMP.fullmatch(text)
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00") if found else None
    except ValueError:
        return None
