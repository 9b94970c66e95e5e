"""What files say of themselves, through the cache.

The metadata of a file never changes, so it is kept for ever: of a file of an index by its hash, of one on this machine by its place,
size and time.
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


class Statements:
    """The metadata of files, and their sizes where their index does not say them."""

    def __init__(self, session: Callable[[], IndexSession], cache: Cache, note: Callable[[str], None], *, offline: bool) -> None:
        self._session = session
        self._cache = cache
        self._note = note
        self._offline = offline
        self._known: dict[str, Metadata] = {}
        self._sizes: dict[str, int] = {}

    def cached(self, file: File) -> Metadata | None:
        """What is known of a file without a request."""
        key = _key(file)
        if key not in self._known:
            kept = self._cache.get("metadata", key, Metadata)
            if kept is None:
                return None
            self._known[key] = kept
        return self._known[key]

    def read(self, name: str, file: File) -> Metadata | None:
        """What a file says of itself; None offline where the cache does not know. FetchError where it cannot be had or used."""
        if is_local(file.url):
            return self._local(name, file)
        found = self.cached(file)
        if found is None and not self._offline:
            from cudnn_resolve.index.reading import read_remote

            found, size = read_remote(self._session(), name, file, self._note)
            self.keep(file, found)
            if file.size is None and size is not None:
                self._keep_size(file, size)
        return found

    def _local(self, name: str, file: File) -> Metadata:
        """What a file on this machine says of itself, read again only after it was changed."""
        path = path_of(file.url)
        try:
            state = os.stat(path)
            key = f"{name} {os.path.abspath(path)} {state.st_size} {state.st_mtime_ns} {state.st_ino}"
        except OSError:
            key = None  # reading it says what is wrong
        kept = self._cache.get("metadata", key, Metadata) if key else None
        if kept is None:
            from cudnn_resolve.index.reading import read_local

            kept = read_local(name, file)
            if key:
                self._cache.put("metadata", key, kept)
        return kept

    def keep(self, file: File, metadata: Metadata) -> None:
        """Keep what a file says."""
        self._known[_key(file)] = metadata
        self._cache.put("metadata", _key(file), metadata)

    def completed(self, file: File) -> File:
        """A file with its size and, where it is on this machine, its hash, as far as they can be had without downloading it."""
        if is_local(file.url):
            return _of_disk(file)
        if file.size is None and (size := self._size(file)) is not None:
            return replace(file, size=size)
        return file

    def completed_from_cache(self, file: File) -> File | None:
        """The same without a request or a look at the file; None where that cannot be."""
        if is_local(file.url):
            return None
        if file.size is not None:
            return file
        size = self._kept_size(file)
        return replace(file, size=size) if size is not None else file if self._offline else None

    def _kept_size(self, file: File) -> int | None:
        key = _key(file)
        return self._sizes.get(key) or (self._cache.get("sizes", key, int) if _is_proven(file) else None)

    def _size(self, file: File) -> int | None:
        size = self._kept_size(file)
        if size is None and not self._offline:
            from cudnn_resolve.index.remote_wheel import stated_size

            size = stated_size(self._session(), file.url)
            if size is not None:
                self._keep_size(file, size)
        return size

    def _keep_size(self, file: File, size: int) -> None:
        self._sizes[_key(file)] = size
        if _is_proven(file):
            self._cache.put("sizes", _key(file), size)


def _of_disk(file: File) -> File:
    from cudnn_resolve.index.download import digest_of

    path = path_of(file.url)
    try:
        return replace(file, size=os.stat(path).st_size, hashes=file.hashes or {"sha256": digest_of(path)})
    except OSError:
        return file


def _is_proven(file: File) -> bool:
    """Whether the file cannot have changed since."""
    return "sha256" in file.hashes


def _key(file: File) -> str:
    digest = file.hashes.get("sha256")
    return f"sha256:{digest} {file.filename}" if digest else f"{file.url} {file.size or 0} {file.filename}"
