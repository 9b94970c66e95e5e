"""Keys of the packages of the universe: what a solve decides, each kind with a key of its own.

| key                                         | its candidates                                                          |
| ------------------------------------------- | ----------------------------------------------------------------------- |
| driver, GPU, Python, platform, root, index, limit | the one fact, or limit, of this request                           |
| framework                                   | the builds of a framework                                               |
| libraries                                   | the channels through which the CUDA libraries of a build may come       |
| CUDA, cuDNN                                 | CUDA lines and cuDNN builds, each through one channel; all frameworks share one |
| CUDA and cuDNN of the system                | those of the system, for a framework beside installed ones              |
| cuDNN in a folder                           | wheels of cuDNN apart from the others, for the same                     |
| pip package                                 | releases of a package; with an extra, a package of its own              |
| installed                                   | an installed framework that nobody asked for and that works             |
| slot                                        | the package that owns these files; two of them never meet in one environment |

Apt packages have no key: they follow from the CUDA and the cuDNN that come through apt.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from packaging.utils import canonicalize_name


class Key(Struct, frozen=True, cache_hash=True):
    """Key of one package of the universe; its text is for people and for a stable order."""


class FactKey(Key, frozen=True, cache_hash=True):
    """What there is one of: the driver, the Python, the architecture, the C library, the distribution, the user, the indexes."""

    name: Literal["driver", "python", "arch", "glibc", "os", "root", "index"]

    def __str__(self) -> str:
        return self.name


class GpuKey(Key, frozen=True, cache_hash=True):
    """One GPU of the machine."""

    number: int

    def __str__(self) -> str:
        return f"gpu:{self.number}"


class LimitKey(Key, frozen=True, cache_hash=True):
    """The user's limit on CUDA or cuDNN."""

    library: Literal["cuda", "cudnn"]

    def __str__(self) -> str:
        return f"limit:{self.library}"


class FrameworkKey(Key, frozen=True, cache_hash=True):
    """A framework."""

    name: str

    def __str__(self) -> str:
        return f"framework:{self.name}"


class LibrariesKey(Key, frozen=True, cache_hash=True):
    """The CUDA libraries of a framework."""

    framework: str

    def __str__(self) -> str:
        return f"libraries:{self.framework}"


class CudaKey(Key, frozen=True, cache_hash=True):
    """The CUDA runtime that frameworks share, or that of the system beside it."""

    of_system: bool = False

    def __str__(self) -> str:
        return "cuda:system" if self.of_system else "cuda"


class CudnnKey(Key, frozen=True, cache_hash=True):
    """The cuDNN that frameworks share, that of the system beside it, or one in a folder of its own."""

    of_system: bool = False
    in_folder: bool = False

    def __str__(self) -> str:
        return "cudnn:system" if self.of_system else "cudnn:folder" if self.in_folder else "cudnn"


class PipKey(Key, frozen=True, cache_hash=True):
    """A pip package, or the same with extras."""

    name: str
    extras: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`cuda-toolkit[cublas,cudart]`."""
        return f"{self.name}[{','.join(self.extras)}]" if self.extras else self.name

    def __str__(self) -> str:
        return f"pip:{self.full_name}"


class InstalledKey(Key, frozen=True, cache_hash=True):
    """An installed framework that nobody asked for."""

    framework: str

    def __str__(self) -> str:
        return f"installed:{self.framework}"


class SlotKey(Key, frozen=True, cache_hash=True):
    """Files that one package of an environment owns, or a property that all its frameworks share."""

    files: str

    def __str__(self) -> str:
        return f"slot:{self.files}"


DRIVER = FactKey("driver")
PYTHON = FactKey("python")
ARCH = FactKey("arch")
GLIBC = FactKey("glibc")
OS = FactKey("os")
ROOT = FactKey("root")
"""Whether the user may become root."""
INDEX = FactKey("index")
"""What the configured indexes have."""
CUDA_LIMIT = LimitKey("cuda")
CUDNN_LIMIT = LimitKey("cudnn")
CUDA = CudaKey()
CUDA_OF_SYSTEM = CudaKey(of_system=True)
CUDNN = CudnnKey()
CUDNN_OF_SYSTEM = CudnnKey(of_system=True)
CUDNN_IN_FOLDER = CudnnKey(in_folder=True)


def pip_key(name: str, extras: Iterable[str] = ()) -> PipKey:
    """Return the key of a pip package by any spelling of its name."""
    return _pip_key(name, frozenset(extras))


@lru_cache(maxsize=8192)
def _pip_key(name: str, extras: frozenset[str]) -> PipKey:
    return PipKey(canonicalize_name(name), tuple(sorted({canonicalize_name(extra) for extra in extras})))
