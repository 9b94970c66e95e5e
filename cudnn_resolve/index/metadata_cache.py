"""Metadata and sizes of files, through the cache.

The metadata of a file never changes, so it is kept for ever: for a file of an index by its hash, for a local one by its path, size and
time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.index.address import is_local, path_of
from cudnn_resolve.index.cache import Cache
from cudnn_resolve.requirement.source import File, Metadata

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession


class MetadataCache:
    """Metadata of files, and their sizes if the index does not give them."""

    def __init__(self, session: Callable[[], IndexSession], cache: Cache, note: Callable[[str], None], *, offline: bool) -> None:
        self._session = session
        self._cache = cache
        self._note = note
        self._offline = offline
        self._known: dict[str, Metadata] = {}
        self._sizes: dict[str, int] = {}

    def cached(self, file: File) -> Metadata | None:
        """Metadata of a file if it is known without a request."""
        key = _key(file)
        if key not in self._known:
            metadata = self._cache.get("metadata", key, Metadata)
            if metadata is None:
                return None
            self._known[key] = metadata
        return self._known[key]

    def read(self, name: str, file: File) -> Metadata | None:
        """Metadata of a file; None if it is unknown, offline. Raise FetchError if it is unavailable or unusable."""
        if is_local(file.url):
            return self._local(name, file)
        metadata = self.cached(file)
        if metadata is None and not self._offline:
            from cudnn_resolve.index.metadata_reader import read_remote

            metadata, size = read_remote(self._session(), name, file, self._note)
            self.keep(file, metadata)
            if file.size is None and size is not None:
                self._keep_size(file, size)
        return metadata

    def _local(self, name: str, file: File) -> Metadata:
        """Metadata of a local file, read again only after it was changed."""
        path = path_of(file.url)
        try:
            status = os.stat(path)
            key = f"{name} {os.path.abspath(path)} {status.st_size} {status.st_mtime_ns} {status.st_ino}"
        except OSError:
            key = None  # `read_local` reports the error
        metadata = self._cache.get("metadata", key, Metadata) if key else None
        if metadata is None:
            from cudnn_resolve.index.metadata_reader import read_local

            metadata = read_local(name, file)
            if key:
                self._cache.put("metadata", key, metadata)
        return metadata

    def keep(self, file: File, metadata: Metadata) -> None:
        """Cache the metadata of a file."""
        self._known[_key(file)] = metadata
        self._cache.put("metadata", _key(file), metadata)

    def completed(self, file: File) -> File:
        """The file with its size and, if it is local, its hash, as far as they are available without a download."""
        if is_local(file.url):
            return _completed_local(file)
        if file.size is None and (size := self._size(file)) is not None:
            return replace(file, size=size)
        return file

    def _size(self, file: File) -> int | None:
        key = _key(file)
        size = self._sizes.get(key) or (self._cache.get("sizes", key, int) if _is_immutable(file) else None)
        if size is None and not self._offline:
            from cudnn_resolve.index.remote_wheel import stated_size

            size = stated_size(self._session(), file.url)
            if size is not None:
                self._keep_size(file, size)
        return size

    def _keep_size(self, file: File, size: int) -> None:
        self._sizes[_key(file)] = size
        if _is_immutable(file):
            self._cache.put("sizes", _key(file), size)


def _completed_local(file: File) -> File:
    from cudnn_resolve.index.download import digest_of

    path = path_of(file.url)
    try:
        return replace(file, size=os.stat(path).st_size, hashes=file.hashes or {"sha256": digest_of(path)})
    except OSError:
        return file


def _is_immutable(file: File) -> bool:
    """Whether the hash is known, so that the file cannot have changed since."""
    return "sha256" in file.hashes


def _key(file: File) -> str:
    digest = file.hashes.get("sha256")
    return f"sha256:{digest} {file.filename}" if digest else f"{file.url} {file.size or 0} {file.filename}"
