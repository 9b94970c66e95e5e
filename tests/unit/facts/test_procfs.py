from __future__ import annotations

import pytest

from cudnn_resolve.facts.driver_output import (
    effective_user,
    is_nvidia_display,
    library_version,
    parse_driver_version,
    parse_gpu_information,
    parse_module_version,
    parse_tegra_release,
)

CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder@U16)  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 13.2.0
"""
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.82  Release Build\n"
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022\n"
JETSON = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  35.4.1  Release Build  (buildbrain@mobile-u64-6422-d7000)\n"
UNHEARD = "NVRM version: something new 615.36.01 of 2027\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [(CLOSED, "535.104.05"), (OPEN, "550.54.15"), (ARM, "580.82"), (OLD, "390.157"), (JETSON, "35.4.1"), (UNHEARD, "615.36.01")],
)
def test_every_known_form_gives_the_version(text: str, version: str) -> None:
    assert str(parse_driver_version(text)) == version


@pytest.mark.parametrize("text", ["", "GCC version:  gcc version 12.3.0\n", "NVRM version: unknown\n", "NVRM version: 1\n"])
def test_a_text_without_a_driver_gives_none(text: str) -> None:
    assert parse_driver_version(text) is None


def test_the_module_file_gives_its_version() -> None:
    assert str(parse_module_version("550.54.15\n")) == "550.54.15"
    assert parse_module_version("") is None
    assert parse_module_version("550.54.15 (dirty)") is None


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib64/libcuda.so.550.54.15", "550.54.15"),
        ("/x/libnvidia-ml.so.580.82", "580.82"),
        ("/x/libcuda.so.1", "None"),
        ("/x/libcuda.so.1.1", "None"),
        ("/x/libcuda.so", "None"),
    ],
)
def test_a_library_carries_the_driver_in_its_name(path: str, version: str) -> None:
    assert str(library_version(path)) == version


def test_the_lines_of_a_gpu_are_read() -> None:
    text = "Model: \t\t Tesla T4\nIRQ:   \t\t 45\nGPU UUID: \t GPU-5a8d6e2c-0000-1111-2222-333344445555\nVideo BIOS:\n"

    assert parse_gpu_information(text) == {"Model": "Tesla T4", "IRQ": "45", "GPU UUID": "GPU-5a8d6e2c-0000-1111-2222-333344445555"}


@pytest.mark.parametrize(
    ("vendor", "device_class", "expected"),
    [("0x10de\n", "0x030200\n", True), ("0x10DE", "0x030000", True), ("0x10de", "0x040300", False), ("0x1002", "0x030000", False)],
)
def test_only_display_controllers_of_nvidia_count(vendor: str, device_class: str, expected: bool) -> None:  # noqa: FBT001
    assert is_nvidia_display(vendor, device_class) is expected


def test_jetson_linux_names_its_release() -> None:
    assert parse_tegra_release("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64") == "35.4.1"
    assert parse_tegra_release("# nothing") is None


def test_the_effective_user_is_the_second_number() -> None:
    assert effective_user("Name:\tpython\nUid:\t1000\t0\t1000\t1000\n") == 0
    assert effective_user("Name:\tpython\n") is None
