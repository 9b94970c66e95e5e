"""What indexes said, kept in the user's cache directory: pages with their validators, metadata for ever.

One file for each page and each METADATA. A file is written beside its place and renamed into it, so that a kill, a full disk or
another process leaves a whole file or none; each part has a check sum, and what fails it is dropped, not believed. No credentials
come in here: addresses are levelled before. Without a folder nothing is kept, and nothing fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat as modes
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from cudnn_resolve.index.page import Shelf

FOLDER = "index-v1"
_LARGEST_HEADER = 64 << 20
_FIRST_BYTES = 32768
_MOST_OPEN = 200
"""Files that are kept open, so that a block is read when it is looked at; beyond that they are read whole."""


class DamagedError(Exception):
    """A kept page whose block does not match its check sum."""


class Kept(NamedTuple):
    """An answer of an index as it was kept."""

    status: int
    """200, or 404 for an index that has no such package."""
    shelf: Shelf | None
    etag: str | None
    modified: str | None
    digest: str
    """Of the body as it came."""
    fresh_until: float
    """Seconds since the epoch; 0 for what must be asked for again each time."""


class IndexCache:
    """Pages and metadata in one folder of the user's."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder and os.path.join(folder, FOLDER)
        self._open = 0

    def page(self, url: str) -> Kept | None:
        """The kept answer for a page; None where there is none that can be believed."""
        descriptor = self._descriptor("pages", url)
        if descriptor is None:
            return None
        try:
            header, start, first = _read_header(descriptor)
            if header["url"] != url or os.fstat(descriptor).st_size != start + sum(header["lengths"]):
                raise ValueError("is another page, or cut off")  # noqa: TRY301 - as every other damage
            shelf = None
            if header["status"] == 200:
                blocks = _Blocks(descriptor, start, first, header["lengths"], header["sums"])
                shelf = Shelf(header["form"], header["base"], header["versions"], blocks, header["skipped"])
                if blocks.is_open and self._open < _MOST_OPEN:
                    self._open += 1
                    blocks.owns, descriptor = True, None
                else:
                    blocks.load()
            return Kept(header["status"], shelf, header["etag"], header["modified"], header["digest"], header["until"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.drop_page(url)
            return None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def keep_page(self, url: str, kept: Kept) -> None:
        """Keeps an answer; nothing where that cannot be."""
        shelf = kept.shelf
        blocks = list(shelf.blocks) if shelf else []
        header = {
            "url": url,
            "status": kept.status,
            "etag": kept.etag,
            "modified": kept.modified,
            "digest": kept.digest,
            "until": kept.fresh_until,
            "form": shelf.form if shelf else "",
            "base": shelf.base if shelf else "",
            "skipped": shelf.skipped if shelf else 0,
            "versions": list(shelf.versions) if shelf else [],
            "lengths": [len(block) for block in blocks],
            "sums": [crc32(block) for block in blocks],
        }
        self._write("pages", url, [_line(header), *blocks])

    def drop_page(self, url: str) -> None:
        """Forgets a page."""
        self._drop("pages", url)

    def metadata(self, key: str) -> Any:
        """The JSON value that was kept under `key`; None where there is none that can be believed."""
        descriptor = self._descriptor("metadata", key)
        if descriptor is None:
            return None
        try:
            header, _, _ = _read_header(descriptor)
            if header["key"] == key:
                return header["value"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self._drop("metadata", key)
        finally:
            os.close(descriptor)
        return None

    def keep_metadata(self, key: str, value: Any) -> None:
        """Keeps a JSON value for ever."""
        self._write("metadata", key, [_line({"key": key, "value": value})])

    def _path(self, kind: str, key: str) -> str:
        assert self._folder
        raw = key.encode("utf-8", "surrogatepass")
        return os.path.join(self._folder, kind, f"{crc32(raw):08x}{crc32(raw[::-1]):08x}")  # a file says whose it is: a clash is a miss

    def _descriptor(self, kind: str, key: str) -> int | None:
        if not self._folder:
            return None
        try:
            descriptor = os.open(self._path(kind, key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        if _ours(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
        return None

    def _drop(self, kind: str, key: str) -> None:
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(kind, key))

    def _write(self, kind: str, key: str, parts: Sequence[bytes]) -> None:
        if not self._folder:
            return
        path = self._path(kind, key)
        passing = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                descriptor = os.open(passing, flags, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                descriptor = os.open(passing, flags, 0o600)
        except OSError:
            return
        try:
            with open(descriptor, "wb") as stream:
                stream.writelines(parts)
            os.replace(passing, path)
        except OSError:  # a full disk, a folder that went: the next run asks again
            with contextlib.suppress(OSError):
                os.unlink(passing)
        except BaseException:
            os.unlink(passing)
            raise


class _Blocks(Sequence[bytes]):
    """The blocks of a kept page, read from its file when they are looked at."""

    def __init__(self, descriptor: int, start: int, first: bytes, lengths: Sequence[int], sums: Sequence[int]) -> None:
        self.owns = False
        """True where the file is closed together with this."""
        self._descriptor = descriptor
        self._first = first
        self._lengths = lengths
        self._sums = sums
        self._starts = [0] * len(lengths)
        at = 0
        for number, length in enumerate(lengths):
            self._starts[number] = at
            at += length
        self._offset = start
        self.is_open = at > len(first)

    def load(self) -> None:
        """Reads everything, so that the file may be closed."""
        if self.is_open:
            self.is_open = False
            self._first = _read(self._descriptor, self._offset, sum(self._lengths))

    def __del__(self) -> None:
        if self.owns:
            self.owns = False
            os.close(self._descriptor)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        start, length = self._starts[number], self._lengths[number]
        block = self._first[start : start + length]
        if len(block) < length and self.is_open:
            block = _read(self._descriptor, self._offset + start, length)
        if len(block) != length or crc32(block) != self._sums[number]:
            raise DamagedError
        return block

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))


def _line(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _read_header(descriptor: int) -> tuple[dict[str, Any], int, bytes]:
    """The header, where the blocks start, and as many bytes of them as came along; ValueError where it is damaged."""
    first = os.pread(descriptor, _FIRST_BYTES, 0)
    end = first.find(b"\n")
    while end < 0:
        more = os.pread(descriptor, min(len(first) * 4, _LARGEST_HEADER), len(first))
        if not more or len(first) > _LARGEST_HEADER:
            raise ValueError("has no header")
        end = more.find(b"\n")
        end = end + len(first) if end >= 0 else end
        first += more
    if int(first[:8], 16) != crc32(first[9:end]):
        raise ValueError("has a damaged header")
    header = json.loads(first[9:end])
    if not isinstance(header, dict):
        raise ValueError("has no header")
    return header, end + 1, first[end + 1 :]


def _read(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def _ours(seen: os.stat_result) -> bool:
    """True for a regular file that nobody but this user (or root) can have written."""
    return modes.S_ISREG(seen.st_mode) and seen.st_uid in (os.geteuid(), 0) and not seen.st_mode & 0o022
