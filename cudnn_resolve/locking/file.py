"""Files of an index in the form in which a lock names them."""

from __future__ import annotations

import re
from os.path import isabs, relpath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from cudnn_resolve.locking.model import LockedFile

if TYPE_CHECKING:
    from cudnn_resolve.requirement.source import File

HASHES = ("sha256", "sha384", "sha512")
"""What pip and uv both take for proof."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|\+00:00)?", re.ASCII)


def locked_file(file: File, base: str, *, by_path: bool = False) -> LockedFile:
    """A file of an index as a lock in the folder `base` names it: one below that folder by its path, any other by its address.

    With `by_path`, every file of this machine is named by its path: uv takes archives from no `file://` address.
    """
    path = _below(file.url, base) or (_local(file.url) if by_path else None)
    return LockedFile(
        name=file.filename,
        hashes=hashes_of(file),
        url=level(file.url) if path is None else None,
        path=path,
        size=file.size,
        uploaded=_utc(file.uploaded) if file.uploaded else None,
    )


def hashes_of(file: File) -> tuple[tuple[str, str], ...]:
    """Its digests that prove something, sorted."""
    return tuple(sorted((name, digest.lower()) for name, digest in file.hashes.items() if name in HASHES))


def level(url: str) -> str:
    """An address without user name, password and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


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
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def _utc(text: str) -> str | None:
    """A time of an index in the form of a lock, in whole seconds; None for text that is none."""
    found = _MOMENT.fullmatch(text)
    return f"{found[1]}T{found[2]}Z" if found else None
