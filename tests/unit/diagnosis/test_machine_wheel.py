"""Findings from the list of packages: NVIDIA's wheels against each other and against what frameworks declare."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose_facts
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book

T4 = {"name": "Tesla T4", "compute_capability": "7.5"}
TORCH = {
    "torch": "2.6.0",
    "nvidia-cublas-cu12": "12.4.5.8",
    "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-cusparse-cu12": "12.3.1.170",
    "nvidia-nvjitlink-cu12": "12.4.127",
}


def findings(pip: dict[str, str], **facts: Any) -> list[Finding]:
    whole = {
        "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
        "python": {"version": "3.11.9", "path": "/srv/my env/bin/python"},
        "driver": {"version": "580.82.07"},
        "gpus": [T4],
        **facts,
        "packages": {"pip": pip, **facts.get("packages", {})},
    }
    return diagnose_facts(from_mapping(whole, "test"), book())


def told(pip: dict[str, str], **facts: Any) -> set[tuple[str, str]]:
    return {(one.severity, one.cause) for one in findings(pip, **facts)}


def test_libraries_as_they_are_declared_are_not_spoken_of() -> None:
    assert not told(TORCH)


def test_what_the_abi_allows_is_a_note() -> None:
    (one,) = findings({**TORCH, "nvidia-cudnn-cu12": "9.3.0.75"})
    assert (one.severity, one.cause) == ("info", "harmless")
    assert one.summary.startswith("1 NVIDIA package differs from what a framework declares, within what its libraries accept: torch 2.6.0 ")
    assert one.summary.endswith("declares nvidia-cudnn-cu12==9.1.0.70, but 9.3.0.75 is installed")
    (one,) = findings({**TORCH, "nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cublas-cu12": "12.5.3.2"})
    assert one.summary.startswith("2 NVIDIA packages differ")


@pytest.mark.parametrize(
    ("version", "cause"),
    [("8.9.7.29", "cudnn_major_mismatch"), ("9.0.0.312", "cudnn_too_old_for_framework"), ("9.1.1.17", None)],
)
def test_the_cudnn_wheel_serves_a_framework_or_it_is_an_error(version: str, cause: str | None) -> None:
    found = [one for one in findings({**TORCH, "nvidia-cudnn-cu12": version}) if one.severity == "error"]
    assert [one.cause for one in found] == ([cause] if cause else [])
    for one in found:
        assert f"nvidia-cudnn-cu12 {version}" in one.summary
        assert [remedy.command for remedy in one.remedy] == ["cudnn-resolve apply -f torch==2.6.0"]


def test_a_framework_that_requires_no_wheel_may_have_its_cudnn_from_elsewhere() -> None:
    pip = {"tensorflow": "2.15.1", "nvidia-cudnn-cu12": "9.1.0.70"}
    there = [{"version": "8.9.6.50", "soname": 8, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"}]
    assert ("error", "cudnn_major_mismatch") not in told(pip, cudnn=there)
    assert ("error", "cudnn_major_mismatch") not in told(pip), "nobody looked for other copies"
    assert ("error", "cudnn_major_mismatch") in told(pip, cudnn=[])


def test_a_linker_older_than_what_links_with_it_is_named_with_the_one_that_serves() -> None:
    (one,) = findings({**TORCH, "nvidia-nvjitlink-cu12": "12.1.105"})
    assert (one.severity, one.cause) == ("error", "nvjitlink_mix")
    assert one.summary == (
        "nvidia-cusparse-cu12 12.3.1.170 needs nvidia-nvjitlink-cu12 of CUDA 12.4 or newer; there is nvidia-nvjitlink-cu12 12.1.105"
    )
    (remedy,) = one.remedy
    assert remedy.command == "'/srv/my env/bin/python' -m pip install --no-deps nvidia-nvjitlink-cu12==12.4.127"
    assert {one for one, _ in told({**TORCH, "nvidia-nvjitlink-cu12": "12.6.85"})} == {"info"}, "a newer one serves"


def test_a_library_older_than_the_build_is_a_warning() -> None:
    found = [one for one in findings({**TORCH, "nvidia-cublas-cu12": "12.1.3.1"}) if one.severity != "info"]
    assert [(one.severity, one.cause) for one in found] == [("warning", "cuda_runtime_missing")]
    assert "torch 2.6.0 declares nvidia-cublas-cu12==12.4.5.8, but 12.1.3.1 is installed" in found[0].summary


@pytest.mark.parametrize("python", ["3.10.12", "3.11.9"])
def test_of_two_wheels_that_it_may_be_only_what_both_declare_is_held_against_it(python: str) -> None:
    pip = {"torch": "2.8.0+cu126", "nvidia-cuda-nvrtc-cu12": "12.6.77", "nvidia-cudnn-cu12": "9.10.2.21"}
    advisory = ("info", "other_bug")
    assert told(pip, python={"version": python}) <= {advisory}, "the cu128 wheel of the same release declares others"
    with_full = {"torch": "2.5.1+cu121", "nvidia-cuda-nvrtc-cu12": "12.4.127"}
    assert bool(told(with_full, python={"version": python})) == (python == "3.11.9"), "3.10 has a wheel with the libraries inside"


TOOLKIT = [{"version": "12.2", "path": "/usr/local/cuda-12.2", "source": "runfile"}]
SYSTEM = {"soname": 8, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"}


@pytest.mark.parametrize(
    ("pip", "cudnn", "toolkits", "expected"),
    [
        ({"tensorflow": "2.15.1"}, [], [], "cuda_runtime_missing"),
        ({"tensorflow": "2.15.1"}, [], TOOLKIT, "cudnn_missing"),
        ({"tensorflow": "2.15.1"}, [{**SYSTEM, "version": "8.9.6.50"}], TOOLKIT, None),
        ({"tensorflow": "2.15.1"}, [{**SYSTEM, "version": "8.6.0"}], TOOLKIT, "cudnn_too_old_for_framework"),
        ({"tensorflow": "2.15.1"}, [{**SYSTEM, "version": None}], TOOLKIT, None),
        ({"tensorflow": "2.15.1", "nvidia-cudnn-cu12": "8.9.4.25", "nvidia-cublas-cu12": "12.2.5.6"}, [], [], None),
        ({"ctranslate2": "4.5.0"}, [{**SYSTEM, "version": "8.9.7"}], TOOLKIT, "cudnn_major_mismatch"),
        ({"onnxruntime-gpu": "1.18.0", "nvidia-cudnn-cu12": "9.1.0.70"}, [], TOOLKIT, "cudnn_major_mismatch"),
        ({"onnxruntime-gpu": "1.18.0"}, [{**SYSTEM, "version": "8.9.7"}], TOOLKIT, None),
        ({"cupy-cuda12x": "13.0.0"}, [], [], "cuda_runtime_missing"),
        ({"cupy-cuda12x": "13.0.0"}, [], [{"version": None, "path": "/opt/cuda", "source": "other"}], None),
    ],
)
def test_what_comes_from_outside_is_there_or_it_is_an_error(
    pip: dict[str, str], cudnn: list[dict[str, Any]], toolkits: list[dict[str, Any]], expected: str | None
) -> None:
    found = findings(pip, cudnn=cudnn, cuda_toolkits=toolkits)
    assert [one.cause for one in found if one.severity == "error"] == ([expected] if expected else [])
    assert not [one for one in findings(pip) if one.severity == "error"], "nobody looked for copies and toolkits"
    absent = [one for one in findings(pip, cudnn=cudnn, cuda_toolkits=toolkits, driver=None, gpus=[]) if one.severity == "error"]
    assert not absent, "without a driver nothing is wanted"


def test_a_patch_release_that_the_tables_do_not_have_is_as_the_others_of_its_minor() -> None:
    told_of = findings({"onnxruntime-gpu": "1.20.99"}, cudnn=[], cuda_toolkits=[])
    assert [one.cause for one in told_of] == ["cuda_runtime_missing"]
    assert not findings({"onnxruntime-gpu": "7.1.0"}, cudnn=[], cuda_toolkits=[])


@pytest.mark.parametrize(
    ("pip", "expected"),
    [
        ({"tensorflow": "2.15.1", "numpy": "2.1.0"}, ("error", "numpy_abi")),
        ({"tensorflow": "2.15.1", "numpy": "1.22.0"}, ("warning", "numpy_abi")),
        ({"tensorflow": "2.18.0", "numpy": "2.1.3", "protobuf": "5.29.1"}, ("info", "numpy_abi")),
        ({"tensorflow": "2.15.1", "numpy": "1.26.4", "protobuf": "5.29.1"}, ("warning", "protobuf_abi")),
        ({"tensorflow": "2.15.1", "numpy": "1.26.4", "protobuf": "4.25.3"}, None),
        ({"onnxruntime": "1.20.0", "onnxruntime-gpu": "1.20.0"}, ("warning", "framework_pkg_mismatch")),
        ({"cupy-cuda11x": "13.0.0", "cupy-cuda12x": "13.0.0"}, ("warning", "framework_pkg_mismatch")),
        ({"tensorflow": "2.4.1", "tensorflow-gpu": "2.4.1"}, ("info", "framework_pkg_mismatch")),
    ],
)
def test_packages_beside_a_framework(pip: dict[str, str], expected: tuple[str, str] | None) -> None:
    assert told(pip) == ({expected} if expected else set())


CONDA = [{"version": "8.9.7", "soname": 8, "path": "/opt/conda/lib", "source": "conda"}]
NO_CUDA: dict[str, Any] = {"cudnn": [], "cuda_toolkits": []}


@pytest.mark.parametrize(
    ("pip", "facts"),
    [
        ({"tensorflow": "2.15.1"}, {**NO_CUDA, "frameworks": [{"name": "tensorflow", "version": "2.15.1", "variant": "cpu"}]}),
        ({"torch": "2.4.1"}, {**NO_CUDA, "platform": {"system": "linux", "arch": "aarch64"}}),
        ({"torch": "2.4.1"}, {**NO_CUDA, "platform": {"system": "windows", "arch": "x86_64"}}),
        ({"torch": "2.9.0.dev20250710+cu128", "nvidia-cudnn-cu12": "9.8.0.87"}, NO_CUDA),
        ({"torch": "2.1.0"}, {"cudnn": CONDA, "cuda_toolkits": [{"version": "11.8", "path": "/opt/conda", "source": "conda"}]}),
        (
            {"torch": "2.1.0"},
            {**NO_CUDA, "frameworks": [{"name": "torch", "version": "2.1.0", "cuda_built": "11.8", "cudnn_built": "8"}]},
        ),
        ({"cupy-cuda12x": "13.0.0"}, {**NO_CUDA, "loader": {"ld_library_path": ["/apps/cuda/12.2/lib64"]}}),
        ({"cupy-cuda12x": "13.0.0"}, {**NO_CUDA, "loader": {"ldconfig": ["/usr/lib/x86_64-linux-gnu/libcublas.so.12"]}}),
        (
            {"torch": "2.1.0", "onnxruntime-gpu": "1.17.0"},
            {**NO_CUDA, "platform": {"system": "linux", "arch": "aarch64"}, "driver": {"version": "35.4.1"}, "gpus": [{"name": "Orin"}]},
        ),
    ],
)
def test_builds_that_the_tables_do_not_know_are_not_held_against_them(pip: dict[str, str], facts: dict[str, Any]) -> None:
    assert not [(one.cause, one.summary) for one in findings(pip, **facts) if one.severity == "error"]


@pytest.mark.parametrize("gpu", [{"name": "Orin"}, {"name": "Orin", "hidden": True}, {"name": "a GPU that the tables lack"}])
def test_a_jetson_whose_gpu_is_not_seen_is_known_by_the_number_of_its_driver(gpu: dict[str, Any]) -> None:
    there = {"platform": {"system": "linux", "arch": "aarch64"}, "driver": {"version": "35.4.1"}, "gpus": [gpu]}
    torch = {"name": "torch", "version": "2.5.0a0+872d972e41.nv24.8", "cuda_built": "12.6", "cudnn_built": "9.3.0"}
    assert "driver_too_old" not in {cause for _, cause in told({"torch": torch["version"]}, **there, frameworks=[torch])}


@pytest.mark.parametrize("gpu", [{"name": "Orin"}, {"name": "Orin", "hidden": True}, {"compute_capability": "8.7", "hidden": True}])
def test_a_jetson_whose_driver_is_numbered_like_others_is_known_by_its_gpu_even_if_it_is_hidden(gpu: dict[str, Any]) -> None:
    there = {"platform": {"system": "linux", "arch": "aarch64"}, "driver": {"version": "540.4.0"}, "gpus": [gpu]}  # of JetPack 6
    for torch in ("2.7.0", "2.15.0+cu132"):
        assert "driver_too_old" not in {cause for _, cause in told({"torch": torch}, **there)}


@pytest.mark.parametrize("name", ["NVIDIA Thor", "Jetson AGX Thor"])
def test_thor_has_the_drivers_of_servers_whatever_its_name(name: str) -> None:
    thor = {"platform": {"system": "linux", "arch": "aarch64"}, "gpus": [{"name": name}], "driver": {"version": "580.65.06"}}
    assert ("info", "driver_too_old") in told({"torch": "2.15.0+cu132"}, **thor)


def test_libraries_of_another_major_in_the_linker_cache_serve_nobody() -> None:
    there = {
        **NO_CUDA,
        "loader": {"ldconfig": ["/usr/lib/x86_64-linux-gnu/libcublas.so.11", "/usr/lib/x86_64-linux-gnu/libcudart.so.11.0"]},
    }
    assert ("error", "cuda_runtime_missing") in told({"cupy-cuda12x": "13.0.0"}, **there)
