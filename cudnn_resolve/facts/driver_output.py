"""Parsers for the NVIDIA driver: nvidia-smi, files of the kernel, and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from cudnn_resolve.facts.model import Gpu
from cudnn_resolve.version import CudaVersion, DriverVersion

_COMPAT = r"/(?:cuda[^/]*/compat[^/]*|cuda-compat[^/]*|compat)/"


def is_compat(place: str) -> bool:
    """Whether a path is in a directory of a forward-compatibility package, whose libcuda is not the driver's own."""
    return re.search(_COMPAT, f"{place}/") is not None


# --- nvidia-smi ---

QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "compute_cap", "name")
"""Fields for `--query-gpu`; the name comes last, because only it may contain a comma."""

OLD_QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "name")
"""The same for nvidia-smi before R510, which rejects `compute_cap`."""

_CUDA = r"CUDA(?:\s+UMD)?\s+Version\s*:\s*(\d{1,2}\.\d{1,2})\b"
_DRIVER = r"(?:Driver|KMD)\s+Version\s*:\s*(\d{2,4}(?:\.\d{1,9}){1,3})\b"
_LIBRARY = r"NVIDIA-SMI\s+(\d{2,4}(?:\.\d{1,9}){1,3})\b"


class Banner(Struct, frozen=True, kw_only=True):
    """Header of a plain nvidia-smi; None = not shown."""

    driver: DriverVersion | None
    """Version of the kernel module."""
    library: DriverVersion | None
    """Version of nvidia-smi, which comes with the user-space libraries."""
    cuda: CudaVersion | None
    """Newest CUDA of the libcuda that the loader finds."""


def parse_query(text: str, fields: tuple[str, ...] = QUERY_FIELDS) -> tuple[tuple[Gpu, str | None], ...]:
    """GPUs, each with its driver, in the output of `--query-gpu=<fields> --format=csv,noheader,nounits`; other lines are skipped.

    Sample: `GPU-5a8d6e2c-…, 550.54.15, 15360, 7.5, Tesla T4`.
    """
    gpus = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        if len(values) != len(fields) or not values[0].startswith("GPU-"):
            continue
        row = {name: known_answer(value) for name, value in zip(fields, values, strict=True)}
        memory = row.get("memory.total")
        driver = row["driver_version"]
        capability = row.get("compute_cap")
        gpu = Gpu(
            name=row["name"],
            compute_capability=capability if capability and re.fullmatch(r"\d{1,2}\.\d", capability) else None,
            memory_mib=int(memory) if memory and re.fullmatch(r"\d{1,9}", memory) else None,
            uuid=row["uuid"],
        )
        gpus.append((gpu, driver if driver and re.fullmatch(r"\d{2,4}(\.\d+){1,3}", driver) else None))
    return tuple(gpus)


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


def known_answer(value: str | None) -> str | None:
    """A value of nvidia-smi; None for its placeholders (`[N/A]`, `[Unknown Error]`)."""
    unknown = ("N/A", "Not Supported", "Requested functionality has been deprecated")
    return None if not value or value.startswith("[") or value in unknown else value[:200]


# --- /proc, /sys and file names ---

_MODULE = r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+){1,3})\b"
_VERSION = r"(?<![\d.])(\d{2,4}(?:\.\d+){1,3})(?![\d.])"
_LIBRARY_FILE = r"\.so\.(\d{2,4}\.\d+(?:\.\d+){0,2})$"
_TEGRA = r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)"


def parse_driver_version(text: str) -> DriverVersion | None:
    """Driver version in `/proc/driver/nvidia/version`; None if the text has none.

    Samples: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023` and, of the open module,
    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder@U16-I3-B14-4-3)  …`.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    found = re.search(_MODULE, line) or re.search(_VERSION, line)
    return DriverVersion(found[1]) if found else None


def parse_module_version(text: str) -> DriverVersion | None:
    """Driver version in `/sys/module/nvidia/version`, `550.54.15`; None for another text."""
    found = re.fullmatch(_VERSION, text.strip())
    return DriverVersion(found[1]) if found else None


def library_version(path: str) -> DriverVersion | None:
    """Driver version in a library's file name, `/usr/lib/…/libcuda.so.550.54.15`; None for `libcuda.so.1`."""
    found = re.search(_LIBRARY_FILE, path)
    return DriverVersion(found[1]) if found else None


def parse_gpu_information(text: str) -> dict[str, str]:
    """Keys and values of `/proc/driver/nvidia/gpus/<bus>/information`: `Model:  Tesla T4`, `GPU UUID: GPU-…`, `Bus Location: …`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            found[key.strip()] = value.strip()[:200]
    return found


def is_nvidia_display(vendor: str, device_class: str) -> bool:
    """Whether a PCI device is a display or 3D controller of NVIDIA: vendor `0x10de`, class `0x03…`."""
    return vendor.strip().lower() == "0x10de" and device_class.strip().lower().startswith("0x03")


def parse_tegra_release(text: str) -> str | None:
    """Jetson Linux release in `/etc/nv_tegra_release`, `35.4.1`; None for another text.

    Sample: `# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: …`.
    """
    found = re.search(_TEGRA, text)
    return f"{found[1]}.{found[2]}" if found else None


def effective_user(text: str) -> int | None:
    """Effective user id in `/proc/self/status` (`Uid:	1000	1000	1000	1000`: real, effective, …); None for another text."""
    found = re.search(r"^Uid:\s*\d+\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


# --- CUDA_VISIBLE_DEVICES ---

_INDEX = r"\s*(-?\d+)"


def visible_devices(value: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]] = ()) -> tuple[bool, ...]:
    """Whether each GPU is visible under a value of CUDA_VISIBLE_DEVICES; `instances` are the UUIDs of each GPU's MIG instances.

    The value is a comma-separated list of indices, and of UUIDs or unique prefixes of them (`GPU-5a8d`, `MIG-…`). The first entry that
    names no device ends the list, a repeated entry hides all GPUs, and so does an empty value. Indices follow the order of `uuids`,
    which is CUDA's order only under CUDA_DEVICE_ORDER=PCI_BUS_ID or with identical cards.
    Source: CUDA C++ Programming Guide, CUDA environment variables.
    """
    visible: set[int] = set()
    names: set[str] = set()
    for entry in map(str.strip, value.split(",")):
        index = _position(entry, uuids, instances)
        if index is None:
            break
        name = str(index) if entry[:1].isdigit() else entry.lower()
        if name in names:
            return (False,) * len(uuids)
        names.add(name)
        visible.add(index)
    return tuple(index in visible for index in range(len(uuids)))


def _position(entry: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]]) -> int | None:
    """Index of the GPU that an entry names; None if it names none."""
    number = re.match(_INDEX, entry)
    if number:
        index = int(number[1])
        return index if 0 <= index < len(uuids) else None
    if entry.upper().startswith("GPU-"):
        matches = [index for index, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(entry.lower())]
        return matches[0] if len(matches) == 1 else None
    if entry.upper().startswith("MIG-GPU-"):  # before R470: MIG-GPU-<uuid>/<instance>/<compute instance>
        return _position(entry[4:].partition("/")[0], uuids, ())
    if entry.upper().startswith("MIG-"):
        matches = [index for index, inner in enumerate(instances) if any(uuid.lower().startswith(entry.lower()) for uuid in inner)]
        return matches[0] if len(matches) == 1 else None
    return None
