"""What the files of a CUDA toolkit, nvcc and package names say of its version."""

from __future__ import annotations

import json
import re

from cudnn_resolve.version import CudaVersion

_PLAIN = re.compile(r"CUDA Version\s+(\d{1,2}\.\d{1,2}(?:\.\d+)?)")
_NVCC = re.compile(r"release (\d{1,2}\.\d{1,2}), V(\d+\.\d+\.\d+)")
_HEADER = re.compile(r"^#define\s+(?:CUDART_VERSION|CUDA_VERSION)\s+(\d{4,5})\b", re.MULTILINE)
_DIRECTORY = re.compile(r"cuda-(\d{1,2}\.\d{1,2})$")
_APT = re.compile(r"(?:cuda-toolkit|cuda-cudart|cuda-libraries)-(\d{1,2})-(\d{1,2})$")
_CONDA = re.compile(r"(cuda-toolkit|cudatoolkit|cuda-cudart|cuda-version)-(\d+\.\d+[\d.]*)-[^-]+\.json$")
_HERE = re.compile(r"^#\$ _HERE_=(/.*)$", re.MULTILINE)
_MAJOR = re.compile(r"-D__CUDACC_VER_MAJOR__=(\d{1,2})\b")
_MINOR = re.compile(r"-D__CUDACC_VER_MINOR__=(\d{1,2})\b")


def parse_version_json(text: str) -> CudaVersion | None:
    """The release in a toolkit's version.json, `{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, …}`; None where it is not there."""
    try:
        version = json.loads(text)["cuda"]["version"]
        return CudaVersion(version)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_version_text(text: str) -> CudaVersion | None:
    """The release line in a toolkit's version.txt (before 11.1), `CUDA Version 10.1.243`: 10.1; None where there is none.

    The third number is that of a build, not of a release, and is left out.
    """
    found = _PLAIN.search(text)
    return CudaVersion(CudaVersion(found[1]).line) if found else None


def parse_header(text: str) -> CudaVersion | None:
    """The line that cuda_runtime_api.h or cuda.h defines, `#define CUDART_VERSION  12040`; None where it defines none."""
    found = _HEADER.search(text)
    return CudaVersion.from_encoded(int(found[1])) if found else None


def parse_nvcc(text: str) -> CudaVersion | None:
    """The line that `nvcc --version` prints, `Cuda compilation tools, release 12.4, V12.4.131`; None where it prints none."""
    found = _NVCC.search(text)
    return CudaVersion(found[1]) if found else None


def parse_nvcc_dryrun(text: str) -> tuple[str | None, CudaVersion | None]:
    """Directory and version of the compiler that really runs, from the output of `nvcc --dryrun`; None for what it does not say.

    Samples: `#$ _HERE_=/usr/local/cuda-12.4/bin` and, in the call of the host compiler, `-D__CUDACC_VER_MAJOR__=12`.
    """
    home, major, minor = _HERE.search(text), _MAJOR.search(text), _MINOR.search(text)
    version = CudaVersion(f"{major[1]}.{minor[1]}") if major and minor else None
    return (home[1].strip() if home else None), version


def directory_version(path: str) -> CudaVersion | None:
    """The line in a directory's name, `/usr/local/cuda-12.4`; None for `/usr/local/cuda`."""
    found = _DIRECTORY.search(path)
    return CudaVersion(found[1]) if found else None


def apt_line(package: str) -> str | None:
    """The CUDA line whose runtime an apt package holds, `12.4` for `cuda-cudart-12-4`; None for any other package."""
    found = _APT.fullmatch(package)
    return f"{found[1]}.{found[2]}" if found else None


def conda_part(file_name: str) -> tuple[str, CudaVersion] | None:
    """Name and version of a CUDA runtime in the name of a conda-meta file, `cuda-cudart-12.4.127-0.json`; None for another."""
    found = _CONDA.fullmatch(file_name)
    try:
        return (found[1], CudaVersion(found[2].strip("."))) if found else None
    except ValueError:
        return None
