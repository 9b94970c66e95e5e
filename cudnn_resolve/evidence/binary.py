"""Evidence of one shared library: its needs and GPU code."""

from __future__ import annotations

from collections import Counter
from typing import IO

from cudnn_resolve.evidence.elf import ElfError, read_elf_in
from cudnn_resolve.evidence.fatbin import SECTIONS, read_fat_binaries
from cudnn_resolve.evidence.model import Binary
from cudnn_resolve.version import CodeTarget, CudaVersion

MAGIC = b"\x7fELF"
_MOST_SECTIONS = 65_535
"""Largest number that fits the header. A library linked with one section per function, such as MXNet's, has 5,000."""
_STRAY_SHARE = 10
"""A target with less than a tenth of the code of the most frequent one comes from a linked library, such as NCCL."""


def read_binary(stream: IO[bytes], path: str) -> Binary:
    """Read a library in a seekable stream; ElfError if a loader could not use it.

    Memory is bounded, whatever the size of the file.
    """
    needed = read_elf_in(stream).needed
    try:
        counted, cuda = _read_sections(stream)
    except ElfError:
        raise
    except Exception as error:  # noqa: BLE001 - pyelftools raises anything on hostile tables
        raise ElfError(f"its sections are invalid ({type(error).__name__})") from None
    return Binary(
        path=path,
        needed=needed,
        code=tuple(sorted(counted)),
        strays=tuple(_strays(counted)),
        cuda=cuda,
    )


def _read_sections(stream: IO[bytes]) -> tuple[Counter[CodeTarget], CudaVersion | None]:
    from elftools.elf.elffile import ELFFile

    stream.seek(0)
    file = ELFFile(stream)
    if file.num_sections() > _MOST_SECTIONS:
        raise ElfError("it has more sections than any real library")
    code: Counter[CodeTarget] = Counter()
    cuda: CudaVersion | None = None
    for section in file.iter_sections():
        if section.name in SECTIONS and section["sh_type"] != "SHT_NOBITS":
            found = read_fat_binaries(stream, section["sh_offset"], section["sh_size"])
            code.update(found.code)
            cuda = cuda or found.cuda
    return code, cuda


def _strays(counted: Counter[CodeTarget]) -> list[CodeTarget]:
    most = max(counted.values(), default=0)
    return sorted(target for target, count in counted.items() if count * _STRAY_SHARE < most and not target.suffix)
