"""Reading what a file says of itself: the METADATA beside it, inside it by parts of it, or in an archive that is downloaded for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from cudnn_resolve.index import metadata as core
from cudnn_resolve.index.address import is_local, path_of, shown
from cudnn_resolve.index.download import Downloads
from cudnn_resolve.index.metadata import MetadataError
from cudnn_resolve.index.refusal import Refusal
from cudnn_resolve.index.wheel import TAIL_BYTES, Part, WheelError, read_wheel_metadata
from cudnn_resolve.requirement.source import File, Metadata

if TYPE_CHECKING:
    from cudnn_resolve.index.transport import Transport

_SMALL_WHEEL = 1 << 20
"""A server that sends all where a part was asked for is listened to up to here."""
_MOST_PART = 96 << 20


def read_local(name: str, file: File) -> Metadata:
    """What a file on this machine says of itself; Refusal where it cannot be read or believed."""

    def read() -> Metadata:
        if not file.is_wheel:
            return read_archive(path_of(file.url), file.filename, name)
        return core.read_metadata(read_local_wheel(path_of(file.url)), file.filename, name)

    return _checked(read)


class Reader:
    """Reads the metadata of remote files, with as few bytes as their servers allow."""

    def __init__(self, transport: Transport, retries: int, note: Callable[[str], None]) -> None:
        self._transport = transport
        self._downloads = Downloads(transport, retries)
        self._note = note
        self.sizes: dict[str, int] = {}
        """Of files, by address, as far as a server said so on the way."""

    def read(self, name: str, file: File) -> Metadata:
        """What a file says of itself; Refusal where it cannot be had or believed."""
        assert not is_local(file.url)
        return _checked(lambda: self._remote(name, file))

    def _remote(self, name: str, file: File) -> Metadata:
        raw = self._beside(file) if file.metadata is not None else None
        if raw is None and not file.is_wheel:
            return self._downloads.passing(file, lambda path: read_archive(path, file.filename, name))
        return core.read_metadata(raw if raw is not None else self._inside(file), file.filename, name)

    def _beside(self, file: File) -> bytes | None:
        """The METADATA that is served beside a file, its hash checked; None where it is announced but not there."""
        answer = self._transport.ask(f"{file.url}.metadata", {"Accept-Encoding": "gzip"}, limit=core.LARGEST_BYTES)
        if answer.status != 200:
            return None
        import hashlib

        for algorithm, digest in (file.metadata or {}).items():
            if algorithm in hashlib.algorithms_guaranteed and hashlib.new(algorithm, answer.body).hexdigest() != digest:
                raise Refusal(f"the metadata beside it does not match its {algorithm}", code="metadata-hash")
        return answer.body

    def _inside(self, file: File) -> bytes:
        """The METADATA inside a wheel, by parts of it."""
        if file.size is not None and 0 < file.size <= TAIL_BYTES:
            return read_wheel_metadata(self._whole(file), core.LARGEST_BYTES)
        wanted = f"bytes={file.size - TAIL_BYTES}-{file.size - 1}" if file.size else f"bytes=-{TAIL_BYTES}"
        answer = self._transport.ask(file.url, {"Range": wanted}, limit=_SMALL_WHEEL + TAIL_BYTES, wanted=_SMALL_WHEEL)
        if answer.status not in (200, 206, 404, 410) and not file.size:  # no part from the end: ask how long the file is
            head = self._transport.ask(file.url, limit=_SMALL_WHEEL, method="HEAD")
            length = head.headers.get("content-length", "")
            if head.status == 200 and length.isdigit() and int(length[:16]) > 0:
                return self._inside(file._replace(size=int(length[:16])))
        if answer.status == 206:
            size = _total(answer.headers.get("content-range", ""))
            if size is None or len(answer.body) > size:
                raise Refusal("it answers a part without saying which", code="index-garbage")
            self.sizes[file.url] = size
            return read_wheel_metadata(Part(size, answer.body, lambda start, count: self._part(file, start, count)), core.LARGEST_BYTES)
        if answer.status == 200 and answer.is_whole:
            return read_wheel_metadata(Part(len(answer.body), answer.body, _nothing_more), core.LARGEST_BYTES)
        if answer.status in (404, 410):
            raise Refusal(f"the file is not there (HTTP {answer.status})", status=answer.status)
        self._note(
            f"{shown(file.url.rpartition('/')[0])} gives no parts of files: {file.filename[:200]} was downloaded to read its metadata"
        )
        return self._downloads.passing(file, read_local_wheel)

    def _whole(self, file: File) -> Part:
        answer = self._transport.ask(file.url, limit=TAIL_BYTES * 2)
        if answer.status != 200:
            raise Refusal(f"it answers HTTP {answer.status}", status=answer.status)
        return Part(len(answer.body), answer.body, _nothing_more)

    def _part(self, file: File, start: int, count: int) -> bytes:
        if count > _MOST_PART:
            raise WheelError("has parts of unbelievable size")
        answer = self._transport.ask(file.url, {"Range": f"bytes={start}-{start + count - 1}"}, limit=count, wanted=count)
        if answer.status != 206 or len(answer.body) != count:
            raise Refusal(f"it gives another part than was asked for (HTTP {answer.status})", code="index-garbage")
        return answer.body


def _checked(read: Callable[[], Metadata]) -> Metadata:
    try:
        return read()
    except (MetadataError, WheelError) as error:
        raise Refusal(f"it {error}", code="metadata-invalid") from None
    except OSError as error:
        raise Refusal(f"it cannot be read: {error.strerror or type(error).__name__}", code="file-unreadable") from None


def read_local_wheel(path: str) -> bytes:
    """The METADATA of a wheel on disk; WheelError and OSError where it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        start = max(0, size - TAIL_BYTES)
        part = Part(size, os.pread(descriptor, TAIL_BYTES, start), lambda at, count: os.pread(descriptor, count, at))
        return read_wheel_metadata(part, core.LARGEST_BYTES)
    finally:
        os.close(descriptor)


def read_archive(path: str, filename: str, name: str) -> Metadata:
    """What a source archive on disk says of itself."""
    from cudnn_resolve.index.sdist import read_archive_metadata

    return read_archive_metadata(path, filename, name)


def _nothing_more(_start: int, _count: int) -> bytes:
    return b""


def _total(content_range: str) -> int | None:
    """The size of the file in `bytes 100-199/1000`."""
    total = content_range.rpartition("/")[2].strip()
    return int(total) if total.isdigit() and len(total) < 16 else None
