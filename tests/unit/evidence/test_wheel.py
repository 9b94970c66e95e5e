"""Wheels as evidence: real libraries made by gcc, build strings, and archives that lie."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_resolve.evidence.binary import read_binary
from cudnn_resolve.evidence.elf import ElfError
from cudnn_resolve.evidence.wheel import WheelDamage, read_wheel
from tests.elf_writer import with_section, write_elf
from tests.examples import examples

SOURCE = 'const char *wanted = "libcudnn.so.9"; extern int other(void); int mine(void) { return other(); }\n'


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """`libother.so.2`, and `_C.so` that needs it and the C library, with a search path."""
    root = tmp_path_factory.mktemp("libraries")
    (root / "other.c").write_text("#include <math.h>\nint other(void) { volatile double x = 3; return (int)pow(2.5, x); }\n")
    (root / "mine.c").write_text(SOURCE)
    gcc = ["gcc", "-shared", "-fPIC"]
    subprocess.run([*gcc, "-o", root / "libother.so.2", "-Wl,-soname,libother.so.2", root / "other.c", "-lm"], check=True)
    search = "-Wl,-rpath,$ORIGIN/../other.libs:/opt/lib"
    subprocess.run([*gcc, "-o", root / "_C.so", search, "-Wl,--enable-new-dtags", root / "mine.c", root / "libother.so.2"], check=True)
    return {name: (root / name).read_bytes() for name in ("libother.so.2", "_C.so")}


def wheel(files: Mapping[str, bytes | str]) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made


def test_a_library_as_readelf_sees_it(libraries: dict[str, bytes], tmp_path: Path) -> None:
    found = read_binary(io.BytesIO(libraries["_C.so"]), "sight/_C.so")

    (tmp_path / "_C.so").write_bytes(libraries["_C.so"])
    told = subprocess.run(["readelf", "-dVW", tmp_path / "_C.so"], check=True, capture_output=True, text=True).stdout
    assert found.needed == tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", told))


def test_a_wheel_brings_what_it_holds_under_the_name_that_is_searched(libraries: dict[str, bytes]) -> None:
    needing = read_wheel(wheel({"sight/_C.so": libraries["_C.so"]}), io.BytesIO)
    whole = read_wheel(wheel({"sight/_C.so": libraries["_C.so"], "other.libs/libother.so.2": libraries["libother.so.2"]}), io.BytesIO)
    renamed = read_wheel(wheel({"sight/_C.so": libraries["_C.so"], "x.libs/libother.4711.so.2": libraries["libother.so.2"]}), io.BytesIO)

    assert "libother.so.2" in needing.needed
    assert "libother.so.2" not in whole.needed
    assert "libother.so.2" in renamed.needed  # its soname says libother.so.2, and no search finds it by that


@pytest.mark.parametrize(
    ("name", "text", "cuda"),
    [
        ("sight/version.py", "__version__ = '0.26.0+cu130'\n", "13.0"),
        ("sight/version.py", "cuda = '12.4'\n", "12.4"),
        ("sight/cpp_lib.json", '{"version": {"cuda": 1208, "torch": "2.10.0+cu128"}}', "12.8"),
        ("sight/version.py", "__version__ = '1.0'\n", None),
        ("sight/_version.py", "old = '1+cu118'\nnew = '2+cu121'\n", None),
        ("sight/other.py", "__version__ = '0.26.0+cu130'\n", None),
    ],
)
def test_build_strings(name: str, text: str, cuda: str | None) -> None:
    found = read_wheel(wheel({name: text}), io.BytesIO).cuda

    assert (str(found) if found else None) == cuda


def test_code_that_compares_lines() -> None:
    compares = "        if ta_version != t_version:\n            raise RuntimeError\n"

    assert read_wheel(wheel({"audio/_extension/utils.py": compares}), io.BytesIO).same_line
    assert not read_wheel(wheel({"audio/extension.py": "if t_major != tv_major:\n"}), io.BytesIO).same_line


def test_a_damaged_library_is_named_and_the_rest_is_read(libraries: dict[str, bytes]) -> None:
    found = read_wheel(wheel({"a/broken.so": b"\x7fELF" + bytes(40), "a/_C.so": libraries["_C.so"], "a/script.so": "INPUT(x)"}), io.BytesIO)

    assert [one.path for one in found.binaries] == ["a/_C.so"]
    assert found.unread[0].startswith("a/broken.so: ")
    assert len(found.unread) == 1


def test_what_is_no_wheel_is_refused() -> None:
    with pytest.raises(WheelDamage):
        read_wheel(io.BytesIO(b"no archive"), io.BytesIO)


def test_a_member_longer_than_the_directory_says(libraries: dict[str, bytes]) -> None:
    made = wheel({"a/_C.so": libraries["_C.so"]})
    content = bytearray(made.getvalue())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = (10).to_bytes(4, "little")  # its size in the directory

    try:
        found = read_wheel(io.BytesIO(bytes(content)), io.BytesIO)
    except WheelDamage:
        return
    assert not found.binaries


@settings(max_examples=examples(60))
@given(st.data())
def test_a_flipped_byte_does_no_harm(libraries: dict[str, bytes], data: st.DataObject) -> None:
    content = bytearray(libraries["_C.so"])
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(ElfError):
        assert isinstance(read_binary(io.BytesIO(bytes(content)), "a.so").needed, tuple)


def test_memory_is_bounded_by_a_block(libraries: dict[str, bytes]) -> None:
    class Counted(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            Counted.largest = max(Counted.largest, len(found))
            return found

    read_binary(Counted(libraries["_C.so"] + bytes(32 << 20)), "a.so")
    assert Counted.largest <= 1 << 20


def with_sections(count: int) -> bytes:
    """A library with a table of so many empty sections."""
    library = bytearray(write_elf(needed=("libcudart.so.12",)))
    table = len(library) + 8
    struct.pack_into("<Q", library, 0x28, table)
    struct.pack_into("<HHH", library, 0x3A, 64, count if count < 0xFF00 else 0, 1)
    library += bytes(8)
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, count, 0, 0, 0, 0)
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, table - 8, 8, 0, 0, 0, 0)
    return bytes(library) + first + names + bytes(64) * (min(count, 0xFF00) - 2)


def test_a_library_with_thousands_of_sections() -> None:
    """MXNet has a section for each function; a table beyond what a header can say is refused before it is walked through."""
    assert read_binary(io.BytesIO(with_sections(5000)), "libmxnet.so").needed == ("libcudart.so.12",)
    with pytest.raises(ElfError, match="more sections"):
        read_binary(io.BytesIO(with_sections(1 << 20)), "libmxnet.so")


HUGE = 1 << 62


@pytest.mark.parametrize("name", [b".rodata", b".nv_fatbin", b"__nv_relfatbin"])
@pytest.mark.parametrize(("offset", "size"), [(0, HUGE), (HUGE, 100), (HUGE, HUGE), (40, (1 << 64) - 41)])
def test_sections_larger_than_any_file(name: bytes, offset: int, size: int) -> None:
    class Counted(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1, /) -> bytes:
            Counted.reads += 1
            assert Counted.reads < 2000
            return super().read(size)

    with contextlib.suppress(ElfError):
        assert not read_binary(Counted(with_section(name, offset, size)), "a.so").code


def test_gpu_code_after_which_a_lying_section_goes_on() -> None:
    entry = struct.pack("<HHIQ12xI8xQ16x", 2, 257, 64, 0, 90, 0x11)
    content = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry

    found = read_binary(io.BytesIO(with_section(b".nv_fatbin", 0, HUGE, content)), "a.so")

    assert [str(one) for one in found.code] == ["sm_90"]


@pytest.mark.parametrize("content", [struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) * 4, struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0) * 5000])
def test_containers_of_nothing_end(content: bytes) -> None:
    assert not read_binary(io.BytesIO(with_section(b".nv_fatbin", 0, len(content), content)), "a.so").code


@pytest.mark.slow
def test_a_library_cut_off_anywhere(libraries: dict[str, bytes]) -> None:
    whole = libraries["_C.so"]
    for length in range(0, len(whole), max(1, len(whole) // 300)):
        with contextlib.suppress(ElfError):
            read_binary(io.BytesIO(whole[:length]), "a.so")
        with contextlib.suppress(WheelDamage):
            assert len(read_wheel(wheel({"a/_C.so": whole[:length]}), io.BytesIO).unread) <= 1


def test_a_wheel_that_unpacks_to_more_than_any_real_one(libraries: dict[str, bytes]) -> None:
    made = bytearray(wheel({f"a/_{number}.so": libraries["_C.so"] for number in range(12)}).getvalue())
    at = -1
    while (at := made.find(b"PK\x01\x02", at + 1)) >= 0:
        made[at + 24 : at + 28] = (0xF0000000).to_bytes(4, "little")  # the size of each in the directory: 4 GB

    def scratch() -> io.BytesIO:
        raise AssertionError("nothing of it is unpacked")

    with pytest.raises(WheelDamage, match="larger together"):
        read_wheel(io.BytesIO(bytes(made)), scratch)


@pytest.mark.slow
def test_a_library_that_is_packed_tighter_than_any_real_one() -> None:
    """A wheel of 80 KB must not fill the disk."""
    found = read_wheel(wheel({"a/bomb.so": b"\x7fELF" + bytes(80 << 20)}), io.BytesIO)

    assert found.unread == ("a/bomb.so: packed tighter than any real library",)
