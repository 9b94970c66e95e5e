"""Texts of the NVIDIA driver: nvidia-smi, the kernel's files, and which GPUs CUDA_VISIBLE_DEVICES leaves visible."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from cudnn_resolve.facts.model import Gpu
from cudnn_resolve.version import CudaVersion, DriverVersion

_COMPAT = r"/(?:cuda[^/]*/compat[^/]*|cuda-compat[^/]*|compat)/"


def is_compat(place: str) -> bool:
    """True for a directory of a forward-compatibility package, whose libcuda is not the driver's own, or a file in it."""
    return re.search(_COMPAT, f"{place}/") is not None


# --- nvidia-smi ---

QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "compute_cap", "name")
"""Fields asked with `--query-gpu`, the name last because only it may hold a comma."""

OLD_QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "name")
"""The same for an nvidia-smi before R510, which refuses `compute_cap`."""

_CUDA = r"CUDA(?:\s+UMD)?\s+Version\s*:\s*(\d{1,2}\.\d{1,2})\b"
_DRIVER = r"(?:Driver|KMD)\s+Version\s*:\s*(\d{2,4}(?:\.\d{1,9}){1,3})\b"
_LIBRARY = r"NVIDIA-SMI\s+(\d{2,4}(?:\.\d{1,9}){1,3})\b"


class Banner(Struct, frozen=True, kw_only=True):
    """The head of a plain nvidia-smi; None = not said."""

    driver: DriverVersion | None
    """Of the kernel module."""
    library: DriverVersion | None
    """Of nvidia-smi's own release, which comes with the libraries."""
    cuda: CudaVersion | None
    """Newest CUDA that the libcuda found by the loader supports."""


def parse_query(text: str, fields: tuple[str, ...] = QUERY_FIELDS) -> tuple[tuple[Gpu, str | None], ...]:
    """Parse each GPU with its driver in the answer to `--query-gpu=<fields> --format=csv,noheader,nounits`; other lines are passed over.

    Sample: `GPU-5a8d6e2c-…, 550.54.15, 15360, 7.5, Tesla T4`.
    """
    found = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        if len(values) != len(fields) or not values[0].startswith("GPU-"):
            continue
        row = {name: _said(value) for name, value in zip(fields, values, strict=True)}
        memory = row.get("memory.total")
        driver = row["driver_version"]
        capability = row.get("compute_cap")
        gpu = Gpu(
            name=row["name"],
            compute_capability=capability if capability and re.fullmatch(r"\d{1,2}\.\d", capability) else None,
            memory_mib=int(memory) if memory and re.fullmatch(r"\d{1,9}", memory) else None,
            uuid=row["uuid"],
        )
        found.append((gpu, driver if driver and re.fullmatch(r"\d{2,4}(\.\d+){1,3}", driver) else None))
    return tuple(found)


def parse_banner(text: str) -> Banner:
    """Parse the banner of a plain `nvidia-smi`.

    Samples: `| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |` and, from R610 on,
    `| NVIDIA-SMI 615.36   KMD Version: 615.36   CUDA UMD Version: 13.3 |`.
    """
    driver, library, cuda = re.search(_DRIVER, text), re.search(_LIBRARY, text), re.search(_CUDA, text)
    return Banner(
        driver=DriverVersion(driver[1]) if driver else None,
        library=DriverVersion(library[1]) if library else None,
        cuda=CudaVersion(cuda[1]) if cuda else None,
    )


def _said(value: str) -> str | None:
    """The value, or None for nvidia-smi's ways to say nothing (`[N/A]`, `[Unknown Error]`)."""
    return None if not value or value.startswith("[") or value in ("N/A", "Not Supported") else value[:200]


# --- /proc, /sys and file names ---

_MODULE = r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+){1,3})\b"
_VERSION = r"(?<![\d.])(\d{2,4}(?:\.\d+){1,3})(?![\d.])"
_LIBRARY_FILE = r"\.so\.(\d{2,4}\.\d+(?:\.\d+){0,2})$"
_TEGRA = r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)"


def parse_driver_version(text: str) -> DriverVersion | None:
    """The version in `/proc/driver/nvidia/version`, or None where the text gives none.

    Samples: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023` and, of the open module,
    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder@U16-I3-B14-4-3)  …`.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    found = re.search(_MODULE, line) or re.search(_VERSION, line)
    return DriverVersion(found[1]) if found else None


def parse_module_version(text: str) -> DriverVersion | None:
    """The version in `/sys/module/nvidia/version`, `550.54.15`, or None."""
    found = re.fullmatch(_VERSION, text.strip())
    return DriverVersion(found[1]) if found else None


def library_version(path: str) -> DriverVersion | None:
    """The driver that a library's file name gives, `/usr/lib/…/libcuda.so.550.54.15`; None for `libcuda.so.1`."""
    found = re.search(_LIBRARY_FILE, path)
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
    found = re.search(_TEGRA, text)
    return f"{found[1]}.{found[2]}" if found else None


def effective_user(text: str) -> int | None:
    """The effective user id in `/proc/self/status` (`Uid:	1000	1000	1000	1000`: real, effective, …), or None."""
    found = re.search(r"^Uid:\s*\d+\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


# --- CUDA_VISIBLE_DEVICES ---

_INDEX = r"\s*(-?\d+)"


def visible_devices(value: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]] = ()) -> tuple[bool, ...]:
    """Decide for each GPU whether it is visible under that value; `instances` are the UUIDs of each GPU's MIG instances.

    Indices and UUIDs or their unique beginnings (`GPU-5a8d`, `MIG-…`) in a comma-separated list; the first entry that names no
    device ends it, an entry named twice leaves nothing visible, and the empty text hides all. Indices count in the order in which
    `uuids` come, which is CUDA's own only under CUDA_DEVICE_ORDER=PCI_BUS_ID or on equal cards.
    Source: CUDA C++ Programming Guide, CUDA environment variables.
    """
    chosen: list[int] = []
    named: list[str] = []
    for entry in value.split(","):
        index = _position(entry.strip(), uuids, instances)
        if index is None:
            break
        word = entry.strip().lower() if not entry.strip()[:1].isdigit() else str(index)
        if word in named:
            return (False,) * len(uuids)
        named.append(word)
        chosen.append(index)
    return tuple(index in chosen for index in range(len(uuids)))


def _position(entry: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]]) -> int | None:
    """The GPU that one entry names, or None."""
    number = re.match(_INDEX, entry)
    if number:
        index = int(number[1])
        return index if 0 <= index < len(uuids) else None
    if entry.upper().startswith("GPU-"):
        fits = [index for index, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(entry.lower())]
        return fits[0] if len(fits) == 1 else None
    if entry.upper().startswith("MIG-GPU-"):  # before R470: MIG-GPU-<uuid>/<instance>/<compute instance>
        return _position(entry[4:].partition("/")[0], uuids, ())
    if entry.upper().startswith("MIG-"):
        fits = [index for index, inner in enumerate(instances) if any(one.lower().startswith(entry.lower()) for one in inner)]
        return fits[0] if len(fits) == 1 else None
    return None
