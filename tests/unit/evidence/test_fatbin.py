"""GPU code in fat binaries: written by hand, by nvcc where it is to be had, and damaged."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.evidence.binary import read_binary
from cudnn_resolve.evidence.fatbin import FatBinaries, read_fat_binaries
from tests.elf_writer import CUBIN, FAMILY, PTX, SPECIFIC, ZSTD, container, entry, with_section


def read(content: bytes, offset: int = 0) -> FatBinaries:
    return read_fat_binaries(io.BytesIO(content), offset, len(content) - offset)


def code(found: FatBinaries) -> list[str]:
    return [str(target) for target in sorted(found.code)]


def test_machine_code_and_intermediate_code_with_their_suffixes() -> None:
    found = read(container(entry(CUBIN, 75), entry(CUBIN, 90, SPECIFIC), entry(CUBIN, 100, FAMILY), entry(PTX, 120, ZSTD)))

    assert code(found) == ["sm_75", "sm_90a", "sm_100f", "compute_120"]


def test_containers_follow_one_another_with_padding() -> None:
    found = read(bytes(8) + container(entry(CUBIN, 75)) + bytes(24) + container(entry(CUBIN, 86)) + bytes(4000), offset=8)

    assert code(found) == ["sm_75", "sm_86"]


def test_an_uncompressed_cubin_names_its_toolkit() -> None:
    note = b"\x7fELF....Cuda compilation tools, release 12.8, V12.8.93\0"

    assert str(read(container(entry(CUBIN, 75, payload=note))).cuda) == "12.8"
    assert read(container(entry(CUBIN, 75, ZSTD, note))).cuda is None
    assert read(container(entry(PTX, 75, payload=note))).cuda is None


@pytest.mark.parametrize(
    "damaged",
    [
        container(entry(CUBIN, 75))[:-10],
        b"garbage that is no container at all....",
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 62),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0),
    ],
)
def test_what_makes_no_sense_is_not_read(damaged: bytes) -> None:
    assert code(read(damaged)) == []


@given(st.binary(max_size=400), st.integers(0, 300))
def test_hostile_bytes_do_no_harm(noise: bytes, at: int) -> None:
    whole = container(entry(CUBIN, 75), entry(PTX, 90), entry(CUBIN, 86, payload=b"x" * 40))

    assert read(whole[:at] + noise + whole[at:]).code is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not there")
@pytest.mark.parametrize("more", [(), pytest.param(("-rdc=true",), marks=pytest.mark.kill)])  # nvcc takes seconds
def test_what_nvcc_was_told(tmp_path: Path, more: tuple[str, ...]) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text("__global__ void twice(float *a) { a[threadIdx.x] *= 2; }\n")
    wanted = {"sm_75", "sm_90a", "compute_120"}
    words = [f"-gencode=arch=compute_{name.partition('_')[2]},code={name}" for name in sorted(wanted)]
    made = tmp_path / "kernel.so"
    argv = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", *more, *words, "-o", str(made), str(source)]
    subprocess.run(argv, check=True, capture_output=True)
    with made.open("rb") as stream:
        found = read_binary(stream, "kernel.so")
    assert {str(target) for target in found.code} == wanted
    assert more or found.cuda is not None


def test_a_library_is_not_made_for_the_gpus_of_a_few_pieces_of_code() -> None:
    many = [container(entry(CUBIN, 75), entry(CUBIN, 86), *([entry(CUBIN, 90, SPECIFIC)] if not number else [])) for number in range(20)]
    content = b"".join(many) + container(entry(CUBIN, 52), entry(PTX, 70))
    found = read_binary(io.BytesIO(with_section(b".nv_fatbin", 0, len(content), content)), "libphi.so")

    assert [str(target) for target in found.code] == ["sm_52", "sm_75", "sm_86", "sm_90a", "compute_70"]
    assert [str(target) for target in found.strays] == ["sm_52", "compute_70"]
