from __future__ import annotations

import pytest

from cudnn_resolve.facts.cudnn_files import (
    LibraryName,
    Package,
    apt_package,
    companions_of,
    conda_package,
    openings_of,
    parse_header,
    parse_name,
    parts_of,
    wheel_package,
)
from cudnn_resolve.probe import payload_library
from cudnn_resolve.validation import payload_load
from cudnn_resolve.version import CudnnVersion


@pytest.mark.parametrize(
    ("file", "part", "numbers", "mangled"),
    [
        ("libcudnn.so", "", None, False),
        ("libcudnn.so.8", "", "8", False),
        ("libcudnn.so.8.9.7", "", "8.9.7", False),
        ("libcudnn_ops_infer.so.8", "ops_infer", "8", False),
        ("libcudnn_engines_precompiled.so.9.1.0", "engines_precompiled", "9.1.0", False),
        ("libcudnn-74a4c495.so.9.1.0", "", "9.1.0", True),
        ("libcudnn-3f9a723f.so.7", "", "7", True),
    ],
)
def test_names_of_libraries(file: str, part: str, numbers: str | None, mangled: bool) -> None:  # noqa: FBT001 - a column
    assert parse_name(file) == LibraryName(file=file, part=part, numbers=numbers, mangled=mangled)


@pytest.mark.parametrize("file", ["libcudnn.a", "libcudnn.so.x", "libcudnnfrontend.so", "xlibcudnn.so.8", "libcudnn.so.9.txt"])
def test_names_of_other_files(file: str) -> None:
    assert parse_name(file) is None


def test_soname_and_release_in_a_name() -> None:
    full, short, bare = parse_name("libcudnn.so.9.1.0"), parse_name("libcudnn.so.9"), parse_name("libcudnn.so")

    assert full is not None and short is not None and bare is not None  # noqa: PT018 - one thought
    assert (full.soname, short.soname, bare.soname) == (9, 9, None)
    assert (full.version, short.version, bare.version) == (CudnnVersion("9.1.0"), None, None)


@pytest.mark.parametrize(
    ("version", "count", "last"),
    [
        ("7.6.5", 0, ""),
        ("8.9.7", 6, "adv_train"),
        ("9.1.0", 7, "engines_runtime_compiled"),
        ("9.20.0", 7, "engines_runtime_compiled"),
        ("9.21.0", 8, "engines_tensor_ir"),
        ("9.22.0", 9, "ext"),
        ("9.28.0.42", 9, "ext"),
        ("9.99.0", 9, "ext"),
        ("10.0.0", 0, ""),
    ],
)
def test_parts_of_releases(version: str, count: int, last: str) -> None:
    parts = parts_of(CudnnVersion(version))

    assert len(parts) == count
    assert not last or parts[-1] == last


def test_the_jit_variant_has_no_compiled_engines() -> None:
    assert set(parts_of(CudnnVersion("9.8.0"))) - set(parts_of(CudnnVersion("9.8.0"), jit=True)) == {"engines_precompiled"}


def test_the_payloads_name_the_same_parts() -> None:
    """They run alone in the target's interpreter, so that each has to name the parts itself."""
    assert tuple(payload_library.CHECKS[8]) == payload_load.PARTS_8 == parts_of(CudnnVersion("8.9.7"))
    assert {*payload_library.CHECKS[9], *payload_load.ENGINES} <= {*parts_of(CudnnVersion("9.1.0"))}
    assert {
        major: [part.title().replace("_", "") for part in parts] for major, parts in payload_library.CHECKS.items()
    } == payload_load.CHECKS


def test_cudnn_9_tries_the_full_version_first() -> None:
    first, *rest = openings_of(CudnnVersion("9.1.0.70"))

    assert (first.by, first.part) == ("", "graph")
    assert first.names == ("libcudnn_graph.so.9.1.0", "libcudnn_graph.so.9.1", "libcudnn_graph.so.9", "libcudnn_graph.so")
    assert {one.part for one in rest if one.by == "graph"} == {"heuristic", "engines_precompiled", "engines_runtime_compiled"}


def test_cudnn_8_asks_by_the_soname_and_cudnn_7_is_one_library() -> None:
    assert openings_of(CudnnVersion("8.9.7"))[0].names == ("libcudnn_ops_infer.so.8",)
    assert openings_of(CudnnVersion("7.6.5")) == ()


def test_two_releases_look_for_a_part_that_they_do_not_bring() -> None:
    def unexpected(version: str) -> list[str]:
        return [one.part for one in openings_of(CudnnVersion(version)) if not one.expected]

    assert [unexpected(version) for version in ("9.18.0", "9.20.0", "9.21.0")] == [[], ["engines_tensor_ir"], []]


@pytest.mark.parametrize(
    ("version", "cuda", "names"),
    [
        ("9.1.0", 12, {"libnvrtc.so.12", "libcublasLt.so.12"}),
        ("8.9.7", 11, {"libcublas.so.11", "libcublasLt.so.11", "libnvrtc.so.11.2"}),
        ("8.0.5", 10, set()),
        ("7.6.5", 10, set()),
        ("9.1.0", None, set()),
    ],
)
def test_cuda_libraries_that_are_opened_when_needed(version: str, cuda: int | None, names: set[str]) -> None:
    assert {one.names[0] for one in companions_of(CudnnVersion(version), cuda)} == names


def test_headers() -> None:
    text = "#ifndef X\n#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n#define CUDNN_VERSION (CUDNN_MAJOR)\n"

    assert parse_header(text) == CudnnVersion("8.9.7")
    assert parse_header(text.replace("PATCHLEVEL", "OTHER")) is None
    assert parse_header("") is None


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("libcudnn8", "8.9.7.29-1+cuda12.2", ("8.9.7.29", 8, "12.2")),
        ("libcudnn7", "7.6.5.32-1+cuda10.2", ("7.6.5.32", 7, "10.2")),
        ("libcudnn9-cuda-12", "9.8.0.87-1", ("9.8.0.87", 9, "12")),
        ("libcudnn9-jit-cuda-13", "9.12.0.46-1", ("9.12.0.46", 9, "13")),
    ],
)
def test_apt_packages(name: str, version: str, found: tuple[str, int, str]) -> None:
    package = apt_package(name, version)

    assert package is not None
    assert (package.version.text, package.soname, package.cuda) == found
    assert package.jit == ("jit" in name)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libcudnn8-dev", "8.9.7.29-1+cuda12.2"),
        ("libcudnn9-headers-cuda-12", "9.8.0.87-1"),
        ("libcudnn8", "odd"),
        ("cudnn9-cuda-12-9", "9.8.0.87-1"),
    ],
)
def test_apt_packages_that_hold_no_library(name: str, version: str) -> None:
    assert apt_package(name, version) is None


@pytest.mark.parametrize(
    ("name", "version", "soname", "cuda"),
    [("nvidia-cudnn-cu12", "9.1.0.70", 9, "12"), ("nvidia-cudnn-cu117", "8.5.0.96", 8, "11.7"), ("nvidia-cudnn", "8.2.0.51", 8, None)],
)
def test_wheels(name: str, version: str, soname: int, cuda: str | None) -> None:
    assert wheel_package(name, version) == Package(name=name, version=CudnnVersion(version), soname=soname, cuda=cuda)


@pytest.mark.parametrize(
    ("name", "version"), [("nvidia-cudnn-frontend", "1.32.0"), ("nvidia-cublas-cu12", "12.4.5.8"), ("nvidia-cudnn-cu12", "odd")]
)
def test_other_wheels(name: str, version: str) -> None:
    assert wheel_package(name, version) is None


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("cudnn-8.9.7.29-hbc23b4c_3.json", ("cudnn", "8.9.7.29", None)),
        ("libcudnn-9.3.0.75-h62a6f1c_0.json", ("libcudnn", "9.3.0.75", None)),
        ("cudnn-7.6.5-cuda10.2_0.json", ("cudnn", "7.6.5", "10")),
        ("cudnn-frontend-1.0-0.json", None),
        ("python-3.11.4-0.json", None),
    ],
)
def test_conda_packages(file: str, found: tuple[str, str, str | None] | None) -> None:
    package = conda_package(file)

    assert (package and (package.name, package.version.text, package.cuda)) == found
