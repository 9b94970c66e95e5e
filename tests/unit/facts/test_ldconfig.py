from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cudnn_resolve.facts.ldconfig import CacheEntry, parse_cache

X86, ARM, I686 = 0x0303, 0x0A03, 0x0003


def new_cache(entries: list[tuple[int, str, str]]) -> bytes:
    """A table as today's ldconfig writes it; its offsets count from its own beginning."""
    texts = b""
    table = b""
    start = 48 + 24 * len(entries)
    for flags, name, path in entries:
        name_at = start + len(texts)
        texts += name.encode() + b"\0"
        path_at = start + len(texts)
        texts += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, name_at, path_at, 0, 0)
    return b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(texts)) + b"\0" * 20 + table + texts


def old_cache(entries: list[tuple[int, str, str]]) -> bytes:
    texts = b""
    table = b""
    for flags, name, path in entries:
        name_at = len(texts)
        texts += name.encode() + b"\0"
        path_at = len(texts)
        texts += path.encode() + b"\0"
        table += struct.pack("<iII", flags, name_at, path_at)
    return b"ld.so-1.7.0\0" + struct.pack("<I", len(entries)) + table + texts


ENTRIES = [
    (X86, "libcudnn.so.9", "/usr/lib/x86_64-linux-gnu/libcudnn.so.9"),
    (I686, "libz.so.1", "/lib32/libz.so.1"),
    (X86, "libcudnn.so.9", "/opt/cudnn/lib/libcudnn.so.9"),
]


def test_entries_keep_the_order_of_the_loader() -> None:
    found = parse_cache(new_cache(ENTRIES))

    assert found == (
        CacheEntry(name="libcudnn.so.9", path="/usr/lib/x86_64-linux-gnu/libcudnn.so.9", arch="x86_64"),
        CacheEntry(name="libz.so.1", path="/lib32/libz.so.1", arch="i686"),
        CacheEntry(name="libcudnn.so.9", path="/opt/cudnn/lib/libcudnn.so.9", arch="x86_64"),
    )


@pytest.mark.parametrize(("flags", "arch"), [(ARM, "aarch64"), (X86, "x86_64"), (0x7703, None)])
def test_the_architecture_is_read_from_the_flags(flags: int, arch: str | None) -> None:
    found = parse_cache(new_cache([(flags, "libz.so.1", "/lib/libz.so.1")]))

    assert found is not None
    assert found[0].arch == arch


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_new_table_is_found_behind_an_old_one(count: int) -> None:
    old = old_cache([(I686, "x", "y")])[: 16 + 12]
    old = old[:12] + struct.pack("<I", count) + old[16:] * count
    padding = b"\0" * (-len(old) % 8)

    found = parse_cache(old + padding + new_cache(ENTRIES))

    assert found is not None
    assert [entry.name for entry in found] == ["libcudnn.so.9", "libz.so.1", "libcudnn.so.9"]


def test_an_old_cache_alone_is_read_too() -> None:
    found = parse_cache(old_cache(ENTRIES))

    assert found is not None
    assert [entry.path for entry in found] == [path for _, _, path in ENTRIES]


def test_a_cache_that_is_cut_off_gives_what_is_there() -> None:
    whole = new_cache(ENTRIES)

    found = parse_cache(whole[: len(whole) - len("/opt/cudnn/lib/libcudnn.so.9") - 1])

    assert found is not None
    assert len(found) == 2


@pytest.mark.parametrize("raw", [b"", b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0", b"ELF", b"\0" * 100])
def test_what_is_no_cache_gives_none(raw: bytes) -> None:
    assert parse_cache(raw) is None


@given(some.binary(max_size=400), some.sampled_from([b"", b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"]))
def test_no_bytes_break_it(raw: bytes, head: bytes) -> None:
    found = parse_cache(head + raw)

    assert found is None or all(entry.name and entry.path for entry in found)
