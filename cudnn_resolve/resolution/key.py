"""Keys of the packages in a universe: everything that a search decides.

| key                                         | its candidates                                                          |
| ------------------------------------------- | ----------------------------------------------------------------------- |
| driver, GPU, Python, platform, root, index  | the one fact of this machine                                            |
| limit on CUDA, on cuDNN, on upload times    | the one limit of this request                                           |
| framework                                   | builds of a framework                                                   |
| libraries                                   | channels that can provide the CUDA libraries of a build                 |
| CUDA, cuDNN                                 | CUDA lines and cuDNN builds, each through one channel; shared by all frameworks |
| CUDA and cuDNN of the system                | those of the system, for a framework next to installed ones             |
| cuDNN in a folder                           | cuDNN wheels in a separate folder, for the same purpose                 |
| pip package                                 | releases of a package; with extras, a package of its own                |
| installed                                   | an unrequested installed framework that works                           |
| slot                                        | the package that owns certain files; an environment holds one owner     |

Apt packages have no key: they follow from the CUDA and the cuDNN that come through apt.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar, Literal

from msgspec import Struct
from packaging.utils import canonicalize_name


class Key(Struct, frozen=True, cache_hash=True):
    """Key of a package in the universe; `str` gives its display name, which also sorts keys: the kind and the first field."""

    kind: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.kind}:{getattr(self, self.__struct_fields__[0])}"


class FactKey(Key, frozen=True, cache_hash=True):
    """A fact that the machine has one of."""

    name: Literal["driver", "python", "arch", "glibc", "os", "root", "index"]

    def __str__(self) -> str:
        return self.name


class GpuKey(Key, frozen=True, cache_hash=True):
    """A GPU of the machine."""

    kind = "gpu"
    number: int


class LimitKey(Key, frozen=True, cache_hash=True):
    """A limit that the user sets."""

    kind = "limit"
    subject: Literal["cuda", "cudnn", "uploads"]


class FrameworkKey(Key, frozen=True, cache_hash=True):
    """A framework."""

    kind = "framework"
    name: str


class LibrariesKey(Key, frozen=True, cache_hash=True):
    """The CUDA libraries of a framework."""

    kind = "libraries"
    framework: str


class CudaKey(Key, frozen=True, cache_hash=True):
    """The CUDA runtime that frameworks share, or that of the system."""

    of_system: bool = False

    def __str__(self) -> str:
        return "cuda:system" if self.of_system else "cuda"


class CudnnKey(Key, frozen=True, cache_hash=True):
    """The cuDNN that frameworks share, that of the system, or one in a separate folder."""

    of_system: bool = False
    in_folder: bool = False

    def __str__(self) -> str:
        return "cudnn:system" if self.of_system else "cudnn:folder" if self.in_folder else "cudnn"


class PipKey(Key, frozen=True, cache_hash=True):
    """A pip package, without or with extras."""

    name: str
    extras: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`cuda-toolkit[cublas,cudart]`."""
        return f"{self.name}[{','.join(self.extras)}]" if self.extras else self.name

    def __str__(self) -> str:
        return f"pip:{self.full_name}"


class InstalledKey(Key, frozen=True, cache_hash=True):
    """An unrequested installed framework."""

    kind = "installed"
    framework: str


class SlotKey(Key, frozen=True, cache_hash=True):
    """Files that one package of an environment owns, or a property that all its frameworks share."""

    kind = "slot"
    files: str


DRIVER = FactKey("driver")
PYTHON = FactKey("python")
ARCH = FactKey("arch")
GLIBC = FactKey("glibc")
OS = FactKey("os")
ROOT = FactKey("root")
"""Whether the user can become root."""
INDEX = FactKey("index")
"""Contents of the configured indexes."""
CUDA_LIMIT = LimitKey("cuda")
CUDNN_LIMIT = LimitKey("cudnn")
UPLOAD_LIMIT = LimitKey("uploads")
CUDA = CudaKey()
CUDA_OF_SYSTEM = CudaKey(of_system=True)
CUDNN = CudnnKey()
CUDNN_OF_SYSTEM = CudnnKey(of_system=True)
CUDNN_IN_FOLDER = CudnnKey(in_folder=True)


def pip_key(name: str, extras: Iterable[str] = ()) -> PipKey:
    """Key of a pip package, given any spelling of its name."""
    return _pip_key(name, frozenset(extras))


@lru_cache(maxsize=8192)
def _pip_key(name: str, extras: frozenset[str]) -> PipKey:
    return PipKey(canonicalize_name(name), tuple(sorted({canonicalize_name(extra) for extra in extras})))
