"""METADATA out of wheels, by parts: what is read, and what is refused."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from cudnn_resolve.index.remote_wheel import TAIL_BYTES, RangeFile, WheelError, read_contents, read_wheel_metadata

METADATA = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
PATH = "demo-1.0.dist-info/METADATA"


class Remote:
    """A file whose parts are counted as they are read."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.reads: list[int] = []

    def read(self, start: int, count: int) -> bytes:
        self.reads.append(count)
        return self.raw[start : start + count]

    def metadata(self, limit: int = 1 << 20) -> bytes:
        return read_wheel_metadata(range_file(self.raw, self.read), limit)


def range_file(raw: bytes, read: Callable[[int, int], bytes], tail: int = TAIL_BYTES) -> Any:
    return RangeFile(len(raw), raw[-tail:], read)


def archive(members: list[tuple[str, bytes]], *, comment: bytes = b"", stored: bool = False, zip64: bool = False) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as made:
        for name, raw in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = made.compression
            with made.open(info, "w", force_zip64=zip64) as member:
                member.write(raw)
        made.comment = comment
    return stream.getvalue()


def many(count: int) -> list[tuple[str, bytes]]:
    return [(f"demo/a-rather-long-name-for-a-module-{number:05}.py", os.urandom(40)) for number in range(count)]


@pytest.mark.parametrize("stored", ["stored", ""])
@pytest.mark.parametrize("zip64", ["zip64", ""])
def test_a_small_wheel_needs_no_second_look(stored: str, zip64: str) -> None:
    remote = Remote(archive([*many(20), (PATH, METADATA)], stored=bool(stored), zip64=bool(zip64)))
    assert remote.metadata() == METADATA
    assert remote.reads == []


@pytest.mark.parametrize("place", [0, 5_000, 10_000])
def test_no_more_than_the_directory_and_a_part_are_fetched(place: int) -> None:
    members = many(10_000)
    members.insert(place, (PATH, METADATA))
    remote = Remote(archive(members))
    assert remote.metadata() == METADATA
    assert len(remote.reads) <= 2
    assert sum(remote.reads) < len(remote.raw) * 0.6


@pytest.mark.parametrize("size", [10, 20_000, 65_535])
def test_a_comment_at_the_end_is_passed_over(size: int) -> None:
    assert Remote(archive([(PATH, METADATA), *many(900)], comment=b"x" * size)).metadata() == METADATA


def test_sizes_beyond_32_bits_stand_in_the_extra_field() -> None:
    """A directory as writers of huge wheels make it: every number in the zip64 fields, the end record with its zip64 twin."""
    name = PATH.encode()
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, len(METADATA), len(METADATA), len(name), 0) + name + METADATA
    extra = struct.pack("<2H3Q", 1, 24, len(METADATA), len(METADATA), 0)
    huge = 0xFFFFFFFF
    fixed = ("<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, 0, 0, 0, zlib.crc32(METADATA), huge, huge, len(name), len(extra), 0, 0, 0, 0, huge)
    entry = struct.pack(*fixed) + name + extra
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry), len(local))
    where = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(local) + len(entry), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, huge, huge, 0)
    assert Remote(local + entry + wide + where + end).metadata() == METADATA
    raw = local + entry + wide + where + end
    assert read_wheel_metadata(range_file(raw, lambda start, count: raw[start : start + count], len(where + end)), 1 << 20) == METADATA


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (archive([("demo/x", b"")]), "no METADATA"),
        (archive([("a-1.dist-info/METADATA", METADATA), ("b-1.dist-info/METADATA", METADATA)]), "more than one"),
        (archive([("deep/demo-1.0.dist-info/METADATA", METADATA)]), "no METADATA"),
        (archive([(PATH, METADATA)])[:-1], "not a zip file"),
        (b"x" * 100_000, "not a zip file"),
        (archive([(PATH, b"x" * 3000)]), "more than"),
    ],
)
def test_what_is_refused(raw: bytes, word: str) -> None:
    with pytest.raises(WheelError, match=word):
        Remote(raw).metadata(limit=2000)


def test_a_member_that_unpacks_to_more_than_it_says_is_refused() -> None:
    raw = bytearray(archive([(PATH, b"x" * 100_000)]))
    place = raw.rindex(b"PK\x01\x02")
    raw[place + 24 : place + 28] = struct.pack("<L", 1000)
    with pytest.raises(WheelError, match="damaged"):
        Remote(bytes(raw)).metadata(limit=2000)


def test_a_server_that_gives_less_than_it_should() -> None:
    raw = archive([(PATH, METADATA), *many(2000)])
    with pytest.raises(WheelError, match="shorter"):
        read_wheel_metadata(range_file(raw, lambda _start, _count: b""), 1 << 20)


def test_a_member_without_a_name() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("x"), "")
    raw = made.getvalue().replace(b"x", b"\0")  # zipfile ends a name at a NUL byte

    assert read_contents(io.BytesIO(raw)).names == ("\0",)
