"""Libraries that hold nothing but what the dynamic loader reads; they can be read, not run."""

from __future__ import annotations

import struct
from collections.abc import Sequence

BASE = 0x10000
"""Address of the first byte, so that addresses and offsets differ."""
CUBIN, PTX = 2, 1
SPECIFIC, FAMILY, ZSTD = 0x100000, 0x200000, 0x8000


def write_elf(
    soname: str | None = None,
    needed: Sequence[str] = (),
    *,
    rpath: str | None = None,
    runpath: str | None = None,
    interpreter: str | None = None,
    machine: int = 62,
    bits: int = 64,
    order: str = "<",
    kind: int = 3,
    padding: int = 0,
) -> bytes:
    """An ELF file with these tags; `padding` bytes lie before its tables."""
    texts = _Texts()
    tags = [(1, texts.add(name)) for name in needed]
    tags += [(tag, texts.add(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text is not None]
    word, pair = ("Q", "qQ") if bits == 64 else ("I", "iI")
    segments = 2 + (interpreter is not None)
    header, segment = (64, 56) if bits == 64 else (52, 32)
    at = header + segments * segment + padding
    body = b""

    def place(content: bytes) -> int:
        nonlocal body
        start = at + len(body)
        body += content
        return start

    name_at = place(interpreter.encode() + b"\0") if interpreter is not None else 0
    tags.append((5, BASE + place(texts.content)))
    dynamic_at = place(b"".join(struct.pack(order + pair, tag, value) for tag, value in [*tags, (0, 0)]))
    rows = [(1, 0, at + len(body)), (2, dynamic_at, (len(tags) + 1) * struct.calcsize(order + pair))]
    if interpreter is not None:
        rows.append((3, name_at, len(interpreter) + 1))
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    front = ident + struct.pack(f"{order}HHI{word}{word}{word}I", kind, machine, 1, 0, header, 0, 0)
    front += struct.pack(order + "HHHHHH", header, segment, segments, 0, 0, 0)
    for segment_kind, offset, size in rows:
        if bits == 64:
            front += struct.pack(order + "IIQQQQQQ", segment_kind, 4, offset, BASE + offset, BASE + offset, size, size, 4096)
        else:
            front += struct.pack(order + "IIIIIIII", segment_kind, offset, BASE + offset, BASE + offset, size, size, 4, 4096)
    return front + bytes(padding) + body


def with_section(name: bytes, offset: int, size: int, content: bytes = b"") -> bytes:
    """A library with one section of that name that is said to lie at an offset, or where its content is, and to have that size."""
    library = bytearray(write_elf(needed=("libcudart.so.12",)))
    names, texts = len(library), b"\0" + name + b"\0"
    library += texts + bytes(-(len(library) + len(texts)) % 8)
    at = len(library)
    library += content + bytes(-len(content) % 8)
    struct.pack_into("<Q", library, 0x28, len(library))
    struct.pack_into("<HHH", library, 0x3A, 64, 3, 1)
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names, len(texts), 0, 0, 0, 0)
    own = struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, at if content else offset, size, 0, 0, 0, 0)
    return bytes(library) + first + table + own


def entry(kind: int, architecture: int, flags: int = 0x11, payload: bytes = b"") -> bytes:
    """A piece of GPU code in a container."""
    return struct.pack("<HHIQ12xI8xQ16x", kind, 257, 64, len(payload), architecture, flags) + payload


def container(*entries: bytes) -> bytes:
    """Pieces of GPU code as a fat binary has them."""
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


class _Texts:
    """A string table that grows."""

    def __init__(self) -> None:
        self.content = b"\0"

    def add(self, text: str) -> int:
        at = len(self.content)
        self.content += text.encode("utf-8", "surrogateescape") + b"\0"
        return at
