"""Decode the linker cache, `/etc/ld.so.cache`, without running ldconfig.

Source of the layout: glibc, sysdeps/generic/dl-cache.h (struct cache_file, cache_file_new) and ldconfig.h (flags).
"""

from __future__ import annotations

import struct

from msgspec import Struct

_OLD_MAGIC = b"ld.so-1.7.0\0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_HEADER = 16
_OLD_ENTRY = 12
_NEW_HEADER = 48
_NEW_ENTRY = 24
_MOST_ENTRIES = 1 << 20

# The second byte of an entry's flags.
_ARCHES = {
    0x00: "i686",
    0x03: "x86_64",
    0x05: "ppc64le",
    0x08: "x32",
    0x09: "armv7l",
    0x0A: "aarch64",
    0x0B: "armel",
    0x10: "riscv64",
}


class CacheEntry(Struct, frozen=True, kw_only=True):
    """An entry of the linker cache: the loader opens `path` for `name`."""

    name: str
    """`libcudnn.so.9`."""
    path: str
    arch: str | None = None
    """`x86_64`, `aarch64`, `i686` …; None = unknown flags."""


def parse_cache(raw: bytes) -> tuple[CacheEntry, ...] | None:
    """Entries of a linker cache, in the loader's order of preference; None if `raw` is not a linker cache.

    Entries that point outside of the file are skipped: the file may be truncated.
    """
    start = 0
    if raw.startswith(_OLD_MAGIC):
        if len(raw) < _OLD_HEADER:
            return None
        (count,) = struct.unpack_from("<I", raw, 12)
        start = (_OLD_HEADER + _OLD_ENTRY * count + 7) & ~7  # the new layout follows the old one, aligned to 8 bytes
        if not raw.startswith(_NEW_MAGIC, start):
            return _entries(raw, (_OLD_HEADER, _OLD_ENTRY, count), _OLD_HEADER + _OLD_ENTRY * count)
    if not raw.startswith(_NEW_MAGIC, start) or len(raw) < start + _NEW_HEADER:
        return None
    (count,) = struct.unpack_from("<I", raw, start + len(_NEW_MAGIC))
    return _entries(raw, (start + _NEW_HEADER, _NEW_ENTRY, count), start)


def _entries(raw: bytes, table: tuple[int, int, int], texts: int) -> tuple[CacheEntry, ...]:
    """Entries of a table (offset, size of an entry, count); offsets of their strings are relative to `texts`."""
    offset, size, count = table
    entries = []
    for index in range(min(count, _MOST_ENTRIES)):
        at = offset + index * size
        if at + 12 > len(raw):
            break
        flags, name_at, path_at = struct.unpack_from("<III", raw, at)
        name, path = _text(raw, texts + name_at), _text(raw, texts + path_at)
        if name and path:
            entries.append(CacheEntry(name=name, path=path, arch=_ARCHES.get(flags >> 8 & 0xFF)))
    return tuple(entries)


def _text(raw: bytes, at: int) -> str:
    end = raw.find(b"\0", at, at + 4096)
    return raw[at:end].decode("utf-8", "replace") if end > at else ""
