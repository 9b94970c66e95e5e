"""Facts: one frozen value for each thing that is known of a machine.

`UNKNOWN` means that nobody asked or nobody could answer; it is never the same as absent (`None`, or an empty tuple).
The JSON form of `Facts` is what `detect --format json` prints; `facts.codec` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct, field

T = TypeVar("T")


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


def or_none(value: T | Unknown) -> T | None:
    """The value, with UNKNOWN and absent both as None, for places where the difference does not matter."""
    return None if isinstance(value, Unknown) else value


class Platform(Struct, frozen=True, kw_only=True):
    """Operating system; None = unknown."""

    system: str | None = None
    """Lower case, `linux`."""
    arch: str | None = None
    """`x86_64` or `aarch64`."""
    distribution: str | None = None
    """The ID of os-release, `ubuntu`."""
    release: str | None = None
    """The VERSION_ID of os-release, `22.04`."""
    glibc: str | None = None
    """`2.35`; None also where the C library is another one."""


class Python(Struct, frozen=True, kw_only=True):
    """The target interpreter; None = unknown."""

    version: str | None = None
    """`3.11.13`, or only `3.11` where somebody said no more."""
    path: str | None = None
    implementation: str | None = None
    """`cpython`."""
    externally_managed: bool | None = None
    """True where the environment carries an EXTERNALLY-MANAGED marker (PEP 668)."""
    prefix: str | None = None
    """`sys.prefix`."""
    free_threaded: bool | None = None
    """True for a build without the GIL (tags `cp313t`)."""


class Driver(Struct, frozen=True, kw_only=True):
    """NVIDIA driver; None = unknown."""

    version: str | None = None
    """Of the user-space library where both are known, `550.54.15`."""
    cuda: str | None = None
    """Newest CUDA that the driver itself supports, `12.4`."""
    kernel_module: str | None = None
    """Version of the loaded kernel module, where it was read apart."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU; None = unknown."""

    name: str | None = None
    compute_capability: str | None = None
    """`7.5`."""
    memory_mib: int | None = None
    uuid: str | None = None
    hidden: bool = False
    """True where CUDA_VISIBLE_DEVICES keeps programs from seeing it."""


class Toolkit(Struct, frozen=True, kw_only=True):
    """One CUDA toolkit or the runtime part of one."""

    version: str | None = None
    """`12.4` or `12.4.1`; None = unknown."""
    path: str | None = None
    source: str = "other"
    """`apt`, `runfile`, `conda`, `pip` or `other`."""


class CudnnCopy(Struct, frozen=True, kw_only=True):
    """One copy of cuDNN that could be loaded."""

    version: str | None = None
    """`9.3.0.75`, or `9.3.0` where the build is not known."""
    soname: int | None = None
    """The number in `libcudnn.so.9`."""
    cuda: str | None = None
    """CUDA major, or more where known, that it was built for."""
    path: str | None = None
    """Directory that holds it."""
    source: str = "other"
    """`apt`, `runfile`, `conda`, `pip` or `other`."""
    complete: bool | None = None
    """True where every sub-library of its release is there and all are of one release, as far as whoever looked knows the release."""
    parts: tuple[str, ...] | None = None
    """The sub-libraries that are there, `ops`, `cnn`; None = nobody looked."""
    owner: str | None = None
    """Package or framework that brought it, `nvidia-cudnn-cu12`."""
    problems: tuple[str, ...] = ()
    """What is wrong with it, in words: missing parts, mixed releases, libraries it needs and that cannot be found."""


class WouldLoad(Struct, frozen=True, kw_only=True):
    """The libcudnn that a framework would load."""

    version: str | None = None
    path: str | None = None
    because: str = ""
    """The rule of the loader that decides, in words."""


class InstalledFramework(Struct, frozen=True, kw_only=True):
    """A framework in the target environment."""

    name: str
    """Distribution name, normalized: `tensorflow`, `cupy-cuda12x`."""
    version: str
    variant: str | None = None
    """`cu124`, `cpu`, …; None = unknown."""
    cuda_built: str | None = None
    cudnn_built: str | None = None
    would_load: WouldLoad | None = None
    """None = not asked, or it loads no cuDNN."""


class Loader(Struct, frozen=True, kw_only=True):
    """What the dynamic loader would search."""

    ld_library_path: tuple[str, ...] = ()
    ldconfig: tuple[str, ...] = ()
    """Paths in the linker cache of the libraries that matter here (CUDA, cuDNN, driver)."""


class Packages(Struct, frozen=True, kw_only=True):
    """Installed packages, names as pip (normalized) and dpkg write them."""

    pip: Mapping[str, str] | Unknown = UNKNOWN
    apt: Mapping[str, str] | Unknown = UNKNOWN
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """`Requires-Dist` lines of installed wheels, where they were read."""


class Problem(Struct, frozen=True, kw_only=True):
    """Something that could not be asked, or that is wrong with the machine."""

    what: str
    why: str


class Facts(Struct, frozen=True, kw_only=True):
    """Everything known of one machine and of one Python environment on it."""

    platform: Platform = Platform()
    python: Python = Python()
    driver: Driver | Unknown | None = UNKNOWN
    """None = there is no driver."""
    gpus: tuple[Gpu, ...] | Unknown = UNKNOWN
    cuda_toolkits: tuple[Toolkit, ...] | Unknown = UNKNOWN
    cudnn: tuple[CudnnCopy, ...] | Unknown = UNKNOWN
    frameworks: tuple[InstalledFramework, ...] | Unknown = UNKNOWN
    loader: Loader | Unknown = UNKNOWN
    packages: Packages = Packages()
    container: str | Unknown | None = UNKNOWN
    """`docker`, `colab`, `kaggle`, `wsl`; None = none of them."""
    root: bool | None = None
    """True where the user may become root (is root, or sudo without a password); None = unknown."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Dotted fact (`driver.version`) to how it was learnt."""
    problems: tuple[Problem, ...] = ()
    note: str | None = None
