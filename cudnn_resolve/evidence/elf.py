"""Dynamic section of an ELF file: architecture, soname, needed libraries, search paths and symbol versions.

Parsed with pyelftools' structures from a stream that fetches single pages, since `libtorch_cuda.so` has 900 MB. `ELFFile` is not used:
it also reads sections, and takes three times as long to import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import IO, Any, Final

from msgspec import Struct
from msgspec.structs import replace

Read = Callable[[int, int], "bytes | None"]
"""`read(offset, size)` returns at most `size` bytes of the file, None if it cannot be read."""

_PAGE = 4096
_MOST_PAGES = 1024
"""4 MiB; a real library needs fewer than twenty pages."""
_MOST_HEADERS = 512
_MOST_TAGS = 4096
_MOST_VERSIONS = 4096
_LONGEST_TEXT = 32768
"""TensorFlow has a search path of more than 1000 characters."""
_MOST_LETTERS = 1 << 20
"""Limit for all names together."""
_MOST_NAMES = 1 << 20
"""Size of a string table to search for symbols of libnvJitLink; no library that uses it has a larger one."""
_JIT = rb"(?<=\0)__nvJitLink\w{1,60}_\d{1,3}_\d{1,3}(?=\0)"
_WEAK = 2
"""VER_FLG_WEAK: a version that the loader does not require."""
_ARCHITECTURES: Final = {"EM_386": "i686", "EM_PPC64": "ppc64", "EM_ARM": "arm", "EM_RISCV": "riscv64"}


class ElfError(ValueError):
    """A loader cannot use the file; the message says why."""


class Elf(Struct, frozen=True, kw_only=True):
    """One library or program."""

    arch: str
    """`x86_64`, `aarch64`, …; `machine 4711` for an unnamed one."""
    bits: int
    """32 or 64."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    """DT_NEEDED, in the order of the file."""
    rpath: str | None = None
    """DT_RPATH as written."""
    runpath: str | None = None
    """DT_RUNPATH as written."""
    interpreter: str | None = None
    """Loader of a program, `/lib64/ld-linux-x86-64.so.2`."""
    wanted: tuple[tuple[str, str], ...] = ()
    """Required symbol versions, each after the library that must provide it: `("libc.so.6", "GLIBC_2.28")`."""
    provided: frozenset[str] = frozenset()
    """Symbol versions that it provides."""
    jit: frozenset[str] = frozenset()
    """Symbols of libnvJitLink that it defines or requires, `__nvJitLinkComplete_12_4`: their names contain the release."""


def read_elf(read: Read, *, versions: bool = False) -> Elf:
    """Read what concerns the loader; ElfError for anything but a complete ELF file with a dynamic section.

    Symbol versions are optional, since they double the time.
    """
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError

    try:
        return _File(_Stream(read), versions=versions).elf()
    except (ELFError, ConstructError):
        raise ElfError("the file ends too early") from None
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:  # pyelftools on a hostile file
        raise ElfError(f"its tables are invalid ({type(error).__name__})") from None


def read_elf_in(stream: IO[bytes]) -> Elf:
    """Read a file in a seekable stream, including symbol versions."""

    def read(offset: int, size: int) -> bytes:
        stream.seek(offset)
        return stream.read(size)

    return read_elf(read, versions=True)


class _Stream:
    """Binary stream over `Read`, fetched by pages, with a limit that no valid library reaches."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}
        self._position = 0

    def seek(self, offset: int) -> int:
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        number, at = divmod(self._position, _PAGE)
        if at + size <= _PAGE:  # nearly always: a few bytes of a table
            content = self._page(number)[at : at + size]
        else:
            pages = b"".join(self._page(page) for page in range(number, (self._position + size - 1) // _PAGE + 1))
            content = pages[at : at + size]
        self._position += len(content)
        return content

    def _page(self, number: int) -> bytes:
        known = self._pages.get(number)
        if known is None:
            if len(self._pages) >= _MOST_PAGES:
                raise ElfError("its tables are scattered over too many pages")
            known = (self._read(number * _PAGE, _PAGE) if 0 <= number < 1 << 50 else None) or b""
            self._pages[number] = known
        return known


@lru_cache(maxsize=32)
def _structures(little_endian: bool, bits: int, *kind: Any) -> Any:  # noqa: FBT001 - a key
    """Structures for one kind of file, cached since creating them takes as long as reading a file."""
    from elftools.elf.structs import ELFStructs

    found = ELFStructs(little_endian=little_endian, elfclass=bits)
    found.create_basic_structs()
    if kind:
        found.create_advanced_structs(*kind)
    return found


class _File:
    """Parser of one file."""

    def __init__(self, stream: Any, *, versions: bool) -> None:
        from elftools.common.utils import parse_cstring_from_stream, struct_parse

        self._stream = stream
        self._parse = struct_parse
        self._cstring = parse_cstring_from_stream
        self._letters = 0
        self._with_versions = versions
        identity = stream.read(7)
        if len(identity) < 4:
            raise ElfError("the file ends too early")
        if identity[:4] != b"\x7fELF":
            raise ElfError("it is not an ELF file")
        self.bits = {1: 32, 2: 64}.get((identity + bytes(3))[4], 0)
        if len(identity) == 7 and (not self.bits or identity[5] not in (1, 2) or identity[6] != 1):
            raise ElfError("its header is invalid")
        layout = identity[5:6] == b"\x01", self.bits or 64
        self._header = struct_parse(_structures(*layout).Elf_Ehdr, stream, 0)
        self._structs = _structures(*layout, self._header.e_type, self._header.e_machine, self._header.e_ident.EI_OSABI)

    def elf(self) -> Elf:
        """Parse headers and dynamic section."""
        header = self._header
        if header.e_type not in ("ET_EXEC", "ET_DYN"):
            raise ElfError("it is neither a library nor a program")
        segments = list(self._segments())
        machine = str(header.e_machine)
        arch = _ARCHITECTURES.get(machine, machine.removeprefix("EM_").lower())
        bare = Elf(
            arch=arch if machine.startswith("EM_") else f"machine {machine}",
            bits=self.bits,
            interpreter=next((self._text(segment.p_offset) for segment in segments if segment.p_type == "PT_INTERP"), None),
        )
        dynamic = next((segment for segment in segments if segment.p_type == "PT_DYNAMIC"), None)
        if dynamic is None:
            if header.e_type == "ET_EXEC":  # linked statically
                return bare
            raise ElfError("it has no dynamic section: an object file, or only the debug information of a library")
        return self._with_tags(bare, segments, dynamic.p_offset)

    def _segments(self) -> Iterator[Any]:
        header, size = self._header, self._structs.Elf_Phdr.sizeof()
        if not 0 < header.e_phnum <= _MOST_HEADERS or header.e_phentsize != size:
            raise ElfError("its program headers are invalid")
        for index in range(header.e_phnum):
            yield self._parse(self._structs.Elf_Phdr, self._stream, header.e_phoff + index * size)

    def _with_tags(self, bare: Elf, segments: list[Any], offset: int) -> Elf:
        tags: dict[str, list[int]] = {}
        size = self._structs.Elf_Dyn.sizeof()
        for index in range(_MOST_TAGS):
            entry = self._parse(self._structs.Elf_Dyn, self._stream, offset + index * size)
            if entry.d_tag == "DT_NULL":
                break
            tags.setdefault(str(entry.d_tag), []).append(entry.d_val)
        base = tags.get("DT_STRTAB", [0])[0]

        def texts(tag: str) -> tuple[str, ...]:
            return tuple(self._text(_offset(segments, base + at)) for at in tags.get(tag, []))

        def text(tag: str) -> str | None:
            return next(iter(texts(tag)), None)

        def versions(kind: str) -> Iterator[tuple[str, str]]:
            start = tags.get(f"DT_{kind.upper()}", [0])[0] if self._with_versions else 0
            if start:
                yield from self._versions(kind, _offset(segments, start), lambda at: self._text(_offset(segments, base + at)))

        links = any(name.startswith("libnvJitLink.") for tag in ("DT_SONAME", "DT_NEEDED") for name in texts(tag))
        return replace(
            bare,
            soname=text("DT_SONAME"),
            needed=texts("DT_NEEDED"),
            rpath=text("DT_RPATH"),
            runpath=text("DT_RUNPATH"),
            wanted=tuple(versions("verneed")),
            provided=frozenset(name for _, name in versions("verdef")),
            jit=self._jit(_offset(segments, base), tags.get("DT_STRSZ", [0])[0]) if self._with_versions and links else frozenset(),
        )

    def _jit(self, offset: int, size: int) -> frozenset[str]:
        self._stream.seek(offset)
        return frozenset(name.decode("ascii") for name in re.findall(_JIT, self._stream.read(min(size, _MOST_NAMES))))

    def _versions(self, kind: str, offset: int, text: Callable[[int], str]) -> Iterator[tuple[str, str]]:
        """Yield symbol versions with the library that must provide them, without weak ones; the file's own with an empty name."""
        entry, auxiliary, prefix = (
            (self._structs.Elf_Verneed, self._structs.Elf_Vernaux, "vn")
            if kind == "verneed"
            else (self._structs.Elf_Verdef, self._structs.Elf_Verdaux, "vd")
        )
        left = _MOST_VERSIONS
        while left:
            head = self._parse(entry, self._stream, offset)
            file = text(head.vn_file) if prefix == "vn" else ""
            at = offset + head[f"{prefix}_aux"]
            for number in range(min(head[f"{prefix}_cnt"], left)):
                left -= 1
                row = self._parse(auxiliary, self._stream, at)
                if prefix == "vn" and not row.vna_flags & _WEAK:
                    yield file, text(row.vna_name)
                elif prefix == "vd" and number == 0:  # the others are its predecessors
                    yield file, text(row.vda_name)
                at += row[f"{prefix}a_next"]
            if not head[f"{prefix}_next"]:
                return
            offset += head[f"{prefix}_next"]
            left = max(left - 1, 0)
        raise ElfError("it has more symbol versions than any real library")

    def _text(self, offset: int) -> str:
        found = self._cstring(self._stream, offset)
        if found is None or len(found) > _LONGEST_TEXT:
            raise ElfError("a name has no end")
        self._letters += len(found)
        if self._letters > _MOST_LETTERS:
            raise ElfError("it has more names than any real library")
        return found.decode("utf-8", "surrogateescape")


def _offset(segments: list[Any], address: int) -> int:
    """File offset of an address; ElfError if it is not in the file."""
    for segment in segments:
        if segment.p_type == "PT_LOAD" and segment.p_vaddr <= address < segment.p_vaddr + segment.p_filesz:
            return int(segment.p_offset + address - segment.p_vaddr)
    raise ElfError("an address is outside of the file")
