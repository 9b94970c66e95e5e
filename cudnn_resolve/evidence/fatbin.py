"""GPU code in the fat binaries of a library: its targets, and the toolkit that compiled it.

The format is that of `fatbinary` of CUDA 5 to 13, as embedded by nvcc and clang; tests compare it with nvcc's options. A section contains
containers (16 bytes of header, then their content), a container contains entries, each with its own header.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import IO, NamedTuple

from cudnn_resolve.version import Capability, CodeTarget, CudaVersion

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""Sections of whole-program and of relocatable code."""
_CONTAINER = struct.Struct("<IHHQ")
"""Magic number, version, size of this header, size of the content."""
_ENTRY = struct.Struct("<HHIQ24xQ")
"""Kind, version, size of this header, size of the payload; architecture at byte 28, flags at 40."""
_ARCHITECTURE = struct.Struct("<I")
_MAGIC = 0xBA55ED50
_KINDS = {1: "ptx", 2: "cubin"}
_SPECIFIC, _FAMILY, _COMPRESSED = 0x100000, 0x200000, 0xA000
_MOST_ENTRIES = 200_000
_MOST_GAP = 4096
"""Padding between containers."""
_TOOLKIT = re.compile(rb"Cuda compilation tools, release (\d{1,3}\.\d{1,2})\b")
_LONGEST_CUBIN = 8 << 20
_CUBINS = 4
"""Number of cubins searched for the toolkit's name; those of CUDA 11 and older do not contain it."""


class FatBinaries(NamedTuple):
    """Contents of the fat binaries of one section."""

    code: Counter[CodeTarget]
    """Number of code entries by target."""
    cuda: CudaVersion | None


def read_fat_binaries(stream: IO[bytes], offset: int, size: int) -> FatBinaries:
    """Read one section up to its first invalid part: only headers, and one cubin for the toolkit's name."""
    code: Counter[CodeTarget] = Counter()
    cuda = None
    searched = 0
    entries = (entry for start, stop in _containers(stream, offset, offset + size) for entry in _entries(stream, start, stop))
    for kind, target, flags, payload, length in islice(entries, _MOST_ENTRIES):
        if target is not None:
            code[target] += 1
        if cuda is None and searched < _CUBINS and kind == "cubin" and not flags & _COMPRESSED:
            searched += 1
            cuda = _toolkit(_read(stream, payload, min(length, _LONGEST_CUBIN)))
    return FatBinaries(code, cuda)


def _containers(stream: IO[bytes], position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of each container, up to the first invalid one."""
    while position + _CONTAINER.size <= end:
        header = _read(stream, position, _CONTAINER.size)
        if len(header) < _CONTAINER.size:
            return
        magic, _, header_size, content = _CONTAINER.unpack(header)
        if magic == _MAGIC:
            start, position = position + header_size, position + header_size + content
            if header_size < _CONTAINER.size or position > end:
                return
            yield start, position
        else:
            padding = _padding(stream, position, end)
            if padding is None:
                return
            position += padding


def _entries(stream: IO[bytes], position: int, stop: int) -> Iterator[tuple[str | None, CodeTarget | None, int, int, int]]:
    """Yield kind, target, flags, and position and length of the payload for each entry of a container."""
    while position + 64 <= stop:
        header = _read(stream, position, 64)
        if len(header) < 64:
            return
        number, _, header_size, length, flags = _ENTRY.unpack_from(header)
        if header_size < 64 or position + header_size + length > stop:
            return
        kind = _KINDS.get(number)
        yield kind, _target(kind, _ARCHITECTURE.unpack_from(header, 28)[0], flags), flags, position + header_size, length
        position += header_size + length


def _target(kind: str | None, architecture: int, flags: int) -> CodeTarget | None:
    if kind is None or not 10 <= architecture < 1000:
        return None
    suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    capability = Capability(architecture // 10, architecture % 10)
    return CodeTarget("ptx" if kind == "ptx" else "cubin", capability, suffix)


def _toolkit(cubin: bytes) -> CudaVersion | None:
    found = _TOOLKIT.search(cubin)
    return CudaVersion(found[1].decode("ascii")) if found else None


def _padding(stream: IO[bytes], position: int, end: int) -> int | None:
    """Length of the padding before the next container, or to the end of the section; None if it is not all zeros."""
    content = _read(stream, position, min(_MOST_GAP, end - position))
    index = content.find(_MAGIC.to_bytes(4, "little"))
    padding = content if index < 0 else content[:index]
    return len(padding) if content and not padding.strip(b"\0") else None


def _read(stream: IO[bytes], position: int, size: int) -> bytes:
    stream.seek(position)
    return stream.read(size)
