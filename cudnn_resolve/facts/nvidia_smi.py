"""What nvidia-smi prints."""

from __future__ import annotations

import re

from msgspec import Struct

from cudnn_resolve.version import CudaVersion, DriverVersion

QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "compute_cap", "name")
"""Fields asked with `--query-gpu`, the name last because only it may hold a comma."""

OLD_QUERY_FIELDS = ("uuid", "driver_version", "memory.total", "name")
"""The same for an nvidia-smi before R510, which refuses `compute_cap`."""

_CUDA = re.compile(r"CUDA(?:\s+UMD)?\s+Version\s*:\s*(\d{1,2}\.\d{1,2})\b")
_DRIVER = re.compile(r"(?:Driver|KMD)\s+Version\s*:\s*(\d{2,4}(?:\.\d+){1,3})\b")
_LIBRARY = re.compile(r"NVIDIA-SMI\s+(\d{2,4}(?:\.\d+){1,3})\b")


class SmiGpu(Struct, frozen=True, kw_only=True):
    """One line of the query; None = `[N/A]`, `[Not Supported]` or not asked."""

    uuid: str | None
    driver: str | None
    memory_mib: int | None
    capability: str | None
    name: str | None


class Banner(Struct, frozen=True, kw_only=True):
    """The head of a plain nvidia-smi; None = not said."""

    driver: DriverVersion | None
    """Of the kernel module."""
    library: DriverVersion | None
    """Of nvidia-smi's own release, which comes with the libraries."""
    cuda: CudaVersion | None
    """Newest CUDA that the libcuda found by the loader supports."""


def parse_query(text: str, fields: tuple[str, ...] = QUERY_FIELDS) -> tuple[SmiGpu, ...]:
    """The GPUs in the answer to `--query-gpu=<fields> --format=csv,noheader,nounits`; other lines are passed over.

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
        found.append(
            SmiGpu(
                uuid=row["uuid"],
                driver=driver if driver and re.fullmatch(r"\d{2,4}(\.\d+){1,3}", driver) else None,
                memory_mib=int(memory) if memory and re.fullmatch(r"\d{1,9}", memory) else None,
                capability=capability if capability and re.fullmatch(r"\d{1,2}\.\d", capability) else None,
                name=row["name"],
            )
        )
    return tuple(found)


def parse_banner(text: str) -> Banner:
    """What the head of a plain `nvidia-smi` says.

    Samples: `| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |` and, from R610 on,
    `| NVIDIA-SMI 615.36   KMD Version: 615.36   CUDA UMD Version: 13.3 |`.
    """
    driver, library, cuda = _DRIVER.search(text), _LIBRARY.search(text), _CUDA.search(text)
    return Banner(
        driver=DriverVersion(driver[1]) if driver else None,
        library=DriverVersion(library[1]) if library else None,
        cuda=CudaVersion(cuda[1]) if cuda else None,
    )


def _said(value: str) -> str | None:
    """The value, or None for nvidia-smi's ways to say nothing (`[N/A]`, `[Unknown Error]`)."""
    return None if not value or value.startswith("[") or value in ("N/A", "Not Supported") else value[:200]
