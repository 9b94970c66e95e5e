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
"""What pip and uv both take for proof."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|\+00:00)?", re.ASCII)


def locked_file(file: File, base: str, *, by_path: bool = False) -> dict[str, Any]:
    """The fields of a file of an index in a lock in the folder `base`: one below that folder by its path, any other by its address.

    With `by_path`, every file of this machine is named by its path: uv takes archives from no `file://` address.
    """
    path = _below(file.url, base) or (_local(file.url) if by_path else None)
    return {
        "url": redacted(file.url) if path is None else None,
        "path": path,
        "size": file.size,
        "upload_time": _utc(file.uploaded) if file.uploaded else None,
        "hashes": hashes_of(file),
    }


def seen_from(file: File, folder: str) -> File:
    """A file that a lock names, where its address is a path from the lock's folder: with its address."""
    if "://" in file.url:
        return file
    return replace(file, url=file_url(normpath(join(folder, file.url))))


def file_url(path: str) -> str:
    """The address of a file of this machine."""
    return f"file://{quote(path, errors='surrogateescape')}"


def hashes_of(file: File) -> dict[str, str]:
    """Its digests that prove something, sorted."""
    return {name: digest.lower() for name, digest in sorted(file.hashes.items()) if name in HASHES}


def path_from(base: str, path: str) -> str:
    """The path as it is seen from the folder `base`, both being absolute."""
    return relpath(path, base) if isabs(path) and isabs(base) else path


def _below(url: str, base: str) -> str | None:
    """The path of a local file from the folder `base`; None for one that does not lie below it, and for an address elsewhere."""
    local = _local(url)
    path = path_from(base, local) if local is not None else ".."
    return None if isabs(path) or path.startswith("..") else path


def _local(url: str) -> str | None:
    """The path behind a `file://` address of this machine."""
    parts = urlsplit(url)
    return unquote(parts.path, errors="surrogateescape") if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def _utc(text: str) -> datetime | None:
    """A time of an index in whole seconds; None for text that is none."""
    found = _MOMENT.fullmatch(text)
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00") if found else None
    except ValueError:
        return None
