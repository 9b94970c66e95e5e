from __future__ import annotations

import contextlib
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cudnn_resolve.evidence.elf import Elf, ElfError, read_elf
from tests.elf_writer import BASE, write_elf

FULL: dict[str, Any] = {
    "soname": "libcudnn_ops.so.9",
    "needed": ("libcudnn_graph.so.9", "libz.so.1", "libc.so.6"),
    "runpath": "$ORIGIN:$ORIGIN/../../cublas/lib",
}


def read(content: bytes) -> Elf:
    return read_elf(lambda offset, size: content[offset : offset + size])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_everything_that_the_loader_reads(bits: int, order: str) -> None:
    elf = read(write_elf(**FULL, bits=bits, order=order, interpreter="/lib64/ld-linux-x86-64.so.2"))

    assert elf == Elf(
        arch="x86_64",
        bits=bits,
        soname="libcudnn_ops.so.9",
        needed=("libcudnn_graph.so.9", "libz.so.1", "libc.so.6"),
        runpath="$ORIGIN:$ORIGIN/../../cublas/lib",
        interpreter="/lib64/ld-linux-x86-64.so.2",
    )


def test_rpath() -> None:
    elf = read(write_elf(rpath="/opt/lib"))

    assert (elf.rpath, elf.runpath, elf.soname) == ("/opt/lib", None, None)


@pytest.mark.parametrize(("machine", "arch"), [(62, "x86_64"), (183, "aarch64"), (40, "arm"), (8, "mips"), (4711, "machine 4711")])
def test_architectures(machine: int, arch: str) -> None:
    assert read(write_elf("a", machine=machine)).arch == arch


def test_a_large_file_is_not_read_as_a_whole() -> None:
    content = write_elf(**FULL, padding=64 << 20)
    pieces: list[int] = []

    def counted(offset: int, size: int) -> bytes:
        pieces.append(size)
        return content[offset : offset + size]

    assert read_elf(counted).soname == "libcudnn_ops.so.9"
    assert sum(pieces) <= 5 * 4096


def test_the_running_interpreter() -> None:
    with open(sys.executable, "rb") as file:
        content = file.read()

    elf = read(content)

    assert elf.bits == 64
    assert elf.interpreter is not None
    assert "/ld-" in elf.interpreter
    assert any(name.startswith("libc.") for name in elf.needed)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "ends too early"),
        (b"\x7fELF", "ends too early"),
        (b"/* GNU ld script */ INPUT(libx)", "not an ELF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "not an ELF file"),
        (write_elf("a")[:100], "ends too early"),
        (write_elf("a")[:-20], "ends too early"),
        (write_elf("a", kind=1), "neither a library nor a program"),
        (b"\x7fELF\x07\x01\x01" + bytes(60), "its header is invalid"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1) + bytes(60), "program headers"),
    ],
)
def test_what_no_loader_could_use(content: bytes, words: str) -> None:
    with pytest.raises(ElfError, match=words):
        read(content)


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(ElfError, match="ends too early"):
        read_elf(lambda _offset, _size: None)


def patched(content: bytes, tag: int, value: int) -> bytes:
    """The file with another value in one tag."""
    at = next(index for index in range(len(content) - 16) if struct.unpack_from("<q", content, index)[0] == tag)
    return content[: at + 8] + struct.pack("<Q", value) + content[at + 16 :]


@pytest.mark.parametrize(
    ("tag", "value", "words"),
    [
        (5, 0x7FFF0000, "outside of the file"),
        (14, 1 << 40, "outside of the file"),
        (29, BASE, "outside of the file"),
    ],
)
def test_addresses_that_lead_nowhere(tag: int, value: int, words: str) -> None:
    with pytest.raises(ElfError, match=words):
        read(patched(write_elf(**FULL), tag, value))


def test_names_beyond_any_real_length() -> None:
    with pytest.raises(ElfError, match="a name has no end"):
        read(write_elf("a" * 40000))
    with pytest.raises(ElfError, match="more names than any real library"):
        read(write_elf(needed=["n" * 30000] * 60))


WHOLE = write_elf(**FULL, interpreter="/lib64/ld-linux-x86-64.so.2")


@given(
    changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8)), max_size=6),
    cut=st.integers(0, len(WHOLE)) | st.just(len(WHOLE)),
)
@example(changes=[(56, b"\xff\xff")], cut=len(WHOLE))
@example(changes=[(32, b"\xff" * 8)], cut=len(WHOLE))
def test_a_damaged_file_gives_a_value_or_an_elf_error(changes: list[tuple[int, bytes]], cut: int) -> None:
    """Whatever the bytes are, nothing else is raised, and never more than 4 MiB are read."""
    content = bytearray(WHOLE[:cut])
    for at, piece in changes:
        content[at : at + len(piece)] = piece
    total = 0

    def counted(offset: int, size: int) -> bytes:
        nonlocal total
        total += size
        return bytes(content[offset : offset + size])

    try:
        elf = read_elf(counted)
    except ElfError:
        elf = None
    assert elf is None or all(isinstance(name, str) for name in elf.needed)
    assert total <= 4 << 20


@given(start=st.sampled_from([b"", b"\x7fELF\x02\x01\x01"]), content=st.binary(max_size=400))
def test_any_bytes_give_a_value_or_an_elf_error(start: bytes, content: bytes) -> None:
    """A file of anything, with and without the magic number."""
    try:
        elf = read(start + content)
    except ElfError:
        return
    assert elf.bits == 64


@pytest.mark.slow
def test_symbol_versions_and_names_of_libnvjitlink_as_the_tools_see_them(tmp_path: Path) -> None:
    (tmp_path / "made.c").write_text("#include <math.h>\nint __nvJitLinkComplete_12_4(double x) { return (int)pow(x, 2.5); }\n")
    (tmp_path / "made.map").write_text("MADE_1.0 { global: *; };\nMADE_1.1 { } MADE_1.0;\n")
    library = tmp_path / "libmade.so"
    script = f"-Wl,--version-script={tmp_path}/made.map"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", script, "-Wl,-soname,libnvJitLink.so.12", "-o", library, tmp_path / "made.c", "-lm"], check=True
    )
    content = library.read_bytes()

    found = read_elf(lambda offset, size: content[offset : offset + size], versions=True)

    told = subprocess.run(["readelf", "-VW", library], check=True, capture_output=True, text=True).stdout
    wanted = set(re.findall(r"Name: (\S+)\s+Flags: none", told))
    assert {version for _, version in found.wanted} == wanted != set()
    assert {file for file, _ in found.wanted} <= {"libc.so.6", "libm.so.6"}
    assert found.provided >= {"MADE_1.0", "MADE_1.1"}
    assert found.jit == {"__nvJitLinkComplete_12_4"}
    assert read(content).wanted == ()


@given(st.binary(max_size=60), st.integers(0, 4000))
def test_damaged_versions_do_no_harm(noise: bytes, at: int) -> None:
    with contextlib.suppress(ElfError):
        whole = Path("/bin/sh").read_bytes()
        damaged = whole[: at * 8] + noise + whole[at * 8 + len(noise) :]
        read_elf(lambda offset, size: damaged[offset : offset + size], versions=True)
