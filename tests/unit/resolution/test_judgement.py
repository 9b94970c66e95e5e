"""Sets of packages as they are: what each framework lacks, and that what runs is not blamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, InstalledFramework, Packages, Platform, Python, Toolkit
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution import judgement
from cudnn_resolve.resolution.fault import Judgement
from cudnn_resolve.resolution.judgement import judge
from cudnn_resolve.resolution.universe import Universe
from tests.program import shipped

CU124 = {
    "torch": "2.6.0", "nvidia-cublas-cu12": "12.4.5.8", "nvidia-cuda-cupti-cu12": "12.4.127", "nvidia-cuda-nvrtc-cu12": "12.4.127",
    "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cufft-cu12": "11.2.1.3",
    "nvidia-curand-cu12": "10.3.5.147", "nvidia-cusolver-cu12": "11.6.1.9", "nvidia-cusparse-cu12": "12.3.1.170",
    "nvidia-cusparselt-cu12": "0.6.2", "nvidia-nccl-cu12": "2.21.5", "nvidia-nvjitlink-cu12": "12.4.127", "nvidia-nvtx-cu12": "12.4.127",
    "numpy": "2.2.6", "triton": "3.2.0",
}  # fmt: skip
"""What `pip install torch==2.6.0` leaves."""


def judged(
    packages: Mapping[str, str],
    *,
    driver: str | None = "550.54.15",
    gpu: str | None = "7.5",
    python: str = "3.11",
    partial: bool = False,
    toolkits: tuple[Toolkit, ...] = (),
    cudnn: tuple[CudnnCopy, ...] = (),
) -> Judgement:
    book = shipped()
    facts = Facts(
        platform=Platform(system="linux", arch="x86_64", distribution="ubuntu", release="22.04", glibc="2.35"),
        python=Python(version=python),
        driver=Driver(version=driver) if driver else None,
        gpus=(Gpu(name="Tesla T4" if gpu == "7.5" else None, compute_capability=gpu),) if gpu else (),
        packages=Packages(pip={}),
        cuda_toolkits=toolkits,
        cudnn=cudnn,
    )
    return judge(book, machine_of(facts, book), packages, partial=partial)


def errors(found: Judgement) -> list[str]:
    return [one.text for one in found.faults if one.severity == "error"]


def kinds(found: Judgement) -> set[tuple[str, str]]:
    return {(one.kind, one.severity) for one in found.faults if one.severity != "info"}


def without(*names: str) -> dict[str, str]:
    return {name: version for name, version in CU124.items() if name not in names}


def test_what_an_installer_leaves_runs() -> None:
    found = judged(CU124)
    assert [(one.package, one.version, one.build.variant if one.build else None) for one in found.frameworks] == [
        ("torch", "2.6.0", "cu124")
    ]
    assert errors(found) == []


@pytest.mark.parametrize(
    ("packages", "kind", "said"),
    [
        (
            {**CU124, "tensorflow": "2.18.0"},
            "library",
            "tensorflow 2.18.0 needs cuDNN >= 9.3, < 10 for CUDA 12; there is nvidia-cudnn-cu12 9.1.0.70",
        ),
        ({**CU124, "nvidia-cudnn-cu12": "8.9.7.29"}, "library", "there is nvidia-cudnn-cu12 8.9.7.29"),
        (without("nvidia-cublas-cu12"), "missing", "torch 2.6.0 needs nvidia-cublas-cu12"),
        ({**CU124, "torch": "2.2.2", "nvidia-cudnn-cu12": "8.9.2.26"}, "bound", "torch 2.2.2 needs numpy<2; there is numpy 2.2.6"),
        (
            {**CU124, "tensorflow": "2.18.0", "tensorflow-hub": "0.16.1", "setuptools": "84.2.1"},
            "bound",
            "tensorflow-hub 0.16.1 needs setuptools<82; there is setuptools 84.2.1",
        ),
        ({**CU124, "nvidia-nvjitlink-cu12": "12.1.105"}, "library", "nvidia-nvjitlink-cu12"),
        (
            {**CU124, "nvidia-cudnn-cu13": "9.20.0.48"},
            "files",
            "nvidia-cudnn-cu12 9.1.0.70 and nvidia-cudnn-cu13 9.20.0.48 install the same files",
        ),
        ({**CU124, "onnxruntime-gpu": "1.16.3"}, "majors", "onnxruntime-gpu needs CUDA 11 and torch needs CUDA 12"),
        ({"torch": "2.6.0+cpu", "numpy": "2.2.6"}, "cpu", "torch 2.6.0+cpu computes on the CPU only"),
        ({"jax": "0.5.2", "jaxlib": "0.5.1", "numpy": "2.2.6"}, "cpu", "jax 0.5.2 computes on the CPU only"),
    ],
)
def test_what_breaks(packages: dict[str, str], kind: str, said: str) -> None:
    found = judged(packages)
    assert any(said in text for text in errors(found)), found.faults
    assert (kind, "error") in kinds(found)


def test_a_companion_of_another_cuda() -> None:
    found = judged({"torch": "2.11.0+cu128", "torchvision": "0.26.0", "numpy": "2.2.6"}, driver="610.43.02")
    assert any("torchvision 0.26.0 needs torch built with CUDA 13" in text for text in errors(found)), found.faults


def test_the_machine() -> None:
    assert "driver >= 450.80.02" in " ".join(errors(judged({**CU124, "torch": "2.6.0+cu118"}, driver="390.157")))
    assert any("12.0" in text or "GPU" in text for text in errors(judged(CU124, gpu="12.0", driver="610.43.02")))
    assert any("Python" in text for text in errors(judged(CU124, python="3.14")))


def test_what_nobody_knows_is_no_error() -> None:
    found = judged({"torch": "99.0", "numpy": "2.2.6"})
    assert errors(found) == []
    assert kinds(found) == {("unknown", "warning")}


def test_a_library_of_an_older_minor_is_a_warning_for_all_of_them() -> None:
    found = judged({**CU124, "tensorflow": "2.18.0", "nvidia-cudnn-cu12": "9.3.0.75"})
    assert errors(found) == []
    (warning,) = [one for one in found.faults if one.kind == "library"]
    assert "more libraries of that CUDA" in warning.text


def test_wheels_that_are_found_before_the_cuda_of_the_system_are_judged() -> None:
    cu121 = {"nvidia-cuda-runtime-cu12": "12.1.105", "nvidia-cublas-cu12": "12.1.3.1", "nvidia-cusparse-cu12": "12.1.0.106"}
    system: Any = {
        "toolkits": (Toolkit(version="12.2", path="/usr/local/cuda-12.2", source="apt"),),
        "cudnn": (CudnnCopy(version="8.9.6.50", soname=8, cuda="12.2", path="/usr/lib", source="apt", complete=True),),
    }
    stack = {"tensorflow": "2.15.0", "numpy": "1.26.4"}

    found = judged({**CU124, **cu121, **stack}, **system)
    assert any("needs CUDA >= 12.2" in one.text and "there is nvidia-cuda-runtime-cu12 12.1.105" in one.text for one in found.faults)
    assert errors(found) == []
    of_system = judged(stack, **system)
    assert not of_system.faults, "half a set of wheels is none"
    assert not any("CUDA >=" in one.text for one in judged({**CU124, **stack}, **system).faults), "those of 12.4 serve"


def test_a_cudnn_in_a_folder_of_its_own_serves_beside_the_wheel_of_another_major() -> None:
    path = f"/env/lib/python3.11/site-packages/{FOLDER}/nvidia/cudnn/lib"
    copy = CudnnCopy(version="8.9.7.29", soname=8, cuda="12", path=path, source="pip", complete=True)
    stack = {**CU124, "tensorflow": "2.15.0", "numpy": "1.26.4"}

    found = judged(stack, cudnn=(copy,))
    assert not [one for one in found.faults if one.severity != "info"]
    assert any("needs cuDNN >= 8.9, < 9" in text for text in errors(judged(stack)))
    torn = judged(stack, cudnn=(replace(copy, complete=False),))
    assert any("needs cuDNN >= 8.9, < 9" in text for text in errors(torn))
    older = judged({**stack, "nvidia-cuda-runtime-cu12": "12.1.105"}, cudnn=(copy,))
    assert any("needs CUDA >= 12.2" in one.text for one in older.faults), "its CUDA is that of the wheels"


def test_tensorboard_is_not_tensorflow() -> None:
    found = judged({**CU124, "tensorflow": "2.20.0", "setuptools": "84.2.1", "nvidia-cudnn-cu12": "9.10.2.21"})
    assert [one.severity for one in found.faults if one.package == "setuptools" and one.kind == "bound"] == ["warning"]


def test_no_libraries_for_what_needs_none_to_be_imported() -> None:
    (fault,) = [one for one in judged({"tensorflow": "2.18.0", "numpy": "2.0.2"}).faults if one.kind == "missing"]
    assert "finds no GPU and computes on the CPU" in fault.text


def test_a_list_means_the_build_of_the_configured_index() -> None:
    """ONNX Runtime 1.18.0 is there for CUDA 11, and on another index under the same number for CUDA 12."""
    found = judged({**CU124, "onnxruntime-gpu": "1.18.0", "numpy": "1.26.4"})
    assert any("needs CUDA 11" in text for text in errors(found)), found.faults


def test_a_framework_that_another_one_brings_is_not_meant_for_the_gpu() -> None:
    found = judged({"tensorflow": "2.12.1", "jax": "0.4.38", "jaxlib": "0.4.38", "numpy": "1.23.5"})
    assert [one.severity for one in found.faults if one.kind == "cpu"] == ["info"]


@pytest.mark.parametrize("name", ["nvidia-cudnn-cu12", "nvidia-nvjitlink-cu12"])
def test_a_library_that_the_tables_do_not_know_is_no_error(name: str) -> None:
    found = judged({**CU124, name: {"nvidia-cudnn-cu12": "9.99.0.1", "nvidia-nvjitlink-cu12": "12.4.199"}[name]})
    assert errors(found) == []
    assert ("unknown", "warning") in kinds(found)


@pytest.mark.parametrize("packages", [{"torch": "2.6.0", "numpy": "1.26.4"}, {"jax": "0.4.33", "jaxlib": "0.4.33"}])
def test_a_list_that_need_not_name_everything(packages: dict[str, str]) -> None:
    found = judged(packages, partial=True)
    assert errors(found) == []
    assert kinds(found) == {("unknown", "warning")}


@pytest.mark.parametrize(("torch", "advisory"), [("2.9.1", "torch-conv3d-old-cudnn"), ("2.8.0", "cudnn-9.8-conv3d-bf16"), (None, None)])
def test_an_advisory_about_cudnn_holds_for_its_wheel_beside_what_it_names(torch: str | None, advisory: str | None) -> None:
    found = judged({"nvidia-cudnn-cu12": "9.10.2.21", **({"torch": torch} if torch else {})})

    assert [one.because for one in found.faults if one.kind == "advisory"] == ([f"advisory {advisory}"] if advisory else [])


def test_versions_are_equal_as_pep_440_says() -> None:
    assert [one.build.variant for one in judged({**CU124, "torch": "2.6"}).frameworks if one.build] == ["cu124"]


def test_machines_that_differ_in_their_driver_are_judged_by_one_set_of_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Universe] = []

    def universe(*args: Any) -> Universe:
        made.append(Universe(*args))
        return made[-1]

    monkeypatch.setattr(judgement, "Universe", universe)
    packages, old = dict(CU124), "450.80.02"
    texts = [errors(judged(packages, driver=driver)) for driver in ("550.54.15", old, None, "570.86.10")]
    assert texts[0] == texts[2] == texts[3] == []
    assert f"here is driver {old}" in texts[1][0]
    assert len(made) == 1


JETSON = Gpu(name="Jetson AGX Orin", compute_capability="8.7")


def installed(packages: dict[str, str], *seen: InstalledFramework, arch: str = "x86_64", gpus: tuple[Gpu, ...] = ()) -> Judgement:
    """Judgement of an environment whose frameworks were inspected."""
    facts = Facts(
        platform=Platform(system="linux", arch=arch, distribution="ubuntu", release="22.04", glibc="2.35"),
        python=Python(version="3.11"),
        driver=Driver(version="36.4.0" if JETSON in gpus else "470.57.02"),
        gpus=gpus,
        packages=Packages(pip=packages),
        cuda_toolkits=(),
        cudnn=(),
        frameworks=seen,
    )
    return judge(shipped(), machine_of(facts, shipped()), packages, live=True)


def builds(found: Judgement) -> list[tuple[str, str] | None]:
    return [(one.build.variant, str(one.build.cuda)) if one.build is not None else None for one in found.frameworks]


def test_a_build_is_that_of_the_cuda_that_it_reports() -> None:
    of_wheel = installed({"torch": "2.1.0"})
    assert builds(of_wheel) == [("cu121", "12.1")]
    assert any("needs driver >= 525.60.13" in text for text in errors(of_wheel))
    of_conda = installed({"torch": "2.1.0"}, InstalledFramework(name="torch", version="2.1.0", cuda_built="11.3", cudnn_built="8.2"))
    assert builds(of_conda) == [("vendor", "11.3")]
    assert errors(of_conda) == [], "driver 470 serves CUDA 11, and its libraries are its own"
    for_cpu = installed({"torch": "2.1.0"}, InstalledFramework(name="torch", version="2.1.0", variant="cpu"))
    assert builds(for_cpu) == [None]
    of_another = InstalledFramework(name="torch", version="2.0.0", cuda_built="11.3")
    assert builds(installed({"torch": "2.1.0"}, of_another)) == [("cu121", "12.1")]


def test_a_build_from_source_is_held_against_the_gpu_by_its_cuda() -> None:
    seen = InstalledFramework(name="tensorflow", version="2.4.1", cuda_built="10.1", cudnn_built="7.6")
    found = installed({"tensorflow": "2.4.1"}, seen, gpus=(Gpu(name="NVIDIA A100-SXM4-40GB", compute_capability="8.0"),))
    assert any("a GPU that CUDA 10.1 supports" in text for text in errors(found)), found.faults


@pytest.mark.parametrize(
    ("jaxlib", "build"),
    [("0.4.14+cuda11.cudnn86", "11.8"), ("0.4.14+cuda12.cudnn89", "12.0"), ("0.4.14", None)],
)
def test_the_build_of_jax_is_that_of_its_jaxlib(jaxlib: str, build: str | None) -> None:
    (found,) = installed({"jax": "0.4.14", "jaxlib": jaxlib}).frameworks
    assert (str(found.build.cuda) if found.build is not None else None) == build


def test_a_wheel_for_another_processor_is_not_there() -> None:
    found = judged({"torch": "2.8.0+cu126", "nvidia-cuda-nvrtc-cu12": "12.6.77", "nvidia-cudnn-cu12": "9.10.2.21"}, driver="580.82.07")
    assert not [text for text in errors(found) if "architecture" in text or "sm_80, sm_90" in text]


def test_a_gpu_that_is_not_served_beside_one_that_is() -> None:
    gpus = (Gpu(name="Tesla T4", compute_capability="7.5"), Gpu(name="NVIDIA GeForce RTX 5090", compute_capability="12.0"))
    alone, beside = (installed({"torch": "2.6.0+cu118"}, gpus=some) for some in (gpus[1:], gpus))
    severities = [[one.severity for one in found.faults if one.problem == "gpu-too-new"] for found in (alone, beside)]
    assert severities == [["error"], ["warning"]]


def test_the_driver_of_a_jetson_has_numbers_of_its_own() -> None:
    seen = InstalledFramework(name="torch", version="2.5.0", cuda_built="12.6", cudnn_built="9.3")
    assert not [text for text in errors(installed({"torch": "2.5.0"}, seen, arch="aarch64", gpus=(JETSON,))) if "driver" in text]
    thor = (Gpu(name="NVIDIA Thor", compute_capability="11.0"),)
    found = installed({"torch": "2.9.0+cu130"}, arch="aarch64", gpus=thor)
    assert any("needs driver >= 580.65.06" in text for text in errors(found)), "Thor has the drivers of servers"


def test_a_patch_release_that_the_tables_lack_is_built_like_the_others_of_its_minor() -> None:
    found = judged({"onnxruntime-gpu": "1.20.99", "numpy": "2.0.2"}, driver="470.57.02")
    assert any("needs driver >= 525.60.13" in text for text in errors(found))
    assert ("unknown", "warning") in kinds(found)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"tensorflow": "2.15.1", "numpy": "2.1.0"}, ("error", "numpy")),
        ({"tensorflow": "2.15.1", "numpy": "1.22.0"}, ("warning", "numpy")),
        ({"tensorflow": "2.18.0", "numpy": "2.1.3"}, ("info", "numpy")),
        ({"tensorflow": "2.15.1", "numpy": "1.26.4", "protobuf": "5.29.1"}, ("warning", "protobuf")),
        ({"onnxruntime": "1.18.1", "numpy": "2.0.2"}, ("error", "numpy")),
    ],
)
def test_a_declared_requirement_is_graver_the_farther_off_it_is(packages: dict[str, str], expected: tuple[str, str]) -> None:
    assert [(one.severity, one.package) for one in judged(packages).faults if one.kind in ("declared", "bound")] == [expected]


@pytest.mark.parametrize(
    ("packages", "severity"),
    [
        ({"tensorflow": "2.18.0", "tensorflow-cpu": "2.18.0"}, "error"),
        ({"tensorflow": "2.4.1", "tensorflow-gpu": "2.4.1"}, "info"),
        ({"opencv-python": "4.10.0.84", "opencv-python-headless": "4.10.0.84"}, "info"),
    ],
)
def test_packages_that_install_the_same_files(packages: dict[str, str], severity: str) -> None:
    (fault,) = [one for one in judged(packages).faults if one.kind == "files"]
    assert fault.severity == severity
    assert all(f"{name} {version}" in fault.text for name, version in packages.items())
    assert not [one for one in judged(packages).faults if one.kind == "cpu"], "which of them is there is not known"


def test_a_companion_that_accepts_several_minors_only_declares_them() -> None:
    found = judged({"ctranslate2": "3.24.0", "faster-whisper": "1.0.3"})
    assert [(one.kind, one.severity) for one in found.faults if one.package == "faster-whisper"] == [("declared", "warning")]


@pytest.mark.parametrize(
    ("package", "version", "cuda", "said"),
    [
        ("torch", "99.0", "12.1", "is not in the tables: judged by its CUDA alone"),
        ("onnxruntime-gpu", "1.19.0", "12.4", "finds no GPU and computes on the CPU unless"),
        ("tensorflow", "2.17.0", "12.5.1", "finds no GPU and computes on the CPU unless"),
    ],
)
def test_what_a_build_needs_is_known_or_said_to_be_unknown(package: str, version: str, cuda: str, said: str) -> None:
    found = installed({package: version}, InstalledFramework(name=package, version=version, cuda_built=cuda, cudnn_built="9.1"))
    assert any(said in fault.text for fault in found.faults), found.faults
