from __future__ import annotations

import pytest

from cudnn_resolve.probe.toolkit import (
    apt_line,
    conda_part,
    directory_version,
    parse_header,
    parse_nvcc,
    parse_nvcc_dryrun,
    parse_version_json,
    parse_version_text,
)


def test_version_json_gives_the_release() -> None:
    text = '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "cuda_cudart": {"version": "12.4.127"}}'

    assert str(parse_version_json(text)) == "12.4.1"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"cuda": 1}', '{"cuda": {"version": 12}}', '{"cuda": {"version": "x"}}', "[" * 9999]
)
def test_a_broken_version_json_gives_none(text: str) -> None:
    assert parse_version_json(text) is None


def test_version_txt_gives_the_line() -> None:
    assert str(parse_version_text("CUDA Version 10.1.243\nCUDA Patch Version 10.1.1\n")) == "10.1"
    assert parse_version_text("CUDA") is None


def test_the_header_gives_the_line() -> None:
    assert str(parse_header("/* */\n#define CUDART_VERSION  12040\n")) == "12.4"
    assert str(parse_header("#define CUDA_VERSION 11080\n")) == "11.8"
    assert parse_header("#define CUDART_VERSION 1\n") is None


def test_nvcc_gives_the_line() -> None:
    assert str(parse_nvcc("Cuda compilation tools, release 12.4, V12.4.131\n")) == "12.4"
    assert parse_nvcc("nvcc: command not found") is None


def test_a_dry_run_tells_where_the_compiler_really_is() -> None:
    text = "#$ _HERE_=/usr/local/cuda-12.4/bin\n#$ gcc -D__CUDACC_VER_MAJOR__=12 -D__CUDACC_VER_MINOR__=4 x\n"

    home, version = parse_nvcc_dryrun(text)

    assert (home, str(version)) == ("/usr/local/cuda-12.4/bin", "12.4")
    assert parse_nvcc_dryrun("nvcc fatal: no") == (None, None)


def test_a_directory_may_carry_its_line() -> None:
    assert str(directory_version("/usr/local/cuda-12.4")) == "12.4"
    assert directory_version("/usr/local/cuda") is None


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("cuda-cudart-12-4", "12.4"),
        ("cuda-toolkit-9-0", "9.0"),
        ("cuda-libraries-13-0", "13.0"),
        ("cuda-keyring", None),
        ("cuda-nvcc-12-4", None),
    ],
)
def test_apt_packages_carry_their_line(package: str, line: str | None) -> None:
    assert apt_line(package) == line


def test_conda_files_carry_name_and_version() -> None:
    found = conda_part("cuda-cudart-12.4.127-he02047a_0.json")

    assert found is not None
    assert (found[0], str(found[1])) == ("cuda-cudart", "12.4.127")
    assert conda_part("cudatoolkit-11.8.0-h6a678d5_0.json") is not None
    assert conda_part("numpy-1.26.0-py311_0.json") is None
    assert conda_part("cuda-cudart-dev-12.4.127-0.json") is None
