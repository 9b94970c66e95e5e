"""What the kernel's files say of the driver and of NVIDIA cards."""

from __future__ import annotations

import re

from cudnn_resolve.version import DriverVersion

_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+){1,3})\b")
_VERSION = re.compile(r"(?<![\d.])(\d{2,4}(?:\.\d+){1,3})(?![\d.])")
_LIBRARY = re.compile(r"\.so\.(\d{2,4}\.\d+(?:\.\d+){0,2})$")
_TEGRA = re.compile(r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)")


def parse_driver_version(text: str) -> DriverVersion | None:
    """The version in `/proc/driver/nvidia/version`, or None where the text gives none.

    Samples: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023` and, of the open module,
    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder@U16-I3-B14-4-3)  …`.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    found = _MODULE.search(line) or _VERSION.search(line)
    return DriverVersion(found[1]) if found else None


def parse_module_version(text: str) -> DriverVersion | None:
    """The version in `/sys/module/nvidia/version`, `550.54.15`, or None."""
    found = _VERSION.fullmatch(text.strip())
    return DriverVersion(found[1]) if found else None


def library_version(path: str) -> DriverVersion | None:
    """The driver that a library's file name gives, `/usr/lib/…/libcuda.so.550.54.15`; None for `libcuda.so.1`."""
    found = _LIBRARY.search(path)
    return DriverVersion(found[1]) if found else None


def parse_gpu_information(text: str) -> dict[str, str]:
    """The lines of `/proc/driver/nvidia/gpus/<bus>/information`: `Model:  Tesla T4`, `GPU UUID: GPU-…`, `Bus Location: …`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            found[key.strip()] = value.strip()[:200]
    return found


def is_nvidia_display(vendor: str, device_class: str) -> bool:
    """True for a PCI device that is a display or 3D controller of NVIDIA: vendor `0x10de`, class `0x03…`."""
    return vendor.strip().lower() == "0x10de" and device_class.strip().lower().startswith("0x03")


def parse_tegra_release(text: str) -> str | None:
    """The Jetson Linux release of `/etc/nv_tegra_release`, `35.4.1`, or None.

    Sample: `# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: …`.
    """
    found = _TEGRA.search(text)
    return f"{found[1]}.{found[2]}" if found else None


def effective_user(text: str) -> int | None:
    """The effective user id in `/proc/self/status` (`Uid:	1000	1000	1000	1000`: real, effective, …), or None."""
    found = re.search(r"^Uid:\s*\d+\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None
