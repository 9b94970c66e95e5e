"""Parser of CUDA library file names: `libcudnn_ops_infer.so.8`, `cudnn_ops64_9.dll`, `cudart64_110.dll`."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_ELF = r"(?:lib)?([A-Za-z][\w-]{0,60}?)\.so(?:\.(\d{1,3}(?:\.\d{1,4}){0,4}))?"
_DLL = r"(?i)([A-Za-z][\w-]{0,60}?)(?:64|32)?(?:_(\d{1,4}))?(?:_(\d{1,3}))?\.dll"
_FAMILIES = (
    ("cudnn", r"(?i)cudnn(?:[_-].*)?|cudnn"),
    ("tensorrt", r"(?i)nvinfer.*|nvonnxparser.*|nvparsers.*|nvcaffe_parser.*"),
    ("ptxjit", r"(?i)nvidia-(?!ml|cfg).*|nvcuvid|nvoptix.*"),
    ("driver", r"(?i)cuda|nvcuda|nvidia-ml|nvml|nvidia-cfg"),
    ("zlib", r"(?i)zlibwapi|zlib1?"),
    (
        "cuda",
        (
            r"(?i)cudart.*|cublas.*|cufft.*|curand.*|cusolver.*|cusparse.*|nvrtc.*|nvjitlink.*|nvjpeg.*|npp.*|nccl.*|nvtoolsext.*|nvshmem.*|cufile.*"
            r"|cutensor.*|custatevec|cudensitymat|cudss.*|nvfatbin.*|cudadevrt|nvvm|nvptxcompiler.*|nvblas"
        ),
    ),
    ("cupti", r"(?i)cupti.*"),
)


class Library(Struct, frozen=True, kw_only=True):
    """Parsed file name of a shared library; `family` is cudnn, cuda, cupti, driver, ptxjit, tensorrt, zlib or other."""

    file: str
    family: str
    stem: str
    """Lower case, without `lib` and without versions: `cudnn_ops_infer`, `cudart`."""
    version: str | None = None
    """Version after `.so.` (`9`, `11.0`), or a DLL's number as a version (`10.1` for cudart64_101)."""
    windows: bool = False

    @property
    def major(self) -> int | None:
        """The first number of the version."""
        return int(self.version.partition(".")[0]) if self.version else None

    @property
    def component(self) -> str:
        """Short name as the tables spell it: `cudnn`, `cublasLt`, `nvjitlink`."""
        known = {"cublaslt": "cublasLt", "nvtoolsext": "nvtx", "nvrtc-builtins": "nvrtc"}
        return "cudnn" if self.family == "cudnn" else known.get(self.stem, self.stem)


@lru_cache(maxsize=1024)
def library_of(name: str) -> Library | None:
    """Parse a file name or path; None if it is not a library."""
    base = re.split(r"[/\\]", name.strip().strip("'\"`"))[-1][:120]
    if found := re.fullmatch(_ELF, base):
        stem = found[1].lower()
        return Library(file=base, family=_family(stem), stem=stem, version=found[2])
    if found := re.fullmatch(_DLL, base):
        stem = found[1].lower()
        return Library(file=base, family=_family(stem), stem=stem, version=_dll_version(stem, found[2]), windows=True)
    return None


def _family(stem: str) -> str:
    return next((name for name, pattern in _FAMILIES if re.fullmatch(pattern, stem)), "other")


def _dll_version(stem: str, number: str | None) -> str | None:
    """`cudnn64_8` is 8, `cudart64_110` 11.0, `cudart64_101` 10.1, `cublas64_11` 11, `cudart64_12` 12, `cudart64_90` 9.0."""
    if number is None or stem.startswith("cudnn"):
        return number
    if len(number) == 3:
        return f"{number[:2]}.{number[2]}"
    if len(number) == 2 and int(number) >= 50:
        return f"{number[0]}.{number[1]}"
    return number
