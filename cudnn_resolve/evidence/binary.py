"""Evidence of one shared library: its needs, names that it may open, and GPU code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import IO

from cudnn_resolve.evidence.elf import ElfError, read_elf_in
from cudnn_resolve.evidence.fatbin import SECTIONS, read_fat_binaries
from cudnn_resolve.evidence.model import Binary
from cudnn_resolve.version import CodeTarget, CudaVersion

MAGIC = b"\x7fELF"
_BLOCK = 1 << 20
_OVERLAP = 128
_MOST_READ_ONLY = 1 << 30
_MOST_SECTIONS = 65_535
"""Largest number that fits the header. A library linked with one section per function, such as MXNet's, has 5,000."""
_STRAY_SHARE = 10
"""A target with less than a tenth of the code of the most frequent one comes from a linked library, such as NCCL."""
_OPENED = re.compile(rb"lib(?:cu[a-zA-Z]|nv|tensorrt|cudnn)[\w-]{0,60}\.so(?:\.\d{1,3}){0,3}(?=\0)")
"""Names of CUDA libraries in read-only data, zero-terminated."""


def read_binary(stream: IO[bytes], path: str) -> Binary:
    """Read a library in a seekable stream; ElfError if a loader could not use it.

    Memory is bounded by one block, whatever the size of the file.
    """
    needed = read_elf_in(stream).needed
    try:
        opens, counted, cuda = _read_sections(stream)
    except ElfError:
        raise
    except Exception as error:  # noqa: BLE001 - pyelftools raises anything on hostile tables
        raise ElfError(f"its sections are invalid ({type(error).__name__})") from None
    return Binary(
        path=path,
        needed=needed,
        opens=opens,
        code=tuple(sorted(counted)),
        strays=tuple(_strays(counted)),
        cuda=cuda,
    )


def _read_sections(stream: IO[bytes]) -> tuple[tuple[str, ...], Counter[CodeTarget], CudaVersion | None]:
    from elftools.elf.elffile import ELFFile

    stream.seek(0)
    file = ELFFile(stream)
    if file.num_sections() > _MOST_SECTIONS:
        raise ElfError("it has more sections than any real library")
    opens: set[str] = set()
    code: Counter[CodeTarget] = Counter()
    cuda: CudaVersion | None = None
    for section in file.iter_sections():
        if section.name == ".rodata":
            opens.update(_names(stream, section["sh_offset"], min(section["sh_size"], _MOST_READ_ONLY)))
        elif section.name in SECTIONS and section["sh_type"] != "SHT_NOBITS":
            found = read_fat_binaries(stream, section["sh_offset"], section["sh_size"])
            code.update(found.code)
            cuda = cuda or found.cuda
    return tuple(sorted(opens)), code, cuda


def _strays(counted: Counter[CodeTarget]) -> list[CodeTarget]:
    most = max(counted.values(), default=0)
    return sorted(target for target, count in counted.items() if count * _STRAY_SHARE < most and not target.suffix)


def _names(stream: IO[bytes], offset: int, size: int) -> Iterator[str]:
    """Yield names of CUDA libraries in a section, with repetitions."""
    position, end, rest = offset, offset + size, b""
    while position < end:
        stream.seek(position)
        block = stream.read(min(_BLOCK, end - position))
        if not block:
            return
        position += len(block)
        yield from (match.group().decode("ascii") for match in _OPENED.finditer(rest + block))
        rest = block[-_OVERLAP:]
