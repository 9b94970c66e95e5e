"""Read METADATA and the members of a wheel in place, with `zipfile` over a file that is fetched in parts."""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

from msgspec.structs import replace

from cudnn_resolve.index.fetch_error import FetchError
from cudnn_resolve.requirement.source import Contents, File

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession

TAIL_BYTES = 16384
"""Bytes at the end of a wheel, fetched first: most hold the central directory there, and METADATA, which builders write last."""
_PART_BYTES = 16384
_LARGEST_PART = 16 << 20
_SMALL_WHEEL = 1 << 20
"""Bound on a whole file from a server that ignores ranges."""
_LARGEST_PROGRAMS = 4 << 20
_LINK = 0o12
"""Unix file type of a symbolic link."""
_METADATA = ".dist-info/METADATA"
_PROGRAMS = ".dist-info/entry_points.txt"
_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    zlib.error,
    struct.error,
    ValueError,
    OverflowError,
    LookupError,
)
"""Exceptions of zipfile for damaged files."""


class WheelError(ValueError):
    """A file that is not a wheel, or is damaged."""


class RangeFile:
    """A remote file with the interface that `zipfile` needs; fetched parts are kept."""

    def __init__(self, size: int, tail: bytes, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._parts = [(size - len(tail), tail)]
        self._fetch = fetch
        self._place = 0

    def seekable(self) -> bool:
        """Always true: parts can be fetched in any order."""
        return True

    def tell(self) -> int:
        """Offset of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the offset; raise OSError for a negative one, as files do."""
        place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if place < 0:
            raise OSError(errno.EINVAL, "before the beginning")
        self._place = place
        return place

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes, fewer at the end of the file; raise WheelError if the server sends too few."""
        start, left = self._place, max(0, self._size - self._place)
        count = left if count < 0 else min(count, left)
        if count > _LARGEST_PART:
            raise WheelError("has members of implausible size")
        for begin, part in self._parts:
            if begin <= start and start + count <= begin + len(part):
                break
        else:
            wanted = min(max(count, _PART_BYTES), left)
            begin, part = start, self._fetch(start, wanted)
            if len(part) != wanted:
                raise WheelError("is shorter than its server states")
            self._parts.append((begin, part))
        self._place += count
        return part[start - begin : start - begin + count]


def open_remote(session: IndexSession, file: File) -> IO[bytes] | None:
    """Open a remote wheel for `zipfile`; None if the server does not serve ranges and the wheel is not small."""
    size, headers = file.size or 0, {}
    if not size:
        headers["Range"] = f"bytes=-{TAIL_BYTES}"
    elif size > TAIL_BYTES:
        headers["Range"] = f"bytes={size - TAIL_BYTES}-{size - 1}"
    answer = session.ask(file.url, headers, limit=_SMALL_WHEEL + TAIL_BYTES, wanted=_SMALL_WHEEL)
    if answer.status in (404, 410):
        raise FetchError(f"the file does not exist (HTTP {answer.status})", status=answer.status)
    if answer.status == 200 and answer.is_whole:
        return io.BytesIO(answer.body)
    if answer.status != 206:
        if answer.status == 200 or size:
            return None
        length = stated_size(session, file.url)  # the server has no suffix ranges: ask for the size
        return open_remote(session, replace(file, size=length)) if length else None
    total = answer.headers.get("Content-Range", "").rpartition("/")[2].strip()
    if not (total.isascii() and total.isdigit() and len(total) < 16) or len(answer.body) > int(total):
        raise FetchError("it sent a part without saying which", code="index-garbage")

    def fetch(start: int, count: int) -> bytes:
        part = session.ask(file.url, {"Range": f"bytes={start}-{start + count - 1}"}, limit=count, wanted=count)
        if part.status != 206:
            raise FetchError(f"it did not send the requested part (HTTP {part.status})", code="index-garbage")
        return part.body

    return cast("IO[bytes]", RangeFile(int(total), answer.body, fetch))


def members_of(session: IndexSession, file: File) -> Contents | None:
    """Contents of a remote wheel; None if the server does not serve ranges, or the wheel is damaged."""
    try:
        stream = open_remote(session, file)
        return read_contents(stream) if stream is not None else None
    except (FetchError, WheelError):
        return None


def open_local(path: str) -> IO[bytes]:
    """Open a local wheel; raise OSError if it cannot be read."""
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def read_wheel_metadata(stream: IO[bytes], limit: int) -> bytes:
    """METADATA of a wheel; raise WheelError if there is none, more than one, or one of more than `limit` bytes."""
    with _archive(stream) as archive:
        return _member(archive, [info for info in archive.infolist() if _is_top(info, _METADATA)], limit, "METADATA")


def read_contents(stream: IO[bytes]) -> Contents:
    """Members of a wheel, in the order of its directory, and its programs; raise WheelError if it is damaged."""
    with _archive(stream) as archive:
        infos = archive.infolist()
        if not infos:
            raise WheelError("is empty")
        lists = [info for info in infos if _is_top(info, _PROGRAMS)]
        programs = _member(archive, lists, _LARGEST_PROGRAMS, "entry_points.txt").decode("utf-8", "replace") if lists else ""
    files = [info for info in infos if not info.filename.endswith("/")]  # `is_dir` fails for an empty name
    return Contents(
        names=tuple(info.orig_filename for info in files),  # `filename` is cut at a NUL byte, which not every program does
        unpacked=sum(info.file_size for info in infos),
        programs=programs,
        checksums=tuple(info.CRC for info in files),
        links=tuple(info.orig_filename for info in files if info.external_attr >> 28 == _LINK),
    )


def _is_top(info: zipfile.ZipInfo, ending: str) -> bool:
    return info.filename.endswith(ending) and info.filename.count("/") == 1


def _member(archive: zipfile.ZipFile, found: list[zipfile.ZipInfo], limit: int, what: str) -> bytes:
    if len(found) != 1:
        raise WheelError(f"has more than one {what}" if found else f"has no {what}")
    info = found[0]
    if info.file_size > limit or info.compress_size > limit:
        raise WheelError(f"has {what} of more than {limit >> 20} MB")
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise WheelError(f"has {what} that is encrypted or compressed in an unknown way")
    with archive.open(info) as stream:
        return stream.read(limit + 1)


@contextmanager
def _archive(stream: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(stream) as archive:
            yield archive
    except WheelError:
        raise
    except _DAMAGE as error:
        raise WheelError(f"is not a zip file, or is damaged ({type(error).__name__})") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise WheelError("is not a zip file: an offset points outside of it") from None


def stated_size(session: IndexSession, url: str) -> int | None:
    """Size of a remote file in bytes, by a HEAD request; None if the server does not state it."""
    try:
        head = session.ask(url, limit=1 << 16, method="HEAD")
    except FetchError:
        return None
    length = head.headers.get("Content-Length", "")
    is_plain = head.headers.get("Content-Encoding", "identity") == "identity"
    is_number = length.isascii() and length.isdigit() and len(length) <= 16
    return int(length) if head.status == 200 and is_plain and is_number else None
