"""What an ELF file tells the dynamic loader: its architecture, what it needs, and where it wants that to be looked for.

Read in small pieces through a function, never the whole file: a libtorch_cuda.so has 900 MB. Source of the layout: elf(5) and
the generic ABI, chapters 4 and 5; the version tables are described in the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

Read = Callable[[int, int], "bytes | None"]
"""Gives at most `size` bytes from `offset` of the file, None where it cannot be read: `read(offset, size)`."""

_PAGE = 4096
_MOST_PAGES = 1024
"""4 MiB; a real library needs less than twenty pages."""
_MOST_HEADERS = 512
_MOST_TAGS = 4096
_MOST_VERSIONS = 1024
_LONGEST_TEXT = 32768
"""A path list of TensorFlow has more than 1000 letters."""

_MOST_LETTERS = 1 << 20
"""Of all names together."""

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DF_1_NODEFLIB = 0x800
_VER_FLG_WEAK = 2
_MACHINES = {3: "i686", 21: "ppc64", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


class ElfError(ValueError):
    """The file is no ELF file that a loader could use; the message says why."""


class Elf(Struct, frozen=True, kw_only=True):
    """One library or program, as the loader sees it."""

    arch: str
    """`x86_64`, `aarch64`, …; `machine 8` for one without a name here."""
    bits: int
    """32 or 64."""
    kind: int = 3
    """2: a program at a fixed address; 3: a library, or a program that may lie anywhere."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    """DT_NEEDED, in the order of the file."""
    rpath: str | None = None
    """DT_RPATH as written."""
    runpath: str | None = None
    """DT_RUNPATH as written."""
    interpreter: str | None = None
    """The loader that a program asks for, `/lib64/ld-linux-x86-64.so.2`."""
    no_default: bool = False
    """True where the default directories are not to be searched for what it needs (DF_1_NODEFLIB)."""
    defines: tuple[str, ...] = ()
    """Symbol versions that it defines, `GLIBC_2.34`."""
    wants: tuple[tuple[str, str], ...] = ()
    """Symbol versions that must be there: the library that is to define it, and the version."""


class _Layout(Struct, frozen=True):
    """How the numbers of this file are written."""

    order: str
    bits: int

    @property
    def segment(self) -> str:
        # 64 bit: type flags offset vaddr paddr filesz memsz align; 32 bit has the flags later
        return self.order + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII")

    @property
    def tag(self) -> str:
        return self.order + ("qQ" if self.bits == 64 else "iI")


class _Image:
    """The bytes of a file, fetched page by page; never more pages than a library with sane tables needs."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}
        self._letters = 0

    def take(self, offset: int, size: int) -> bytes:
        """Exactly these bytes; ElfError where the file ends before."""
        first, last = offset // _PAGE, (offset + size - 1) // _PAGE
        if offset < 0 or last - first >= _MOST_PAGES:
            raise ElfError("a table is larger than any real one")
        content = b"".join(self._page(number) for number in range(first, last + 1))
        piece = content[offset - first * _PAGE :][:size]
        if len(piece) < size:
            raise ElfError("the file ends too early")
        return piece

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        """Numbers in the form of the struct module."""
        return struct.unpack(form, self.take(offset, struct.calcsize(form)))

    def text(self, offset: int) -> str:
        """The text up to the next zero byte; ElfError where it has no end."""
        pieces: list[bytes] = []
        at = offset
        if self._letters > _MOST_LETTERS:
            raise ElfError("it has more names than any real library")
        while at < offset + _LONGEST_TEXT:
            page = self._page(at // _PAGE)[at % _PAGE :]
            end = page.find(b"\0")
            if end >= 0:
                pieces.append(page[:end])
                self._letters += at + end - offset
                return b"".join(pieces).decode("utf-8", "surrogateescape")
            if at % _PAGE + len(page) < _PAGE:
                break
            pieces.append(page)
            at += len(page)
        raise ElfError("a name has no end")

    def _page(self, number: int) -> bytes:
        known = self._pages.get(number)
        if known is None:
            if len(self._pages) >= _MOST_PAGES:
                raise ElfError("its tables are scattered beyond reason")
            known = (self._read(number * _PAGE, _PAGE) if number < 1 << 50 else None) or b""
            self._pages[number] = known
        return known


class _Segment(Struct, frozen=True):
    kind: int
    offset: int
    address: int
    size: int


class _Tables(Struct, frozen=True):
    """The image and where its addresses lie in the file."""

    image: _Image
    layout: _Layout
    loads: tuple[_Segment, ...]
    texts: int
    """Address of the string table."""

    def offset(self, address: int) -> int:
        """Where in the file an address lies; ElfError where it is not in the file."""
        for segment in self.loads:
            if segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise ElfError("an address lies outside of the file")

    def text(self, at: int) -> str:
        """A text of the string table."""
        return self.image.text(self.offset(self.texts + at))


def read_elf(read: Read) -> Elf:
    """What the file says to the loader; ElfError for anything that is not a whole ELF file with a dynamic part."""
    image = _Image(read)
    layout, kind, machine = _identify(image)
    segments = _segments(image, layout)
    interpreter = next((image.text(segment.offset) for segment in segments if segment.kind == _PT_INTERP), None)
    bare = Elf(arch=_MACHINES.get(machine, f"machine {machine}"), bits=layout.bits, kind=kind, interpreter=interpreter)
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        if kind == 2:  # linked statically
            return bare
        raise ElfError("it has no dynamic part: an object file, or only the debugging half of a library")
    tags = _tags(image, layout, dynamic)
    single = dict(reversed(tags))
    loads = tuple(segment for segment in segments if segment.kind == _PT_LOAD)
    tables = _Tables(image, layout, loads, single.get(_DT_STRTAB, 0))
    return replace(
        bare,
        soname=_text_of(tables, single, _DT_SONAME),
        needed=tuple(tables.text(value) for tag, value in tags if tag == _DT_NEEDED),
        rpath=_text_of(tables, single, _DT_RPATH),
        runpath=_text_of(tables, single, _DT_RUNPATH),
        no_default=bool(single.get(_DT_FLAGS_1, 0) & _DF_1_NODEFLIB),
        defines=tuple(_defined(tables, single)),
        wants=tuple(_wanted(tables, single)),
    )


def _identify(image: _Image) -> tuple[_Layout, int, int]:
    """Layout, kind and machine of the file."""
    head = image.take(0, 20) if image.take(0, 4) == b"\x7fELF" else b""
    if not head:
        raise ElfError("it is not an ELF file")
    bits = {1: 32, 2: 64}.get(head[4])
    order = {1: "<", 2: ">"}.get(head[5])
    if bits is None or order is None or head[6] != 1:
        raise ElfError("its ELF header is not one of this world")
    kind, machine = struct.unpack_from(order + "HH", head, 16)
    if kind not in (2, 3):
        raise ElfError("it is neither a library nor a program")
    return _Layout(order, bits), kind, machine


def _segments(image: _Image, layout: _Layout) -> list[_Segment]:
    if layout.bits == 64:
        (start,) = image.unpack(layout.order + "Q", 32)
        size, count = image.unpack(layout.order + "HH", 54)
    else:
        (start,) = image.unpack(layout.order + "I", 28)
        size, count = image.unpack(layout.order + "HH", 42)
    if size != struct.calcsize(layout.segment) or count > _MOST_HEADERS:
        raise ElfError("its program headers are not those of a library")
    found = []
    for index in range(count):
        kind, *rest = image.unpack(layout.segment, start + index * size)
        if layout.bits == 64:
            _, offset, address, _, length = rest[:5]
        else:
            offset, address, _, length = rest[:4]
        found.append(_Segment(kind, offset, address, length))
    return found


def _tags(image: _Image, layout: _Layout, dynamic: _Segment) -> list[tuple[int, int]]:
    """The entries of the dynamic part up to its end mark."""
    size = struct.calcsize(layout.tag)
    found: list[tuple[int, int]] = []
    for index in range(min(dynamic.size // size, _MOST_TAGS)):
        tag, value = image.unpack(layout.tag, dynamic.offset + index * size)
        if tag == 0:
            return found
        found.append((tag, value))
    return found


def _text_of(tables: _Tables, single: dict[int, int], tag: int) -> str | None:
    value = single.get(tag)
    return None if value is None else tables.text(value)


def _chain(tables: _Tables, start: int, form: str, count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Offset and numbers of each record of a list in which the last number of a record leads to the next one."""
    at = start
    for _ in range(min(count, _MOST_VERSIONS)):
        numbers = tables.image.unpack(tables.layout.order + form, at)
        yield at, numbers
        if numbers[-1] == 0:
            return
        at += numbers[-1]


def _defined(tables: _Tables, single: dict[int, int]) -> Iterator[str]:
    """Names of the versions that the file defines, without the first, which is its own name."""
    if _DT_VERDEF not in single:
        return
    start = tables.offset(single[_DT_VERDEF])
    for at, (_, _, _, _, _, names, _) in _chain(tables, start, "HHHHIII", single.get(_DT_VERDEFNUM, 0)):
        name, _ = tables.image.unpack(tables.layout.order + "II", at + names)
        yield tables.text(name)


def _wanted(tables: _Tables, single: dict[int, int]) -> Iterator[tuple[str, str]]:
    """Library and version of each version that is required; weak ones are not."""
    if _DT_VERNEED not in single:
        return
    start = tables.offset(single[_DT_VERNEED])
    budget = _MOST_VERSIONS
    for at, (_, count, file, names, _) in _chain(tables, start, "HHIII", single.get(_DT_VERNEEDNUM, 0)):
        library = tables.text(file)
        for _, (_, flags, _, name, _) in islice(_chain(tables, at + names, "IHHII", count), budget):
            budget -= 1
            if not flags & _VER_FLG_WEAK:
                yield library, tables.text(name)
