"""Versions of drivers, CUDA, cuDNN and GPU code: parsing, ordering and decoding, and equality of PEP 440 versions.

The versions of NVIDIA's parts are not PEP 440 versions: `450.80.02` keeps its zero, `12040` is an encoded 12.4, and `sm_90a` runs on
one card only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import total_ordering
from typing import Literal, NamedTuple, TypeVar

V = TypeVar("V")

_DOTTED = re.compile(r"\d{1,6}(?:\.\d{1,9}){0,4}")
_CAPABILITY = re.compile(r"(?:sm_|compute_)?(\d{1,2})(?:\.(\d)|(\d))([af])?", re.IGNORECASE)


@total_ordering
class Dotted:
    """Version of numbers and dots, such as `535.104.05`, `12.4` or `9.3.0.75`.

    Ordered by its numbers; trailing zeros do not count (`12.4 == 12.4.0`). `text` is the version as written.
    """

    __slots__ = ("_key", "parts", "text")

    def __init__(self, text: str) -> None:
        if not _DOTTED.fullmatch(text):
            raise ValueError(f"{text!r} is not a version made of numbers and dots")
        self.text = text
        self.parts = tuple(int(part) for part in text.split("."))
        key = self.parts
        while len(key) > 1 and key[-1] == 0:
            key = key[:-1]
        self._key = key

    @property
    def major(self) -> int:
        """The first number."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """The second number, 0 without one."""
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def line(self) -> str:
        """Major and minor, `12.4` for `12.4.127`."""
        return f"{self.major}.{self.minor}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dotted) and self._key == other._key

    def __lt__(self, other: Dotted) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class DriverVersion(Dotted):
    """Version of the NVIDIA driver, `535.104.05`; the first number is the branch (R535)."""


class CudaVersion(Dotted):
    """Version of a CUDA toolkit, or of the CUDA that a driver supports: `12.4` or `12.4.1`."""

    @classmethod
    def from_encoded(cls, number: int) -> CudaVersion | None:
        """Decode `cudaRuntimeGetVersion` (major*1000 + minor*10); None for an impossible number."""
        if not 1000 <= number <= 99990:
            return None
        return cls(f"{number // 1000}.{number % 1000 // 10}")


class CudnnVersion(Dotted):
    """Version of cuDNN, `8.9.7` or with its build number `8.9.7.29`."""

    @classmethod
    def from_encoded(cls, number: int) -> CudnnVersion | None:
        """Decode `cudnnGetVersion`; None for an impossible number.

        It is major*10000 + minor*100 + patch since cuDNN 9, and was major*1000 + minor*100 + patch before.
        Source: the macro CUDNN_VERSION in cudnn_version.h of both generations.
        """
        if 1000 <= number < 10000:
            return cls(f"{number // 1000}.{number % 1000 // 100}.{number % 100}")
        if 90000 <= number < 1000000:
            return cls(f"{number // 10000}.{number % 10000 // 100}.{number % 100}")
        return None

    def serves(self, built: CudnnVersion) -> bool:
        """True if code compiled against `built` can load this library: same major, minor at least as new.

        Source: NVIDIA cuDNN developer guide, API compatibility; TensorFlow and PyTorch check exactly this.
        """
        return self.major == built.major and self.minor >= built.minor


class Capability(NamedTuple):
    """Compute capability of a GPU, 7.5 as (7, 5)."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Parse `7.5`, `75`, `sm_75`, `sm_90a` or `compute_80`; ValueError for anything else."""
        return CodeTarget.parse(text).capability

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def sm(self) -> str:
        """Compiler spelling, `sm_75`."""
        return f"sm_{self.major}{self.minor}"


class CodeTarget(NamedTuple):
    """Kind of GPU code in a library: machine code (`cubin`) or intermediate code (`ptx`).

    `suffix` is "", "a" (this exact capability) or "f" (the family: same major, this minor or newer).
    """

    kind: Literal["cubin", "ptx"]
    capability: Capability
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> CodeTarget:
        """Parse `sm_90a`, `compute_80`, `8.6` or `86`; ValueError for anything else."""
        found = _CAPABILITY.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a compute capability such as 7.5, sm_75 or compute_80")
        if found[2] is None:  # 75, 120: the last digit is the minor
            digits = found[1] + found[3]
            major, minor = int(digits[:-1]), int(digits[-1])
        else:
            major, minor = int(found[1]), int(found[2])
        if major < 1:
            raise ValueError(f"{text!r} is not a compute capability such as 7.5, sm_75 or compute_80")
        kind: Literal["cubin", "ptx"] = "ptx" if text.strip().lower().startswith("compute_") else "cubin"
        return cls(kind, Capability(major, minor), (found[4] or "").lower())

    def runs_on(self, gpu: Capability) -> bool:
        """True if `gpu` can execute this code; PTX presupposes that the driver may compile it.

        Machine code runs on the same major with an equal or higher minor; PTX on any GPU at least as new. `a` targets run on that exact
        capability only, `f` targets on the same major. Source: CUDA C++ Programming Guide, sections on binary and PTX compatibility and on
        family- and architecture-specific features.
        """
        if self.suffix == "a":
            return gpu == self.capability
        if self.kind == "cubin" or self.suffix == "f":
            return gpu.major == self.capability.major and gpu.minor >= self.capability.minor
        return gpu >= self.capability

    def __str__(self) -> str:
        prefix = "sm" if self.kind == "cubin" else "compute"
        return f"{prefix}_{self.capability.major}{self.capability.minor}{self.suffix}"


def parsed(parse: Callable[[str], V], text: str | None) -> V | None:
    """Parse a version or capability; None if the text is empty or invalid (ValueError)."""
    try:
        return parse(text) if text else None
    except ValueError:
        return None


def same_version(a: str, b: str, *, local: bool = True) -> bool:
    """True if two texts are the same PEP 440 version, like `2.6` and `2.6.0`.

    Without `local`, `2.6.0` equals `2.6.0+cu124`: an index may serve a variant under its bare version. Two local parts must still agree.
    """
    from packaging.version import InvalidVersion, Version  # only comparisons of packages need it

    try:
        first, second = Version(a), Version(b)
    except InvalidVersion:
        return a == b
    return first == second or (not local and first.public == second.public and None in (first.local, second.local))


def versions_agree(first: str, second: str) -> bool:
    """True if two versions are equal as far as both go: 9.1 agrees with 9.1.0.70, not with 9.10.2.21."""
    return all(one == other for one, other in zip(first.split("."), second.split("."), strict=False))
