"""Libraries by the dozen: one is compiled, and what the loader reads in it is written over in copies of it."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.native.build import c_compiler

HERE = Path(__file__).resolve().parent

RPATH, DEBUG, RUNPATH = 15, 21, 29
PLACES = 3
"""How many needs a template has room for."""
ROOM = 800
"""Letters that a name or a search path may have."""


def compile_c(source: str, output: Path, *options: str) -> Path:
    """Compiles one source of this directory; the options go after it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    argv = [c_compiler(), "-O0", "-Wall", "-Werror", "-o", str(output), str(HERE / source), *options, "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return output


def compile_library(source: str, output: Path, soname: str | None, *options: str) -> Path:
    """Compiles a shared library."""
    names = [f"-Wl,-soname,{soname}"] if soname else []
    return compile_c(source, output, "-shared", "-fPIC", *names, *options)


class Template:
    """A compiled file (64 bit, little endian) with placeholders in what the loader reads."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def write(self, output: Path, *, soname: str | None = None, needed: Sequence[str] = (), tag: int | None = None, path: str = "") -> Path:
        """Writes a file with these tags; `tag` is RPATH or RUNPATH, None for neither."""
        content = bytearray(self.content)
        for at, kind, value in _tags(self.content):
            word = self._text(value)
            if word.startswith("placeholder-need-"):
                index = int(word.removeprefix("placeholder-need-")[0])
                self._write_tag(content, at, needed[index] if index < len(needed) else None)
            elif word.startswith("placeholder-soname"):
                self._write_tag(content, at, soname)
            elif kind == RUNPATH:
                struct.pack_into("<q", content, at, DEBUG if tag is None else tag)
                self._write_tag(content, at, path)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(content)
        output.chmod(0o755)
        return output

    def _write_tag(self, content: bytearray, at: int, new: str | None) -> None:
        """Writes over the text that a tag leads to; None turns it into a tag that the loader passes over."""
        if new is None:
            struct.pack_into("<qQ", content, at, DEBUG, 0)
            return
        raw = os.fsencode(new)
        assert len(raw) <= ROOM, f"{new} is longer than {ROOM}"
        start = _strings(self.content) + struct.unpack_from("<Q", content, at + 8)[0]
        content[start : start + ROOM] = raw.ljust(ROOM, b"\0")

    def _text(self, value: int) -> str:
        at = _strings(self.content) + value
        return self.content[at : self.content.find(b"\0", at)].decode("ascii", "replace") if value < len(self.content) else ""


def templates(directory: Path) -> tuple[Template, Template]:
    """A program and a library to be written over."""
    names = [f"placeholder-need-{index}-".ljust(ROOM, "x") for index in range(PLACES)]
    needs = [str(compile_library("template.c", directory / f"need{index}.so", name)) for index, name in enumerate(names)]
    path = f"-Wl,--enable-new-dtags,-rpath,/{'r' * (ROOM - 1)}"
    soname = "placeholder-soname-".ljust(ROOM, "x")
    made = compile_library("template.c", directory / "template.so", soname, "-Wl,--no-as-needed", *needs, path)
    program = compile_c("opener.c", directory / "opener", path)
    return Template(program.read_bytes()), Template(made.read_bytes())


def _tags(content: bytes) -> list[tuple[int, int, int]]:
    """Offset in the file, tag and value of each entry of the dynamic part."""
    found: list[tuple[int, int, int]] = []
    at = next(offset for kind, offset, _, _ in _segments(content) if kind == 2)
    while True:
        tag, value = struct.unpack_from("<qQ", content, at)
        if tag == 0:
            return found
        found.append((at, tag, value))
        at += 16


def _strings(content: bytes) -> int:
    """Offset of the string table in the file."""
    address = next(value for _, tag, value in _tags(content) if tag == 5)
    return next(
        offset + address - virtual
        for kind, offset, virtual, size in _segments(content)
        if kind == 1 and virtual <= address < virtual + size
    )


def _segments(content: bytes) -> list[tuple[int, int, int, int]]:
    """Kind, offset, address and size in the file of each segment."""
    (count,) = struct.unpack_from("<H", content, 56)
    rows = (struct.unpack_from("<IIQQQQQQ", content, 64 + index * 56) for index in range(count))
    return [(kind, offset, virtual, size) for kind, _, offset, virtual, _, size, _, _ in rows]
