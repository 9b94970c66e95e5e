"""Rows of `matrices/`: one typed struct per array of a table, which is its schema.

Field types define the columns; `identity` is what must be unique and what an overlay row replaces. `matrix.parse` checks TOML;
constructors trust their arguments. PEP 440 specifiers and requirements stay strings until they are needed.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, field

from cudnn_resolve.matrix.column import (
    AptText,
    Arch,
    BranchNumber,
    ComputeCapability,
    Count,
    Cuda,
    CudaLine,
    Cudnn,
    Day,
    Directory,
    Driver,
    Glibc,
    GpuCode,
    Identifier,
    Line,
    MetadataIds,
    Number,
    PackageName,
    PythonTag,
    Requirement,
    Sources,
    Specifier,
    Tags,
    Text,
    Url,
    Version,
)

Versions = Annotated[Version, Meta(extra_json_schema={"type": ["string", "array"]})]
"""One release in a row, one or several in a TOML file."""
DERIVED = Meta(extra={"derived": True})
"""Marks a field that is not a column."""


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`[source.ID]` of any table: where rows were read, and when."""

    where: Text
    read: Day
    confidence: Literal["memory"] | None = None
    """`memory` if no document confirms it."""
    default: bool = False
    """True for the one source of rows that name none."""


class Plain(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row that needs no source."""

    identity: ClassVar[tuple[str, ...]] = ()
    """Fields that are unique together; an overlay row replaces the row with the same values."""
    apart: ClassVar[tuple[str, ...]] = ()
    """Fields in which rows of one identity may differ within a table; an overlay row replaces them all."""
    expands: ClassVar[bool] = False
    """True if a row in a file may list several versions."""


class Row(Plain, frozen=True, kw_only=True):
    """A row with its sources: ids of `[source.ID]` in the same file."""

    note: Text | None = None
    source: Sources = ()


class Branch(Row, frozen=True, kw_only=True):
    """driver/branch.toml: driver branch and the newest CUDA that it runs natively."""

    identity = ("name",)
    name: Identifier
    number: Count
    cuda: CudaLine
    type: Text | None = None
    status: Text | None = None
    eol: Day | None = None


class Minimum(Row, frozen=True, kw_only=True):
    """driver/minimum.toml: driver that a toolkit release was made for (Linux)."""

    identity = ("cuda",)
    cuda: Cuda
    driver: Driver
    bundled: Driver | None = None
    """Driver inside the runfile installer."""
    date: Day | None = None


class Floor(Row, frozen=True, kw_only=True):
    """driver/minimum.toml: oldest driver for a CUDA major under minor-version compatibility."""

    identity = ("cuda_major",)
    cuda_major: Count
    first: Driver


class Forward(Row, frozen=True, kw_only=True):
    """driver/forward.toml: forward-compatibility package and one base branch that it supports."""

    identity = ("package", "base")
    package: PackageName
    cuda: CudaLine
    base: BranchNumber
    """Branch number of the kernel driver."""
    classes: tuple[Identifier, ...]
    """Card classes it works on: `datacenter`, `tegra`, …"""
    status: Text
    """`compatible`, or the reason why not."""
    branch: BranchNumber | None = None
    """Branch number of the libcuda in the package."""


class Architecture(Row, frozen=True, kw_only=True):
    """gpu/architecture.toml: versions that support a compute capability; bounds are inclusive, None = ongoing or unknown."""

    identity = ("capability",)
    capability: ComputeCapability
    name: Text
    cuda_first: CudaLine
    cuda_last: CudaLine | None = None
    driver_first: BranchNumber | None = None
    driver_last: BranchNumber | None = None
    cudnn_first: Cudnn | None = None
    cudnn_last: Cudnn | None = None
    fp32_lanes: Count | None = None
    """Single-precision multiply-adds per multiprocessor and clock."""
    tegra: bool = False
    """True for the integrated GPU of a Jetson, supported by JetPack."""
    server_arm: CudaLine | None = None
    """First CUDA whose builds for Arm servers (SBSA) run on this integrated GPU; None if none is known."""


class Card(Row, frozen=True, kw_only=True):
    """gpu/card.toml: card by name."""

    identity = ("name",)
    name: Text
    capability: ComputeCapability
    kind: Literal["datacenter", "workstation", "geforce", "tegra"] = field(name="class")
    alias: tuple[Text, ...] = ()
    memory_gib: Number | None = None


class Peak(Row, frozen=True, kw_only=True):
    """gpu/peak.toml: peak rates of a card, in 10^12 operations per second."""

    identity = ("name",)
    name: Text
    fp32: Number
    alias: tuple[Text, ...] = ()
    tf32: Number | None = None
    fp16: Number | None = None
    bf16: Number | None = None


class CudaRelease(Row, frozen=True, kw_only=True):
    """cuda/release.toml: toolkit release."""

    identity = ("cuda",)
    cuda: Cuda
    line: Line
    """`12.4`."""
    repositories: tuple[Identifier, ...] = ()
    """Apt repositories that carry it, `ubuntu2204`."""
    date: Day | None = None


class Soname(Row, frozen=True, kw_only=True):
    """cuda/soname.toml: soname of a CUDA library over an inclusive range of CUDA lines."""

    identity = ("library", "first")
    library: Identifier
    soname: Identifier
    first: CudaLine
    last: CudaLine | None = None


class Component(Row, frozen=True, kw_only=True):
    """cuda/component.toml: pip package that carries a CUDA library."""

    identity = ("package", "library", "cuda_major")
    library: Identifier
    cuda_major: Count
    package: PackageName
    abi: Literal["minor", "major", "exact"]
    """How to read another wheel's `==X` on it: `minor` (>= X within the major), `major` (any of the major), `exact`."""
    slot: Identifier
    """Identity of the files it owns; two packages of one slot cannot share an environment."""
    lib_dir: Directory
    """Relative to site-packages."""


class CudaWheel(Row, frozen=True, kw_only=True):
    """cuda/wheel.toml: CUDA release that a version of a component package belongs to."""

    identity = ("package", "version", "cuda")
    package: PackageName
    version: Version
    cuda: Cuda


class Slot(Row, frozen=True, kw_only=True):
    """package/slot.toml: packages that own the same files and therefore exclude one another."""

    identity = ("slot",)
    slot: Identifier
    packages: tuple[PackageName, ...]
    releases: tuple[Requirement, ...] = ()
    """Other packages of which only some releases own the files: `cuda-python<12.8`."""
    files: bool = True
    """False for packages that exclude one another although their files differ."""


class AptPackage(Struct, frozen=True, kw_only=True):
    """Apt package of a cuDNN build."""

    package: PackageName | None = None
    version: Identifier | None = None


class CudnnBuild(Row, frozen=True, kw_only=True):
    """cudnn/release.toml: cuDNN release built for one CUDA."""

    identity = ("version", "cuda_major")
    apart = ("cuda_first",)
    version: Cudnn
    cuda_major: Count
    soname: Count
    cuda_built: Cuda | None = None
    cuda_first: CudaLine | None = None
    """Oldest CUDA runtime it works with, inclusive."""
    cuda_last: CudaLine | None = None
    """Newest CUDA runtime it works with, inclusive; None = all later ones of its major."""
    capability: tuple[ComputeCapability, ...] = ()
    """Compute capabilities with machine code inside; empty = unknown."""
    driver: Driver | None = None
    wheel: PackageName | None = None
    """Pip package that carries it."""
    apt: AptPackage = AptPackage()
    parts: tuple[Identifier, ...] = ()
    """Sub-libraries, `ops`, `cnn_infer`, …; empty = a single file."""
    apt_basis: Text | None = None
    """Basis of the apt version: `seen` in a repository, or derived by `pattern`."""
    date: Day | None = None


class Advisory(Row, frozen=True, kw_only=True):
    """advisory.toml: release known to be bad."""

    identity = ("id",)
    id: Identifier
    package: PackageName
    """Pip package, or `cudnn` for a cuDNN of every channel."""
    versions: Specifier
    action: Literal["avoid", "warn"]
    summary: Text
    remedy: Text | None = None
    capability: tuple[ComputeCapability, ...] = ()
    """Only on these GPUs; empty = all."""
    beside: tuple[Requirement, ...] = ()
    """Only together with one of these, `torch<2.9`; empty = always."""


class Trap(Row, frozen=True, kw_only=True):
    """trap.toml: known pitfall of versions of a framework."""

    identity = ("id",)
    id: Identifier
    framework: PackageName
    versions: Specifier
    kind: Identifier
    summary: Text
    action: Literal["warn", "note"]
    """`warn`: warn in a plan with such a version; `note`: only shown by `matrix show`."""
    remedy: Text | None = None


class RemovedName(Row, frozen=True, kw_only=True):
    """package/removed.toml: a name that a release of a package, or of Python, does not have."""

    identity = ("name", "raised_by")
    name: Text
    """`PIL.Image.ANTIALIAS`; `collections.*` is any attribute, `keras.layers.` any module in it; with a space: words of the message."""
    raised_by: Identifier | None = None
    """Package whose code raises the error; None = any."""
    release: Requirement | None = None  # None if newer releases only call it otherwise
    newest_python: Line | None = None
    """Newest Python with wheels of those releases, if there are newer ones without."""
    instead: Text | None = None


class Repository(Row, frozen=True, kw_only=True):
    """apt/repository.toml: apt repository of CUDA packages for one release of a distribution."""

    identity = ("os", "arch")
    os: Identifier
    """Distribution and release, `ubuntu22.04`."""
    name: Identifier
    """`ubuntu2204`."""
    arch: Arch
    url: Url
    cuda_first: CudaLine | None = None
    cuda_last: CudaLine | None = None
    keyring: Text | None = None
    """File of NVIDIA's package that installs its key."""
    key: Text | None = None
    """Fingerprint of the signing key, 40 hexadecimal digits."""
    key_file: Text | None = None
    """File of that key."""


class AptPattern(Row, frozen=True, kw_only=True):
    """apt/package.toml: apt package of the CUDA runtime over a range of CUDA lines.

    `name` and `version` may contain {major}, {minor} and {release} (toolkit release, `12.4.1`).
    """

    identity = ("library", "first")
    library: Identifier
    """`libraries` for the metapackage of all runtime libraries, else one component."""
    name: AptText
    version: AptText
    first: CudaLine = field(name="line_first")
    last: CudaLine | None = field(name="line_last", default=None)


class Index(Row, frozen=True, kw_only=True):
    """index.toml: package index other than the configured one."""

    identity = ("id",)
    id: Identifier
    url: Url
    kind: Literal["simple", "find-links"]
    serves: tuple[PackageName, ...] = ()


class Bound(Row, frozen=True, kw_only=True):
    """framework/*.toml: requirement of these versions that is missing from their metadata."""

    identity = ("versions", "requirement", "package")
    versions: Specifier
    requirement: Requirement
    reason: Text
    harm: Literal["all", "part"] = "all"
    """`part` if the framework itself works outside the bound and only something installed with it does not."""
    package: PackageName | None = None
    """Distribution of the framework, or other package, that has the requirement; None = every distribution of the framework."""


class _Wheel(Row, frozen=True, kw_only=True):
    """Columns about a wheel, shared by builds of a framework and releases on another index."""

    apart = ("arch", "pythons")
    expands = True
    version: Versions
    like: Identifier | None = None
    """The `[like.ID]` of the file that provides the columns the row omits."""
    local: Identifier | None = None
    pythons: tuple[PythonTag, ...] = ()
    """`cp311`, `py3`; empty = those of the harvested wheel."""
    arch: tuple[Arch, ...] = ()
    glibc: Glibc | None = None
    date: Day | None = None
    """Set only if no wheel table has it."""
    yanked: bool = False
    requires: tuple[Requirement, ...] | None = None
    """None = as in the harvested metadata of the wheel."""
    requires_like: Literal["default"] | None = None
    """`default`: adds the requirements of the same version on the default index, except NVIDIA's packages and triton."""
    cuda: Cuda | None = None
    """Built with; None for a CPU build."""
    cudnn: Cudnn | None = None
    """Compiled against; None if it does not use cuDNN."""
    delivery: Literal["wheel", "bundled", "system", "none"] = "none"
    finds: Literal["rpath", "runpath", "self", "none"] = "none"
    loads: tuple[Identifier, ...] = ()
    """CUDA libraries that must be found, `cublas`; with delivery `wheel`, those that its own requirements do not install."""
    targets: tuple[GpuCode, ...] = field(name="capability", default=())
    """GPU code inside; empty = unknown."""


class Build(_Wheel, frozen=True, kw_only=True):
    """framework/*.toml: one build of a framework release; `version` is the public one, as users name it."""

    identity = ("version", "variant", "package", "index")
    framework: Annotated[Identifier, DERIVED] = ""
    variant: Identifier
    """`cu124`, `cpu`, …"""
    package: PackageName = ""
    """Distribution name; may be omitted in a table for the first one of the framework."""
    wheel_version: Version = ""
    """Version that pip installs, with its local part if the index needs it; may be omitted for `version` plus `local`."""
    index: Identifier = "default"
    """`default`, or the id of a row of index.toml."""
    targets_aarch64: tuple[GpuCode, ...] = field(name="capability_aarch64", default=())
    """GPU code of the aarch64 wheel if it differs; empty = same as `targets`."""
    capability_first: ComputeCapability | None = None
    """Oldest documented GPU, if the code inside is unknown."""
    capability_last: ComputeCapability | None = None
    """Newest GPU it has code for, if all that is known of the code inside is that there is no PTX."""
    cudnn_optional: Count | None = None
    """Major of a cuDNN that it uses if present but does not need."""
    extra: Identifier | None = None
    driver: Driver | None = None
    provisional: Annotated[bool, DERIVED] = False
    """True for a release missing from the tables, derived from its metadata and its predecessor."""

    def code_on(self, arch: str) -> tuple[GpuCode, ...]:
        """GPU code in the wheel for an architecture."""
        return self.targets_aarch64 if arch == "aarch64" and self.targets_aarch64 else self.targets


class ExtraRelease(_Wheel, frozen=True, kw_only=True):
    """framework/*.toml: release on an index other than the configured one, such as `0.21.0+cu118` of a companion.

    `version` includes the local part.
    """

    identity = ("version", "package", "index")
    package: PackageName
    index: Identifier
    requires_python: Specifier | None = None


class Head(Row, frozen=True, kw_only=True):
    """framework/*.toml, `[framework]`: names of a framework and of the packages that go with it; an overlay may omit any field."""

    identity = ("name",)
    name: PackageName = ""
    title: Text = ""
    aliases: tuple[PackageName, ...] = ()
    packages: tuple[PackageName, ...] = ()
    """Distributions that are this framework."""
    companions: tuple[PackageName, ...] = ()
    """Distributions that must move with it if they are installed."""
    other_accelerators: tuple[Text, ...] = ()
    """Extras for accelerators other than NVIDIA GPUs."""
    gpu_package: PackageName | None = None
    """Distribution of the GPU builds, if the CPU builds have their own."""


class Framework(Head, frozen=True, kw_only=True):
    """A framework with its builds and bounds."""

    builds: tuple[Build, ...] = ()
    bounds: tuple[Bound, ...] = ()


class Metadata(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: requirements in the metadata of one or more releases."""

    identity = ("id",)
    id: Count
    requires: tuple[Requirement | Count, ...] = ()
    """Requires-Dist lines; a number refers to the file's `lines`, for one that several entries share."""
    extras: tuple[Text, ...] = ()
    """Extras that no line of `requires` mentions."""


class WheelFiles(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: columns about their files that several releases share."""

    identity = ("id",)
    id: Count
    requires_python: Specifier | None = None
    tags: Tags = ()


class WheelRelease(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: one release of a pip package, as its index lists it."""

    identity = ("version",)
    version: Version
    requires_python: Specifier | None = None
    tags: Tags = ()
    """Compressed tags of its Linux and any-platform wheels; only `sdist` if there is no wheel."""
    yanked: bool = False
    date: Day | None = None
    metadata: MetadataIds | None = None
    files: Count | None = None
    """Id of the `[[files]]` entry with its `requires_python` and `tags`."""
    requires: Annotated[dict[str, tuple[str, ...]], DERIVED] | None = None
    """Requires-Dist lines by architecture (`x86_64`, `aarch64`); None = not harvested."""
