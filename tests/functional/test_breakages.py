"""A recorded image with one broken thing: `check` tells that thing, by its cause and in the words that name it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.diagnosis.model import Verdict
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.operations.check import check
from cudnn_resolve.operations.options import CheckRequest

IMAGE = Path(__file__).parents[1] / "images" / "colab-2025-03-13.json"
SITE = "/usr/local/lib/python3.11/dist-packages/nvidia/cudnn/lib"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
Break = Callable[[dict[str, Any]], None]


@cache
def image() -> str:
    facts = json.loads(IMAGE.read_text(encoding="utf-8"))
    del facts["packages"]["apt"]
    facts["cudnn"][1].update(path=SITE, owner="nvidia-cudnn-cu12")
    return json.dumps(facts)


def verdict(change: Break) -> Verdict:
    facts = json.loads(image())
    change(facts)
    (found,) = check(CheckRequest(given=from_mapping(facts))).verdicts
    return found


def pip(**versions: str | None) -> Break:
    """The image with other versions of some packages, or without them."""

    def change(facts: dict[str, Any]) -> None:
        there = facts["packages"]["pip"]
        for name, version in versions.items():
            for known in [one for one in there if one.replace("-", "_") == name]:
                del there[known]
            if version is not None:
                there[name.replace("_", "-")] = version

    return change


def machine(driver: str = "550.54.15", gpu: tuple[str, str] = ("Tesla T4", "7.5")) -> Break:
    def change(facts: dict[str, Any]) -> None:
        facts["driver"] = {"version": driver}
        facts["gpus"] = [{"name": gpu[0], "compute_capability": gpu[1]}]

    return change


def loading(facts: dict[str, Any], version: str, folder: str, because: str) -> None:
    """What both frameworks would load, as `detect` writes it."""
    loads = {"cudnn": {"version": version, "path": f"{folder}/libcudnn.so.9"}, "because": because}
    facts["frameworks"] = [
        {"name": "torch", "version": "2.6.0+cu124", "variant": "cu124", "cuda_built": "12.4", "cudnn_built": "9.1.0", "would_load": loads},
        {"name": "tensorflow", "version": "2.18.0", "cuda_built": "12.5", "cudnn_built": "9.3", "would_load": loads},
    ]


def without_part(facts: dict[str, Any]) -> None:
    facts["cudnn"][1].update(complete=False, problems=["libcudnn_cnn.so.9 is missing"])
    loading(facts, "9.3.0.75", SITE, "RPATH")


def shadowed(facts: dict[str, Any]) -> None:
    facts["cudnn"].append({"version": "9.0.0.312", "soname": 9, "path": "/opt/cudnn/lib", "cuda": "12", "complete": True})
    facts["loader"] = {"ld_library_path": ["/opt/cudnn/lib"], "ldconfig": []}
    loading(facts, "9.0.0.312", "/opt/cudnn/lib", "LD_LIBRARY_PATH")


def system_first(facts: dict[str, Any]) -> None:
    loading(facts, "9.2.1.18", SYSTEM, "ld.so.cache")


def problem(why: str) -> Break:
    return lambda facts: facts.update(problems=[{"what": "packages.pip.nvidia-cudnn-cu12", "why": why}])


ALL = {"cupy-cuda12x", "jax", "tensorflow", "torch"}
B200, RTX5090, K80 = ("NVIDIA B200", "10.0"), ("NVIDIA GeForce RTX 5090", "12.0"), ("Tesla K80", "3.7")
PAIR = "framework_pkg_mismatch"
BROKEN: dict[str, tuple[Break, set[str], dict[str, str]]] = {
    # what is done, the frameworks that break, and each cause with the words that name what is wrong
    "older cuDNN": (
        pip(nvidia_cudnn_cu12="9.1.0.70"),
        {"tensorflow"},
        {"cudnn_too_old_for_framework": "needs cuDNN >= 9.3, < 10 for CUDA 12; there is nvidia-cudnn-cu12 9.1.0.70"},
    ),
    "no cuDNN": (pip(nvidia_cudnn_cu12=None), {"tensorflow"}, {"cudnn_missing": "unless the machine has CUDA 12.5.1 and cuDNN 9.3"}),
    "part of cuDNN missing": (without_part, ALL, {"cudnn_sublibrary_mix": "libcudnn_cnn.so.9 is missing"}),
    "wheel of another CUDA major": (
        pip(nvidia_cublas_cu12=None, nvidia_cublas_cu11="11.11.3.6"),
        set(),
        {"cuda_runtime_missing": "needs nvidia-cublas-cu12>=12.4.5.8,<13, which is not among the packages"},
    ),
    "NCCL of two CUDA majors": (
        pip(nvidia_nccl_cu11="2.21.5"),
        ALL,
        {PAIR: "nvidia-nccl-cu11 2.21.5 and nvidia-nccl-cu12 2.21.5 install the same files"},
    ),
    "older NCCL": (
        pip(nvidia_nccl_cu12="2.18.1"),
        {"torch"},  # which is linked to it
        {"cublas_mismatch": "torch 2.6.0+cu124 needs nvidia-nccl-cu12>=2.21.5,<3; there is nvidia-nccl-cu12 2.18.1"},
    ),
    "older nvJitLink": (
        pip(nvidia_nvjitlink_cu12="12.1.105"),
        ALL,
        {"nvjitlink_mix": "need nvidia-nvjitlink-cu12 of CUDA 12.5 or newer; there is nvidia-nvjitlink-cu12 12.1.105"},
    ),
    "cuDNN of two CUDA majors": (
        pip(nvidia_cudnn_cu11="8.9.6.50"),
        ALL,
        {"cudnn_sublibrary_mix": "nvidia-cudnn-cu11 8.9.6.50 and nvidia-cudnn-cu12 9.3.0.75 install the same files"},
    ),
    "NumPy 2 under an old torch": (
        pip(torch="2.1.0+cu121", torchvision="0.16.0+cu121", torchaudio="2.1.0+cu121", triton="2.1.0"),
        {"torch"},
        {"numpy_abi": "torch 2.1.0+cu121 needs numpy<2; there is numpy 2.0.2"},
    ),
    "newer protobuf": (pip(protobuf="6.31.0"), set(), {"protobuf_abi": "there is protobuf 6.31.0"}),
    "older ml-dtypes": (pip(ml_dtypes="0.2.0"), set(), {PAIR: "declares ml-dtypes"}),
    "driver too old": (machine("470.82.01"), ALL, {"driver_too_old": "need driver >= 525.60.13; here is driver 470.82.01"}),
    "driver too old for PTX": (
        machine("525.105.17", B200),
        ALL,
        {
            "ptx_too_new": "tensorflow 2.18.0 needs driver >= 555.42.06; here is driver 525.105.17",
            "driver_too_old": "need driver >= 570.26; here is driver 525.105.17",
            "gpu_arch_too_new_for_build": "here is NVIDIA B200",
        },
    ),
    "GPU without code": (
        machine("570.86.10", RTX5090),
        {"torch"},
        {"gpu_arch_too_new_for_build": "torch 2.6.0+cu124 needs a GPU that runs one of sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90"},
    ),
    "GPU too old": (machine("470.82.01", K80), ALL, {"driver_too_old": "525.60.13", "gpu_arch_too_old_for_build": "here is Tesla K80"}),
    "torchvision of another CUDA": (pip(torchvision="0.21.0+cu118"), {"torch"}, {PAIR: "needs torch built with CUDA 11.8"}),
    "torchvision of another torch": (pip(torchvision="0.20.1+cu124"), {"torch"}, {PAIR: "is built for torch==2.5.1"}),
    "build without CUDA": (
        pip(torch="2.6.0+cpu", torchvision=None, torchaudio=None),
        {"torch"},
        {"cpu_only_build": "torch 2.6.0+cpu computes on the CPU only"},
    ),
    "removed file": (
        problem("removed: 1 of 9 files that nvidia-cudnn-cu12 9.3.0.75 installed are not there, such as x"),
        ALL,
        {"cudnn_missing": "nvidia-cudnn-cu12: 1 of 9 files that nvidia-cudnn-cu12 9.3.0.75 installed are not there"},
    ),
    "overwritten file": (
        problem("overwritten by nvidia-cudnn-cu11: 3 of 9 files, such as x, are not those that nvidia-cudnn-cu12 9.3.0.75 installed"),
        ALL,
        {"cudnn_sublibrary_mix": "overwritten by nvidia-cudnn-cu11"},
    ),
    "LD_LIBRARY_PATH": (
        shadowed,
        {"tensorflow", "torch"},
        {"ld_path_shadowing": "9.0.0.312 in /opt/cudnn/lib/libcudnn.so.9 is found first"},
    ),
    "the system's cuDNN in front": (system_first, {"tensorflow"}, {"ld_path_shadowing": f"9.2.1.18 in {SYSTEM}/libcudnn.so.9 is found"}),
    "plugin of another JAX": (
        pip(jax_cuda12_plugin="0.4.33", jax_cuda12_pjrt="0.4.33"),
        {"jax"},
        {PAIR: "jax-cuda12-plugin 0.4.33 does not match jaxlib 0.5.1"},
    ),
    "newer jaxlib": (
        pip(jaxlib="0.5.3", jax_cuda12_plugin="0.5.3", jax_cuda12_pjrt="0.5.3"),
        {"jax"},
        {PAIR: "jaxlib 0.5.3 is newer than jax 0.5.2"},
    ),
    "tf-keras of another TensorFlow": (pip(tf_keras="2.15.0"), {"tensorflow"}, {PAIR: "tf-keras 2.15.0 is built for tensorflow==2.15.*"}),
    "Keras 2": (pip(keras="2.15.0"), {"tensorflow"}, {PAIR: "needs keras>=3; there is keras 2.15.0"}),
    "TensorFlow twice": (
        pip(tensorflow_cpu="2.18.0"),
        {"tensorflow", "tensorflow-cpu"},
        {PAIR: "tensorflow 2.18.0 and tensorflow-cpu 2.18.0 install the same files"},
    ),
    "ONNX Runtime twice": (
        pip(onnxruntime="1.20.0", onnxruntime_gpu="1.20.0"),
        {"onnxruntime", "onnxruntime-gpu"},
        {PAIR: "onnxruntime 1.20.0 and onnxruntime-gpu 1.20.0 install the same files"},
    ),
    "another Triton": (pip(triton="3.0.0"), set(), {PAIR: "torch 2.6.0+cu124 declares triton==3.2.0; there is triton 3.0.0"}),
    "a bad release of cuDNN": (pip(nvidia_cudnn_cu12="9.10.0.56"), set(), {"other_bug": "nvidia-cudnn-cu12 9.10.0.56"}),
    "Python without wheels": (
        lambda facts: facts["python"].update(version="3.13.1"),
        {"cupy-cuda12x", "tensorflow"},
        {"pip_wheel_unavailable_for_python": "need Python 3.9, 3.10, 3.11, 3.12; here is python 3.13.1"},
    ),
    "glibc too old": (
        lambda facts: facts["platform"].update(glibc="2.12"),
        {"cupy-cuda12x", "tensorflow"},
        {"pip_wheel_unavailable_for_python": "glibc"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_broken_thing(name: str) -> None:
    change, breaks, causes = BROKEN[name]
    found = verdict(change)
    told = [one for one in found.findings if one.severity != "info"]
    shown = [(one.severity, one.cause, one.summary) for one in told]
    assert {one.cause for one in told} == set(causes), shown
    for cause, words in causes.items():
        assert any(words in one.summary for one in told if one.cause == cause), shown
    assert {one.name for one in found.frameworks if one.status == "breaks"} == breaks, shown
    assert (found.status == "breaks") == bool(breaks)


def test_nothing_broken() -> None:
    found = verdict(lambda _: None)
    assert found.status == "runs"
    assert not [one for one in found.findings if one.severity != "info"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("older cuDNN", "pip install --no-deps nvidia-cudnn-cu12==9.3.0.75"),
        ("older NCCL", "pip install --no-deps nvidia-nccl-cu12==2.21.5"),
        ("torchvision of another CUDA", "pip install --no-deps torchvision==0.21.0"),
    ],
)
def test_the_smallest_change_mends_it(name: str, mend: str | None) -> None:
    change = BROKEN[name][0]
    commands = [one.command for one in verdict(change).remedy if (one.command or "").startswith("pip install")]
    assert commands == ([mend] if mend is not None else [])
    if mend is None:
        return

    def mended(facts: dict[str, Any]) -> None:
        change(facts)
        facts["packages"]["pip"].update(pin.split("==") for pin in mend.split()[3:])

    assert verdict(mended).status == "runs"
