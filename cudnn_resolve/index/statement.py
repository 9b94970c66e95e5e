"""What files say of themselves, through the cache: the metadata of a file never changes, so it is kept for ever, by the file's hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudnn_resolve.index.address import is_local
from cudnn_resolve.index.cache import IndexCache
from cudnn_resolve.requirement.source import File, Metadata

if TYPE_CHECKING:
    from cudnn_resolve.index.reading import Reader


class Statements:
    """The metadata of files, and their sizes where their index does not say them."""

    def __init__(self, reader: Callable[[], Reader], cache: IndexCache, *, offline: bool) -> None:
        self._reader = reader
        self._cache = cache
        self._offline = offline
        self._read: dict[str, Metadata] = {}
        self._sizes: dict[str, int] = {}

    def is_kept(self, file: File) -> bool:
        """True where no request is needed."""
        return self._kept(file) is not None

    def read(self, name: str, file: File) -> Metadata | None:
        """What a file says of itself; None offline where the cache does not know. Refusal where it cannot be had or believed."""
        if is_local(file.url):
            from cudnn_resolve.index.reading import read_local

            return read_local(name, file)
        kept = self._kept(file)
        if kept is not None or self._offline:
            return kept
        reader = self._reader()
        found = reader.read(name, file)
        if file.size is None and file.url in reader.sizes:
            self._sizes[_key(file)] = reader.sizes[file.url]
        self.keep(file, found)
        return found

    def keep(self, file: File, said: Metadata) -> None:
        """Keeps what a file says."""
        self._read[_key(file)] = said
        self._cache.keep_metadata(_key(file), [*said, self._sizes.get(_key(file))])

    def size(self, file: File) -> int | None:
        """Bytes of a file, where they were learnt before; only of a file that cannot have changed since."""
        key = _key(file)
        self._kept(file)
        if key not in self._sizes:
            if "sha256" not in file.hashes:
                return None
            size = self._cache.metadata(f"size {key}")
            if not isinstance(size, int):
                return None
            self._sizes[key] = size
        return self._sizes[key]

    def keep_size(self, file: File, size: int) -> None:
        """Keeps how many bytes a file has, for this run at least."""
        self._sizes[_key(file)] = size
        if "sha256" in file.hashes:
            self._cache.keep_metadata(f"size {_key(file)}", size)

    def _kept(self, file: File) -> Metadata | None:
        key = _key(file)
        if key not in self._read:
            value = self._cache.metadata(key)
            found = _decoded(value)
            if found is None:
                return None
            self._read[key] = found
            if isinstance(value[4], int) and "sha256" in file.hashes:
                self._sizes[key] = value[4]
        return self._read[key]


def _key(file: File) -> str:
    digest = file.hashes.get("sha256")
    return f"sha256:{digest} {file.filename}" if digest else f"{file.url} {file.size or 0} {file.filename}"


def _decoded(value: Any) -> Metadata | None:
    if not isinstance(value, list) or len(value) != 5 or not isinstance(value[0], list) or not isinstance(value[2], list):
        return None
    requires, requires_python, extras, guessed, _ = value
    if not all(isinstance(one, str) for one in (*requires, *extras)):
        return None
    if not all(one is None or isinstance(one, str) for one in (requires_python, guessed)):
        return None
    return Metadata(tuple(requires), requires_python, tuple(extras), guessed)
