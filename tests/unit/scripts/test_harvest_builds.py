"""What the wheels of frameworks say of their builds becomes a table, which `matrix check` compares with the rows."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harvest_builds import main

from tests.elf_writer import with_section
from tests.unit.scripts.loopback_index import LoopbackIndex, serving

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = """
[[group]]
packages = ["toy"]
states = 'toy/version\\.py'
code = 'toy/lib/.*\\.so'
beside = 'toy/lib/other\\.so'
"""
FATBIN = bytes.fromhex("50ed55ba010010004000000000000000") + bytes.fromhex("02000101400000000000000000000000") + bytes(12)


def library(architecture: int) -> bytes:
    content = FATBIN + architecture.to_bytes(4, "little") + bytes(32)
    return with_section(b".nv_fatbin", 0, len(content), content)


def wheel(version: str, members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        pin = "Requires-Dist: nvidia-cudnn-cu12==9.1.0.70; platform_machine == 'x86_64'"
        said = f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n{pin}\n"
        for name, data in {**members, f"toy-{version}.dist-info/METADATA": said.encode()}.items():
            archive.writestr(name, data)
    return content.getvalue()


@pytest.fixture
def index() -> Iterator[LoopbackIndex]:
    with serving(LoopbackIndex()) as running:
        yield running


def harvest(folder: Path, index: LoopbackIndex, *options: str, code: int = 0) -> list[dict[str, object]]:
    (folder / "list.toml").write_text(LIST)
    places = ("--list", str(folder / "list.toml"), "--out", str(folder), "--cache", str(folder / "cache"), "--index-url", index.url)
    assert main([*places, *options]) == code
    return list(tomllib.loads((folder / "toy.toml").read_text())["build"]) if (folder / "toy.toml").exists() else []


def fill(index: LoopbackIndex) -> None:
    states = {"toy/version.py": b"cuda: Optional[str] = '12.4'\n"}
    for version in ("1.0", "1.1"):
        for arch, capability in (("x86_64", 75), ("aarch64", 90)):
            members = {**states, "toy/lib/own.so": library(capability), "toy/lib/other.so": library(50)}
            index.add(f"toy-{version}-cp311-cp311-manylinux_2_28_{arch}.whl", data=wheel(version, members))


@pytest.mark.slow
def test_cuda_cudnn_and_code_of_each_architecture(tmp_path: Path, index: LoopbackIndex) -> None:
    fill(index)

    assert harvest(tmp_path, index) == [
        {"version": ["1.0", "1.1"], "arch": ["x86_64"], "cuda": "12.4", "cudnn": "9.1.0.70", "code": ["sm_75"]},
        {"version": ["1.0", "1.1"], "arch": ["aarch64"], "cuda": "12.4", "code": ["sm_90"]},
    ]


def test_cudnn_as_the_data_of_cupy_say_it(tmp_path: Path, index: LoopbackIndex) -> None:
    said = b'{"cuda": "11.2", "nccl": {"version": "2.8.4"}, "cudnn": {"version": "8.4.0", "filenames": ["libcudnn.so.8.4.0"]}}'
    index.add("toy-1.0-cp311-cp311-manylinux_2_28_aarch64.whl", data=wheel("1.0", {"toy/version.py": said}))

    assert harvest(tmp_path, index) == [{"version": ["1.0"], "arch": ["aarch64"], "cuda": "11.2", "cudnn": "8.4.0"}]


@pytest.mark.slow
def test_what_was_read_is_not_read_again(tmp_path: Path, index: LoopbackIndex) -> None:
    fill(index)
    first = harvest(tmp_path, index, "--stated")
    assert [one.get("code") for one in first] == [None, None]
    whole = harvest(tmp_path, index, "--newest", "1")
    assert [one.get("code") for one in whole if one["version"] == ["1.1"]] == [["sm_75"], ["sm_90"]]
    asked = len(index.asked)

    assert harvest(tmp_path, index, "--stated") == whole
    assert len(index.asked) == asked + 1  # the page


@pytest.mark.slow
def test_what_the_table_tells_needs_no_cache(tmp_path: Path, index: LoopbackIndex) -> None:
    fill(index)
    harvest(tmp_path, index, "--stated")
    (tmp_path / "toy.toml").write_text(
        (tmp_path / "toy.toml").read_text().replace('cudnn = "9.1.0.70"', 'cudnn = "9.1.0.70", code = ["sm_80"]')
    )
    (tmp_path / "cache").rename(tmp_path / "old")
    asked = len(index.asked)

    assert [one["code"] for one in harvest(tmp_path, index, "--new")] == [["sm_80"], ["sm_90"]]
    wheels = {path for path, _, _ in index.asked[asked:] if ".whl" in path}
    assert wheels
    assert not any("x86_64" in path for path in wheels)


def test_a_wheel_that_cannot_be_read_leaves_the_table_as_it_is(tmp_path: Path, index: LoopbackIndex) -> None:
    index.add("toy-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", data=b"no archive at all")

    assert harvest(tmp_path, index, code=2) == []
