"""The METADATA of a wheel, out of as few bytes of it as possible.

A wheel is a zip file: its directory stands at the end, and builders write the metadata last, or, where a wheel was repaired, first. So
the last 16 KiB or the first 4 KiB of the directory nearly always hold its entry; a directory of megabytes is not fetched for that.
Source: APPNOTE.TXT 6.3, and the wheels of TensorFlow, PyTorch, NumPy, SciPy, ONNX Runtime and NVIDIA.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from cudnn_resolve.requirement.source import Contents

TAIL_BYTES = 16384
_HEAD_BYTES = 4096
LARGEST_DIRECTORY = 64 << 20
_LONGEST_COMMENT = 65535
_END = struct.Struct("<4s4H2LH")
_END64_PLACE = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_SLACK = 512
"""Bytes that the extra field of a local header may have without another read."""
_METADATA = b".dist-info/METADATA"
_PROGRAMS = ".dist-info/entry_points.txt"
_LARGEST_PROGRAMS = 4 << 20
_STORED, _DEFLATED = 0, 8


class WheelError(ValueError):
    """A file that is no wheel, or a damaged one; says why."""


class Part:
    """The bytes of a file that have been read, and the way to read more."""

    def __init__(self, size: int, tail: bytes, read: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._parts = [(size - len(tail), tail)]
        self._read = read

    @property
    def tail(self) -> bytes:
        """The end of the file, as far as it has been read."""
        return self._parts[0][1]

    def more_tail(self, count: int) -> bytes:
        """The last `count` bytes, or all."""
        start, tail = self._parts[0]
        wanted = max(0, self.size - count)
        if wanted < start:
            self._parts[0] = (wanted, self._get(wanted, start - wanted) + tail)
        return self._parts[0][1]

    def read(self, start: int, count: int) -> bytes:
        """Bytes from `start`, fewer at the end of the file."""
        count = min(count, self.size - start)
        if start < 0 or count <= 0:
            raise WheelError("points outside itself")
        for begin, part in self._parts:
            if begin <= start and start + count <= begin + len(part):
                return part[start - begin : start - begin + count]
        first, tail = self._parts[0]
        if start < first < start + count:
            return self._get(start, first - start) + tail[: start + count - first]
        return self._get(start, count)

    def _get(self, start: int, count: int) -> bytes:
        found = self._read(start, count)
        if len(found) != count:
            raise WheelError("is shorter than it was said to be")
        return found


class _Entry:
    """What the directory says of one member."""

    def __init__(self, raw: tuple[int, ...], name: bytes, extra: bytes) -> None:
        self.name = name
        self.method, self.flags = raw[4], raw[3]
        self.crc, self.packed, self.size = raw[7], raw[8], raw[9]
        self.start = raw[16]
        if 0xFFFFFFFF in (self.packed, self.size, self.start):
            self._widen(extra)

    def _widen(self, extra: bytes) -> None:
        """Takes sizes of more than 32 bits from the zip64 field, where they stand in a fixed order."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + length]
                values = list(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
                for name in ("size", "packed", "start"):
                    if getattr(self, name) == 0xFFFFFFFF and values:
                        setattr(self, name, values.pop(0))
                return
            at += 4 + length


def read_wheel_metadata(part: Part, limit: int) -> bytes:
    """The METADATA of the wheel; WheelError where there is none, or more than one."""
    return _unpack(part, _entry_in_tail(part) or _entry_in_directory(part), limit, "METADATA")


def _unpack(part: Part, entry: _Entry, limit: int, what: str) -> bytes:
    if entry.size > limit or entry.packed > limit:
        raise WheelError(f"has {what} of more than {limit >> 20} MB")
    if entry.flags & 1 or entry.method not in (_STORED, _DEFLATED):
        raise WheelError(f"has {what} that is encrypted or packed in an unknown way")
    fixed = _LOCAL.size + len(entry.name)
    raw = part.read(entry.start, fixed + _SLACK + entry.packed)
    if len(raw) < fixed or raw[:4] != b"PK\x03\x04":
        raise WheelError("has a directory that points astray")
    local = _LOCAL.unpack_from(raw)
    begin = _LOCAL.size + local[9] + local[10]
    if begin + entry.packed > len(raw):
        raw = part.read(entry.start, begin + entry.packed)
    packed = raw[begin : begin + entry.packed]
    try:
        found = packed if entry.method == _STORED else zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, entry.size + 1)
    except zlib.error:
        raise WheelError(f"has {what} that cannot be unpacked") from None
    if len(found) != entry.size or zlib.crc32(found) != entry.crc:
        raise WheelError(f"has {what} that does not match its check sum")
    return found


def _entry_in_tail(part: Part) -> _Entry | None:
    """The entry of METADATA, where the part of the directory that came with the tail holds exactly one."""
    tail = part.tail
    end = _find_end(tail)
    found = []
    at = tail.find(_METADATA)
    while 0 <= at < end:
        stop = at + len(_METADATA)
        entry = _entry_ending(tail, stop)
        if entry is not None:
            found.append(entry)
        at = tail.find(_METADATA, stop)
    return found[0] if len(found) == 1 else None


def _entry_ending(tail: bytes, stop: int) -> _Entry | None:
    """The entry of the directory whose name ends at `stop`; None where that is no entry."""
    begin = tail.rfind(b"PK\x01\x02", max(0, stop - 512), stop)
    if begin < 0 or begin + _ENTRY.size > stop:
        return None
    raw = _ENTRY.unpack_from(tail, begin)
    name = tail[begin + _ENTRY.size : stop]
    if raw[10] != len(name) or not _is_metadata(name):
        return None
    return _Entry(raw, name, tail[stop : stop + raw[11]])


def _is_metadata(name: bytes) -> bool:
    return name.endswith(_METADATA) and name.count(b"/") == 1


def _entry_in_directory(part: Part) -> _Entry:
    start, size = _directory(part)
    if size > LARGEST_DIRECTORY:
        raise WheelError("has a directory of unbelievable size")
    head = list(_entries(part.read(start, min(size, _HEAD_BYTES)) if size else b""))
    found = head if head or size <= _HEAD_BYTES else list(_entries(part.read(start, size)))
    if len(found) != 1:
        raise WheelError("has no METADATA" if not found else "has more than one METADATA")
    return found[0]


def _entries(raw: bytes) -> Iterator[_Entry]:
    """The entries of METADATA in a directory, or in the beginning of one."""
    at = 0
    while at + _ENTRY.size <= len(raw) and raw[at : at + 4] == b"PK\x01\x02":
        fields = _ENTRY.unpack_from(raw, at)
        stop = at + _ENTRY.size + fields[10]
        end = stop + fields[11] + fields[12]
        if end <= len(raw) and _is_metadata(raw[at + _ENTRY.size : stop]):
            yield _Entry(fields, raw[at + _ENTRY.size : stop], raw[stop : stop + fields[11]])
        at = end


def _directory(part: Part) -> tuple[int, int]:
    """Where the directory starts and how long it is."""
    tail = part.tail
    end = _find_end(tail)
    if end < 0:
        tail = part.more_tail(_END.size + _LONGEST_COMMENT)
        end = _find_end(tail)
    if end < 0:
        raise WheelError("is no zip file, or is cut off")
    raw = _END.unpack_from(tail, end)
    size, start = raw[5], raw[6]
    if 0xFFFFFFFF not in (size, start) and raw[4] != 0xFFFF:
        return start, size
    place = end - _END64_PLACE.size
    if place < 0 or tail[place : place + 4] != b"PK\x06\x07":
        return start, size
    where = _END64_PLACE.unpack_from(tail, place)[2]
    found = part.read(where, _END64.size)
    if len(found) < _END64.size or found[:4] != b"PK\x06\x06":
        raise WheelError("has a directory that points astray")
    wide = _END64.unpack(found)
    return wide[9], wide[8]


def _find_end(tail: bytes) -> int:
    """Where the end record starts, whose comment must reach the end of the file; -1 where there is none."""
    at = tail.rfind(b"PK\x05\x06")
    tries = 0
    while at >= 0 and tries < 64:
        if at + _END.size <= len(tail) and at + _END.size + _END.unpack_from(tail, at)[7] == len(tail):
            return at
        at = tail.rfind(b"PK\x05\x06", 0, at)
        tries += 1
    return -1


def read_contents(part: Part) -> Contents:
    """Names of all members, in order, as the directory has them, and the programs; WheelError where it is damaged."""
    start, size = _directory(part)
    if size > LARGEST_DIRECTORY:
        raise WheelError("has a directory of unbelievable size")
    raw = part.read(start, size) if size else b""
    names, unpacked, lists = [], 0, []
    at = 0
    while at + _ENTRY.size <= len(raw) and raw[at : at + 4] == b"PK\x01\x02":
        fields = _ENTRY.unpack_from(raw, at)
        stop = at + _ENTRY.size + fields[10]
        name = raw[at + _ENTRY.size : stop].decode("utf-8", "replace")
        entry = _Entry(fields, raw[at + _ENTRY.size : stop], raw[stop : stop + fields[11]])
        if not name.endswith("/"):
            names.append(name)
            unpacked += entry.size
        if name.count("/") == 1 and name.endswith(_PROGRAMS):
            lists.append(entry)
        at = stop + fields[11] + fields[12]
    if at != len(raw) or not names:
        raise WheelError("has a damaged directory")
    if len(lists) > 1:
        raise WheelError("has more than one list of programs")
    programs = tuple(_unpack(part, one, _LARGEST_PROGRAMS, "a list of programs").decode("utf-8", "replace") for one in lists)
    return Contents(names=tuple(names), unpacked=unpacked, programs=programs)
