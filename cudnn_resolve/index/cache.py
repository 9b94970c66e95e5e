"""Responses of indexes in the user's cache: one file each, with a checksum.

Files are written atomically, so that a kill, a full disk or another process leaves a whole file or none. A file that fails its checksum,
cannot be decoded, or could have been written by another user is not used. Credentials never get in: they are removed from URLs before.
Without a folder nothing is cached, and nothing fails.
"""

from __future__ import annotations

import contextlib
import os
import stat as modes
import time
from typing import TypeVar
from zlib import crc32

from msgspec import DecodeError, Raw, ValidationError, msgpack

T = TypeVar("T")
FOLDER = "index-v3"
_ENTRY = msgpack.Decoder(tuple[str, Raw])
_CHECKSUM_BYTES = 4


class Cache:
    """Typed values by kind and key."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder and os.path.join(folder, FOLDER)

    def get(self, kind: str, key: str, form: type[T]) -> T | None:
        """The cached value; None if there is none that can be trusted."""
        raw = self._read(kind, key)
        if raw is None:
            return None
        try:
            content = memoryview(raw)[_CHECKSUM_BYTES:]
            if crc32(content) != int.from_bytes(raw[:_CHECKSUM_BYTES], "big"):
                raise ValidationError("damaged")
            stored_key, value = _ENTRY.decode(content)
            return msgpack.decode(value, type=form) if stored_key == key else None
        except (DecodeError, RecursionError):
            self.drop(kind, key)
            return None

    def put(self, kind: str, key: str, value: object) -> None:
        """Cache a value; do nothing if that is not possible."""
        if not self._folder:
            return
        raw = msgpack.encode((key, value))
        path = self._path(kind, key)
        temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            with open(descriptor, "wb") as stream:
                stream.writelines((crc32(raw).to_bytes(_CHECKSUM_BYTES, "big"), raw))
            os.replace(temporary, path)
        except OSError:  # a full disk, or a removed folder: the next run asks again
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        except BaseException:
            os.unlink(temporary)
            raise

    def drop(self, kind: str, key: str) -> None:
        """Remove a value."""
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(kind, key))

    def _path(self, kind: str, key: str) -> str:
        raw = key.encode("utf-8", "surrogatepass")
        name = f"{crc32(raw):08x}{crc32(raw[::-1]):08x}"  # a file holds its key: a collision of names is a miss
        return os.path.join(self._folder or "", kind, name)

    def _read(self, kind: str, key: str) -> bytes | None:
        if not self._folder:
            return None
        try:
            descriptor = os.open(self._path(kind, key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            with open(descriptor, "rb", buffering=0) as stream:
                return stream.readall() if _is_trusted(os.fstat(descriptor)) else None
        except OSError:
            return None


def _is_trusted(status: os.stat_result) -> bool:
    """Whether it is a regular file that only this user, or root, can have written."""
    return modes.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022
