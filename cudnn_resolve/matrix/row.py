"""The rows of `matrices/`: one typed struct for each table, which is its schema.

The field types say what a column holds, `identity` what must be unique and what a row of an overlay replaces. `matrix.parse` checks
what a TOML file says; constructors trust. PEP 440 specifiers and requirements stay text until they are asked for.
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
    Sonames,
    Sources,
    Specifier,
    Tags,
    Text,
    Url,
    Version,
)

Versions = Annotated[Version, Meta(extra_json_schema={"type": ["string", "array"]})]
"""One release in a row of ours, one or several in a table."""
DERIVED = Meta(extra={"derived": True})
"""Marks a field that no file holds."""


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`[source.ID]` of any table: where its rows were read, and when."""

    where: Text
    read: Day
    confidence: Literal["memory"] | None = None
    """`memory` where nothing that could be read confirms it."""


class Plain(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a table that needs no source."""

    identity: ClassVar[tuple[str, ...]] = ()
    """Fields that are unique together; a row of an overlay replaces the row that has the same."""
    apart: ClassVar[tuple[str, ...]] = ()
    """Fields by which rows of one identity may differ in one table; a row of an overlay replaces them all."""
    expands: ClassVar[bool] = False
    """True where a row of a file may list several versions."""


class Row(Plain, frozen=True, kw_only=True):
    """A row with its sources: ids of `[source.ID]` in the same file."""

    note: Text | None = None
    source: Sources = ()


class Branch(Row, frozen=True, kw_only=True):
    """driver/branch.toml: a driver branch and the newest CUDA that it runs natively."""

    identity = ("name",)
    name: Identifier
    number: Count
    cuda: CudaLine
    type: Text | None = None
    status: Text | None = None
    eol: Day | None = None


class Minimum(Row, frozen=True, kw_only=True):
    """driver/minimum.toml: the driver that one toolkit release was made for (Linux)."""

    identity = ("cuda",)
    cuda: Cuda
    driver: Driver
    bundled: Driver | None = None
    """Driver inside the runfile installer."""
    date: Day | None = None


class Floor(Row, frozen=True, kw_only=True):
    """driver/minimum.toml: the oldest driver that minor-version compatibility allows for a CUDA major."""

    identity = ("cuda_major",)
    cuda_major: Count
    first: Driver


class Forward(Row, frozen=True, kw_only=True):
    """driver/forward.toml: a forward-compatibility package and one base branch that it supports."""

    identity = ("package", "base")
    package: PackageName
    cuda: CudaLine
    base: BranchNumber
    """Branch number of the kernel driver."""
    classes: tuple[Identifier, ...]
    """Card classes on which it works: `datacenter`, `tegra`, …"""
    status: Text
    """`compatible` or why not."""
    branch: BranchNumber | None = None
    """Branch number of the libcuda that the package holds."""


class Architecture(Row, frozen=True, kw_only=True):
    """gpu/architecture.toml: what knows a compute capability; bounds are inclusive, None = ongoing or unknown."""

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
    """Multiply-adds of single precision in one multiprocessor and clock."""
    tegra: bool = False
    """True for the integrated GPU of a Jetson, which JetPack serves."""
    server_arm: CudaLine | None = None
    """Of an integrated GPU the first CUDA whose builds for Arm servers (SBSA) run on it; None where none is known to."""


class Card(Row, frozen=True, kw_only=True):
    """gpu/card.toml: a card by its name."""

    identity = ("name",)
    name: Text
    capability: ComputeCapability
    kind: Literal["datacenter", "workstation", "geforce", "tegra"] = field(name="class")
    alias: tuple[Text, ...] = ()
    memory_gib: Number | None = None


class Peak(Row, frozen=True, kw_only=True):
    """gpu/peak.toml: what a card could compute at most, in 10^12 operations per second."""

    identity = ("name",)
    name: Text
    fp32: Number
    alias: tuple[Text, ...] = ()
    tf32: Number | None = None
    fp16: Number | None = None
    bf16: Number | None = None


class CudaRelease(Row, frozen=True, kw_only=True):
    """cuda/release.toml: a toolkit release."""

    identity = ("cuda",)
    cuda: Cuda
    line: Line
    """`12.4`."""
    repositories: tuple[Identifier, ...] = ()
    """Names of the apt repositories that carry it, `ubuntu2204`."""
    date: Day | None = None


class Soname(Row, frozen=True, kw_only=True):
    """cuda/soname.toml: the soname of one CUDA library over a range of CUDA lines, both ends inclusive."""

    identity = ("library", "first")
    library: Identifier
    soname: Identifier
    first: CudaLine
    last: CudaLine | None = None


class Component(Row, frozen=True, kw_only=True):
    """cuda/component.toml: a pip package that carries a CUDA library."""

    identity = ("package", "library", "cuda_major")
    library: Identifier
    cuda_major: Count
    package: PackageName
    abi: Literal["minor", "major", "exact"]
    """How another wheel's `==X` on it may be read: `minor` (>= X within the major), `major` (any of the major), `exact`."""
    slot: Identifier
    """Identity of the files that it owns; two packages of one slot cannot share an environment."""
    lib_dir: Directory
    """Relative to site-packages."""


class CudaWheel(Row, frozen=True, kw_only=True):
    """cuda/wheel.toml: the CUDA release that one version of a component package belongs to."""

    identity = ("package", "version", "cuda")
    package: PackageName
    version: Version
    cuda: Cuda


class Slot(Row, frozen=True, kw_only=True):
    """package/slot.toml: packages that own the same files and so exclude one another."""

    identity = ("slot",)
    slot: Identifier
    packages: tuple[PackageName, ...]
    releases: tuple[Requirement, ...] = ()
    """Releases of other packages that own the files, too, where not all of that package do: `cuda-python<12.8`."""
    files: bool = True
    """False for packages that exclude one another although each has files of its own."""


class AptPackage(Struct, frozen=True, kw_only=True):
    """The apt package of a cuDNN build."""

    package: PackageName | None = None
    version: Identifier | None = None


class CudnnBuild(Row, frozen=True, kw_only=True):
    """cudnn/release.toml: one cuDNN release built for one CUDA."""

    identity = ("version", "cuda_major")
    apart = ("cuda_first",)
    version: Cudnn
    cuda_major: Count
    soname: Count
    cuda_built: Cuda | None = None
    cuda_first: CudaLine | None = None
    """Oldest CUDA runtime it works with, inclusive."""
    cuda_last: CudaLine | None = None
    """Newest CUDA runtime it works with, inclusive; None = every later one of its major."""
    capability: tuple[ComputeCapability, ...] = ()
    """Compute capabilities with machine code inside; empty = unknown."""
    driver: Driver | None = None
    wheel: PackageName | None = None
    """Pip package that carries it."""
    apt: AptPackage = AptPackage()
    parts: tuple[Identifier, ...] = ()
    """Names of its sub-libraries, `ops`, `cnn_infer`, …; empty = one single file."""
    apt_basis: Text | None = None
    """How the apt version is known: `seen` in a repository, or by its `pattern`."""
    date: Day | None = None


class Advisory(Row, frozen=True, kw_only=True):
    """advisory.toml: a release known to be bad."""

    identity = ("id",)
    id: Identifier
    package: PackageName
    """Pip package, or `cudnn` for a cuDNN of every channel."""
    versions: Specifier
    action: Literal["avoid", "warn"]
    summary: Text
    remedy: Text | None = None
    capability: tuple[ComputeCapability, ...] = ()
    """Only on these GPUs; empty = on all."""
    beside: tuple[Requirement, ...] = ()
    """Only beside one of these, `torch<2.9`; empty = whatever else is there."""


class Trap(Row, frozen=True, kw_only=True):
    """trap.toml: something worth saying about versions of a framework."""

    identity = ("id",)
    id: Identifier
    framework: PackageName
    versions: Specifier
    kind: Identifier
    summary: Text
    action: Literal["warn", "note"]
    """`warn`: said in a plan that takes such a version; `note`: only in `matrix show`."""
    remedy: Text | None = None


class Repository(Row, frozen=True, kw_only=True):
    """apt/repository.toml: an apt repository of CUDA packages for one release of a distribution."""

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
    """File of the package that NVIDIA offers to install its key."""
    key: Text | None = None
    """Fingerprint of the key that signs it, 40 hexadecimal digits."""
    key_file: Text | None = None
    """File of that key."""


class AptPattern(Row, frozen=True, kw_only=True):
    """apt/package.toml: an apt package of the CUDA runtime over a range of CUDA lines.

    `name` and `version` hold the fields {major}, {minor} and {release} (toolkit release, `12.4.1`).
    """

    identity = ("library", "first")
    library: Identifier
    """`libraries` for the meta package of all runtime libraries, else one component."""
    name: AptText
    version: AptText
    first: CudaLine = field(name="line_first")
    last: CudaLine | None = field(name="line_last", default=None)


class Index(Row, frozen=True, kw_only=True):
    """index.toml: a package index other than the configured one."""

    identity = ("id",)
    id: Identifier
    url: Url
    kind: Literal["simple", "find-links"]
    serves: tuple[PackageName, ...] = ()


class Bound(Row, frozen=True, kw_only=True):
    """framework/*.toml: a requirement that is true although the metadata of these versions does not say so."""

    identity = ("versions", "requirement", "package")
    versions: Specifier
    requirement: Requirement
    reason: Text
    harm: Literal["all", "part"] = "all"
    """`part` where the framework itself works outside the bound, and only something beside it does not."""
    package: PackageName | None = None
    """Only for this distribution of the framework, or of a package beside it, which then requires it; None = for every distribution."""


class _Wheel(Row, frozen=True, kw_only=True):
    """What a build of a framework and a release on another index say alike about their wheel."""

    apart = ("arch", "pythons")
    expands = True
    version: Versions
    like: Identifier | None = None
    """The `[like.ID]` of the file whose columns hold where the row does not say otherwise."""
    local: Identifier | None = None
    pythons: tuple[PythonTag, ...] = ()
    """`cp311`, `py3`; empty = those of the harvested wheel."""
    arch: tuple[Arch, ...] = ()
    glibc: Glibc | None = None
    date: Day | None = None
    """Where no wheel table says it."""
    yanked: bool = False
    requires: tuple[Requirement, ...] | None = None
    """None = the harvested metadata of the wheel says it."""
    requires_like: Literal["default"] | None = None
    """`default`: besides `requires`, what the same version of the package on the default index requires, NVIDIA's and triton apart."""
    cuda: Cuda | None = None
    """Built with; None for a CPU build."""
    cudnn: Cudnn | None = None
    """Compiled against; None where it uses no cuDNN."""
    delivery: Literal["wheel", "bundled", "system", "none"] = "none"
    finds: Literal["rpath", "runpath", "self", "none"] = "none"
    loads: tuple[Identifier, ...] = ()
    """CUDA libraries that must be found, `cublas`; beside delivery `wheel`: where its own requirements do not bring them."""
    targets: tuple[GpuCode, ...] = field(name="capability", default=())
    """GPU code inside; empty = unknown."""


class Build(_Wheel, frozen=True, kw_only=True):
    """framework/*.toml: one build of one release of a framework; `version` is public, as users name it."""

    identity = ("version", "variant", "package", "index")
    framework: Annotated[Identifier, DERIVED] = ""
    variant: Identifier
    """`cu124`, `cpu`, …"""
    package: PackageName = ""
    """Distribution name; left out in a table for the first one of the framework."""
    wheel_version: Version = ""
    """What pip is asked for, with its local part where the index needs it; left out for `version` with `local`."""
    index: Identifier = "default"
    """`default`, or the id of a row of index.toml."""
    sonames: Sonames = ()
    """Library and soname where it wants another one than that of `cuda`."""
    targets_aarch64: tuple[GpuCode, ...] = field(name="capability_aarch64", default=())
    """GPU code of the aarch64 wheel where it differs; empty = as `targets`."""
    capability_first: ComputeCapability | None = None
    """Oldest GPU by the documentation, where the code inside is not known."""
    capability_last: ComputeCapability | None = None
    """Newest GPU that it has code for, where no more of the code inside is known than that there is no PTX."""
    cudnn_optional: Count | None = None
    """Major of a cuDNN that it uses where it finds one, and does without."""
    extra: Identifier | None = None
    driver: Driver | None = None
    provisional: Annotated[bool, DERIVED] = False
    """True for a release that the tables do not know: made of its metadata, as its predecessor otherwise."""

    def code_on(self, arch: str) -> tuple[GpuCode, ...]:
        """GPU code of the wheel for an architecture."""
        return self.targets_aarch64 if arch == "aarch64" and self.targets_aarch64 else self.targets


class ExtraRelease(_Wheel, frozen=True, kw_only=True):
    """framework/*.toml: a release that another index than the configured one holds, such as `0.21.0+cu118` of a companion.

    `version` has its local part, as pip is asked for it.
    """

    identity = ("version", "package", "index")
    package: PackageName
    index: Identifier
    requires_python: Specifier | None = None


class Head(Row, frozen=True, kw_only=True):
    """framework/*.toml, `[framework]`: its names and what travels with it; what an overlay leaves out is said below it."""

    identity = ("name",)
    name: PackageName = ""
    title: Text = ""
    aliases: tuple[PackageName, ...] = ()
    packages: tuple[PackageName, ...] = ()
    """Distributions that are this framework."""
    companions: tuple[PackageName, ...] = ()
    """Distributions that must move with it where they are installed."""
    other_accelerators: tuple[Text, ...] = ()
    """Extras for other accelerators than NVIDIA's GPUs."""
    gpu_package: PackageName | None = None
    """Distribution of the GPU builds where another one holds the CPU builds."""


class Framework(Head, frozen=True, kw_only=True):
    """A framework with its builds and bounds."""

    builds: tuple[Build, ...] = ()
    bounds: tuple[Bound, ...] = ()


class Metadata(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: what the metadata of one or more releases requires."""

    identity = ("id",)
    id: Count
    requires: tuple[Requirement | Count, ...] = ()
    """Requires-Dist lines; the number of one of the file's `lines` for one that stands in several entries."""
    extras: tuple[Text, ...] = ()
    """Those that no line of `requires` names."""


class WheelFiles(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: what one or more releases say alike about their files."""

    identity = ("id",)
    id: Count
    requires_python: Specifier | None = None
    tags: Tags = ()


class WheelRelease(Plain, frozen=True, kw_only=True):
    """wheel/*.toml: one release of a pip package, as its index shows it."""

    identity = ("version",)
    version: Version
    requires_python: Specifier | None = None
    tags: Tags = ()
    """Compressed tags of its Linux and any-platform wheels; `sdist` alone where there is no wheel."""
    yanked: bool = False
    date: Day | None = None
    metadata: MetadataIds | None = None
    files: Count | None = None
    """The `[[files]]` entry that holds its `requires_python` and `tags`."""
    requires: Annotated[dict[str, tuple[str, ...]], DERIVED] | None = None
    """Architecture (`x86_64`, `aarch64`) to Requires-Dist lines; None = not harvested."""


class Package(Struct, frozen=True, kw_only=True):
    """A pip package with its releases, oldest first."""

    name: str
    releases: tuple[WheelRelease, ...] = ()
