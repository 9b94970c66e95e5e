"""Compiles a libcudnn that really computes, on the CPU, and the libcuda beside it."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from tests.native.build import build_library, folder_of_run
from tests.native.template import compile_library

GPU = "Tesla T4|7.5|15360|GPU-00000000-0000-0000-0000-000000000001"
"""What STANDIN_GPUS holds for one card."""


def computing_cudnn(directory: Path, number: int) -> Path:
    """A libcudnn of that release, 90100, 8907 or 7605, in `directory`."""
    major = number // 10000 if number >= 90000 else number // 1000
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_cudnn(number, major), directory / f"libcudnn.so.{major}"))


def working_libcuda(directory: Path) -> Path:
    """A libcuda.so.1 with memory, in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_libcuda(), directory / "libcuda.so.1"))


def working_nvml(directory: Path) -> Path:
    """A libnvidia-ml.so.1 that answers, in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_nvml(), directory / "libnvidia-ml.so.1"))


@cache
def _cudnn(number: int, major: int) -> Path:
    return compile_library(
        "standin_convolution.c", folder_of_run() / str(number), f"libcudnn.so.{major}", f"-DNUMBER={number}", "-O2", "-lm"
    )


@cache
def _libcuda() -> Path:
    return build_library("standin_cuda.c", folder_of_run(), "libcuda.so.1")


@cache
def _nvml() -> Path:
    return build_library("standin_nvml.c", folder_of_run(), "libnvidia-ml.so.1")
