"""Evidence of a whole wheel, read as a stream: no library is held in memory."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, TypeVar

from cudnn_resolve.evidence.binary import MAGIC, read_binary
from cudnn_resolve.evidence.elf import Elf, ElfError, read_elf_in
from cudnn_resolve.evidence.link_check import LIBRARY, is_of_cuda
from cudnn_resolve.evidence.model import Binary, Evidence
from cudnn_resolve.version import CudaVersion

_T = TypeVar("_T")
_BUILD_STRINGS = re.compile(
    r"(?:^|/)(?:_?version|_version_info|build_info|build_and_package_info|_build_config)\.py$|(?:^|/)cpp_lib\.json$"
)
_LOCAL = re.compile(r"\+cu(\d{2,3})\b")
_STATED = re.compile(r"""\bcuda(?:_version)?["']?\s*[:=]\s*["']?(\d{1,2}\.\d{1,2})\b|["']cuda["']:\s*(\d{4,5})\b""")
_COMPARES = re.compile(r"(?:^|/)(?:_extension/(?:utils|__init__)|extension|_extension)\.py$")
"""Modules in which an extension of PyTorch compares its CUDA with PyTorch's."""
_SAME_LINE = re.compile(r"\bt_minor\s*!=\s*tv_minor\b|\bta_version\s*!=\s*t_version\b")
_FRAMEWORKS = {
    "libtorch_cuda.so": "torch",
    "libtorch_cpu.so": "torch",
    "libtorch.so": "torch",
    "libc10.so": "torch",
    "libtensorflow_framework.so.2": "tensorflow",
    "libtensorflow_framework.so.1": "tensorflow",
    "libtensorflow_cc.so.2": "tensorflow",
}
"""Framework libraries that an extension links to."""
_LONGEST_TEXT = 256 << 10
_MOST_MEMBERS = 200_000
_LARGEST_LIBRARY = 8 << 30
_LARGEST_TOGETHER = 32 << 30
"""Limit for all libraries of a wheel; those of the largest real one unpack to 4 GB."""
_MOST_RATIO = 100
"""Limit for a library's compression ratio; real ones reach ten at best."""
_SMALL_LIBRARY = 64 << 20
"""Size up to which the ratio does not matter."""
_COPY = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
)


class WheelDamage(ValueError):  # noqa: N818 - what is wrong with a file
    """The wheel cannot be read; the message says why."""


def read_wheel(stream: IO[bytes], scratch: Callable[[], IO[bytes]]) -> Evidence:
    """Read a wheel in a seekable stream; libraries are unpacked one after the other into a file that `scratch` opens.

    Invalid libraries are listed in `unread`. WheelDamage if the archive itself is damaged.
    """
    binaries: list[Binary] = []
    unread: list[str] = []
    with _opened(stream) as (archive, members):
        for member in members:
            if not LIBRARY.search(member.filename):
                continue
            try:
                found = _unpacked(archive, member, scratch, partial(read_binary, path=member.filename))
            except ElfError as error:
                unread.append(f"{member.filename}: {error}")
            else:
                binaries += [found] if found is not None else []
        stated = _stated(archive, members)
        same_line = any(
            _SAME_LINE.search(_text(archive, member)) for member in members if _is_small(member) and _COMPARES.search(member.filename)
        )
    return Evidence(binaries=tuple(binaries), cuda=stated or _compiled(binaries), same_line=same_line, unread=tuple(unread))


def summary(found: Evidence) -> dict[str, Any]:
    """Columns of a matrix row about a wheel."""
    return {
        "binaries": len(found.binaries),
        "cuda": str(found.cuda) if found.cuda else None,
        "needs": [name for name in found.needed if is_of_cuda(name)],
        "frameworks": sorted({_FRAMEWORKS[name] for name in found.needed if name in _FRAMEWORKS}),
        "same_line": found.same_line,
        "code": [str(target) for target in found.code],
    }


@contextmanager
def _opened(stream: IO[bytes]) -> Iterator[tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]]:
    """Open a wheel and list its members; any fault while reading it raises WheelDamage."""
    try:
        with zipfile.ZipFile(stream) as archive:
            yield archive, _members(archive)
    except WheelDamage:
        raise
    except _DAMAGE as error:
        raise WheelDamage(f"it is damaged ({type(error).__name__})") from None


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise WheelDamage("it has more files than any real wheel")
    if sum(member.file_size for member in members if LIBRARY.search(member.filename)) > _LARGEST_TOGETHER:
        raise WheelDamage("its libraries are larger together than those of any real wheel")
    return members


def read_wheel_links(stream: IO[bytes], scratch: Callable[[], IO[bytes]]) -> tuple[tuple[str, Elf], ...]:
    """Read the dynamic section of each usable library of a wheel; WheelDamage as for `read_wheel`."""
    found = []
    with _opened(stream) as (archive, members):
        for member in members:
            if LIBRARY.search(member.filename):
                with suppress(ElfError):
                    elf = _unpacked(archive, member, scratch, read_elf_in)
                    found += [(member.filename, elf)] if elf is not None else []
    return tuple(found)


def _unpacked(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, scratch: Callable[[], IO[bytes]], read: Callable[[IO[bytes]], _T]
) -> _T | None:
    """Result of `read` for a library; None for another member, such as a linker script. ElfError if it cannot be read."""
    if member.file_size > _LARGEST_LIBRARY:
        raise ElfError("larger than any real library")
    if member.file_size > max(_SMALL_LIBRARY, _MOST_RATIO * member.compress_size):
        raise ElfError("packed tighter than any real library")
    with archive.open(member) as source, scratch() as copy:
        block = source.read(_COPY)
        if not block.startswith(MAGIC):
            return None
        length = 0
        while block:
            length += len(block)
            if length > member.file_size:
                raise ElfError("longer than the directory of the wheel says")
            copy.write(block)
            block = source.read(_COPY)
        return read(copy)


def _stated(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> CudaVersion | None:
    """CUDA stated by modules with build information; None if they state none or several."""
    texts = [_text(archive, member) for member in members if _is_small(member) and _BUILD_STRINGS.search(member.filename)]
    found = {cuda for text in texts for cuda in _cudas(text)}
    return found.pop() if len(found) == 1 else None


def _is_small(member: zipfile.ZipInfo) -> bool:
    return member.filename.count("/") <= 4 and member.file_size <= _LONGEST_TEXT


def _text(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    with archive.open(member) as source:
        return source.read(_LONGEST_TEXT).decode("utf-8", "replace")


def _cudas(text: str) -> Iterator[CudaVersion]:
    for label in _LOCAL.finditer(text):
        yield CudaVersion(f"{label[1][:-1]}.{label[1][-1]}")
    for stated in _STATED.finditer(text):
        yield CudaVersion(stated[1] or f"{int(stated[2]) // 100}.{int(stated[2]) % 100}")


def _compiled(binaries: list[Binary]) -> CudaVersion | None:
    """Toolkit that compiled most of the GPU code."""
    counted = Counter(binary.cuda for binary in binaries if binary.cuda is not None)
    return max(counted, key=lambda cuda: (counted[cuda], cuda)) if counted else None
