"""Facts: frozen values for everything that is known of a machine.

`UNKNOWN` means that a fact was not asked for or could not be determined, which is never the same as absent (`None`, or an empty tuple).
The JSON form of `Facts` is what `detect --format json` prints; `facts.codec` reads and writes it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

T = TypeVar("T")

Unknown = UnsetType
"""Type of `UNKNOWN`."""
UNKNOWN: Final = UNSET

# Values of a facts file. The descriptions complete "… is not".
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$", description="a text without NUL characters")]
Path = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=4096, description="a path: at most 4096 characters, none of them NUL")]
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        # Nothing that a terminal acts on: control characters, and those that change the direction of text.
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]*$(?!\n)",
        description="a name: 1 to 200 characters, none of them a control character",
    ),
]
Version = Annotated[str, Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,9}){0,4}$(?!\n)", description="a version made of numbers and dots")]
PythonVersion = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=r"^[1-9][0-9]?\.[0-9]{1,3}(?![0-9])[!-~]*$(?!\n)",
        description="a Python version such as 3.11 or 3.11.13",
    ),
]
ComputeCapability = Annotated[
    str,
    Meta(
        pattern=r"^\s*([Ss][Mm]_|[Cc][Oo][Mm][Pp][Uu][Tt][Ee]_)?([1-9][0-9]?(\.[0-9]|[0-9])|0[1-9]\.[0-9])[afAF]?\s*$(?!\n)",
        description="a compute capability such as 7.5, sm_75 or compute_80",
    ),
]
Source = Literal["apt", "runfile", "conda", "pip", "other"]


def architecture(name: str) -> str:
    """Name of an architecture as uname has it: `x86_64` for `AMD64`; any other name is unchanged."""
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(name.lower(), name)


def or_none(value: T | Unknown) -> T | None:
    """The value, or None for UNKNOWN, if the difference from absent does not matter."""
    return None if isinstance(value, Unknown) else value


class Platform(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Operating system; None = unknown."""

    system: Name | None = None
    """Lower case, `linux`."""
    arch: Name | None = None
    """`x86_64` or `aarch64`."""
    distribution: Name | None = None
    """The ID of os-release, `ubuntu`."""
    release: Name | None = None
    """The VERSION_ID of os-release, `22.04`."""
    glibc: Version | None = None
    """`2.35`; None also for another C library."""


class Python(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target interpreter; None = unknown."""

    version: PythonVersion | None = None
    """`3.11.13`, or only `3.11` if no more was stated."""
    path: Path | None = None
    implementation: Name | None = None
    """`cpython`."""
    externally_managed: bool | None = None
    """Whether the environment has an EXTERNALLY-MANAGED marker (PEP 668)."""
    prefix: Path | None = None
    """`sys.prefix`."""
    free_threaded: bool | None = None
    """Whether the build has no GIL (tags `cp313t`)."""

    @property
    def minor(self) -> str:
        """Its version without the patch release, `3.11`; empty if unknown."""
        return ".".join((self.version or "").split(".")[:2])


class Driver(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """NVIDIA driver; None = unknown."""

    version: Version | None = None
    """`550.54.15`; that of the user-space library if both are known."""
    cuda: Version | None = None
    """Newest CUDA that the driver supports, `12.4`."""
    kernel_module: Version | None = None
    """Version of the loaded kernel module, if it was read separately."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU; None = unknown."""

    name: Name | None = None
    compute_capability: ComputeCapability | None = None
    """`7.5`."""
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 30)] | None = None
    uuid: Name | None = None
    hidden: bool = False
    """Whether CUDA_VISIBLE_DEVICES hides it from programs."""


class Toolkit(Struct, frozen=True, kw_only=True):
    """A CUDA toolkit, or only its runtime."""

    version: Version | None = None
    """`12.4` or `12.4.1`; None = unknown."""
    path: Path | None = None
    source: Source = "other"


class CudnnCopy(Struct, frozen=True, kw_only=True):
    """A copy of cuDNN that could be loaded."""

    version: Version | None = None
    """`9.3.0.75`, or `9.3.0` if the build is unknown."""
    soname: Annotated[int, Meta(ge=0, le=999)] | None = None
    """The number in `libcudnn.so.9`."""
    cuda: Version | None = None
    """CUDA that it was built for: the major version, or more if known."""
    path: Path | None = None
    """Directory that holds it."""
    source: Source = "other"
    complete: bool | None = None
    """Whether all sub-libraries of its release are present and of one release; judged by the releases known to the program."""
    parts: tuple[Text, ...] | None = None
    """Sub-libraries that are present, `ops`, `cnn`; None = not checked."""
    owner: Name | None = None
    """Package or framework that installed it, `nvidia-cudnn-cu12`."""
    problems: tuple[Text, ...] = ()
    """Descriptions of faults: missing parts, mixed releases, needed libraries that cannot be found."""


class LoadedCudnn(Struct, frozen=True, kw_only=True):
    """Copy of libcudnn that a framework would load."""

    version: Version | None = None
    path: Path | None = None


class WouldLoad(Struct, frozen=True, kw_only=True):
    """Libraries that a framework would load."""

    cudnn: LoadedCudnn | None = None
    """None = no libcudnn."""
    because: Text = ""
    """Rule of the loader that decides, in words."""

    @property
    def version(self) -> str | None:
        """Release of that libcudnn."""
        return self.cudnn.version if self.cudnn else None

    @property
    def path(self) -> str | None:
        """Path of that libcudnn."""
        return self.cudnn.path if self.cudnn else None


CPU_PACKAGES: Final = frozenset({"tensorflow-cpu", "paddlepaddle", "onnxruntime"})
"""Distributions without CUDA, whose builds with CUDA have another name."""


class InstalledFramework(Struct, frozen=True, kw_only=True):
    """A framework in the target environment."""

    name: Name
    """Distribution name, normalized: `tensorflow`, `cupy-cuda12x`."""
    version: Name
    variant: Name | None = None
    """`cu124`, `cpu`, …; None = unknown."""
    cuda_built: Version | None = None
    cudnn_built: Version | None = None
    would_load: WouldLoad | None = None
    """None = not determined, or it loads no cuDNN."""


class Loader(Struct, frozen=True, kw_only=True):
    """Search paths of the dynamic loader."""

    ld_library_path: tuple[Text, ...] = ()
    ldconfig: tuple[Text, ...] = ()
    """Paths of the relevant libraries in the linker cache (CUDA, cuDNN, driver)."""


class Packages(Struct, frozen=True, kw_only=True):
    """Installed packages, with names as pip (normalized) and dpkg write them."""

    pip: Mapping[Name, Name] | Unknown = UNKNOWN
    apt: Mapping[Name, Name] | Unknown = UNKNOWN
    requires: Mapping[Name, tuple[Text, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """`Requires-Dist` lines of installed wheels, if they were read."""


class Problem(Struct, frozen=True, kw_only=True):
    """Something that could not be determined, or that is wrong with the machine."""

    what: Text = ""
    why: Text = ""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything known of a machine and of a Python environment on it."""

    platform: Platform = Platform()
    python: Python = Python()
    driver: Driver | Unknown | None = UNKNOWN
    """None = no driver."""
    gpus: tuple[Gpu, ...] | Unknown = UNKNOWN
    cuda_toolkits: tuple[Toolkit, ...] | Unknown = UNKNOWN
    cudnn: tuple[CudnnCopy, ...] | Unknown = UNKNOWN
    frameworks: tuple[InstalledFramework, ...] | Unknown = UNKNOWN
    loader: Loader | Unknown = UNKNOWN
    packages: Packages = Packages()
    container: str | Unknown | None = UNKNOWN
    """`docker`, `colab`, `kaggle` or `wsl`; None = none of these."""
    root: bool | None = None
    """Whether the user is root, or can become root by sudo without a password; None = unknown."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """How each fact was determined, by dotted name (`driver.version`)."""
    problems: tuple[Problem, ...] = ()
    note: str | None = None
