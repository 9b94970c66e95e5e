"""One frozen row type for each table of `matrices/`.

Constructors trust; `matrix.parse` validates. Every row carries the ids of its sources, which the table's `[source.ID]` entries explain.
Versions stay the parsed values of `cudnn_resolve.version`; PEP 440 specifiers and requirements stay text until they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, CudnnVersion, DriverVersion


class Source(Struct, frozen=True, kw_only=True):
    """`[source.ID]` of any table: where its rows were read, and when."""

    id: str
    where: str
    read: str
    """The day, `2026-11-21`."""
    confidence: str | None = None
    """`memory` where nothing that could be read confirms it."""


class Branch(Struct, frozen=True, kw_only=True):
    """driver/branch.toml: a driver branch and the newest CUDA that it runs natively."""

    name: str
    number: int
    cuda: CudaVersion
    type: str | None = None
    status: str | None = None
    eol: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Minimum(Struct, frozen=True, kw_only=True):
    """driver/minimum.toml: the driver that one toolkit release was made for (Linux)."""

    cuda: CudaVersion
    driver: DriverVersion
    bundled: DriverVersion | None = None
    """Driver inside the runfile installer."""
    date: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Floor(Struct, frozen=True, kw_only=True):
    """driver/minimum.toml: the oldest driver that minor-version compatibility allows for a CUDA major."""

    cuda_major: int
    first: DriverVersion
    note: str | None = None
    source: tuple[str, ...] = ()


class Forward(Struct, frozen=True, kw_only=True):
    """driver/forward.toml: a forward-compatibility package and one base branch that it supports."""

    package: str
    cuda: CudaVersion
    base: int
    """Branch number of the kernel driver."""
    classes: tuple[str, ...]
    """Card classes on which it works: `datacenter`, `tegra`, …"""
    status: str
    """`compatible` or why not."""
    branch: int | None = None
    """Branch number of the libcuda that the package holds."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Architecture(Struct, frozen=True, kw_only=True):
    """gpu/architecture.toml: what knows a compute capability; bounds are inclusive, None = ongoing or unknown."""

    capability: Capability
    name: str
    cuda_first: CudaVersion
    cuda_last: CudaVersion | None = None
    driver_first: int | None = None
    driver_last: int | None = None
    cudnn_first: CudnnVersion | None = None
    cudnn_last: CudnnVersion | None = None
    fp32_lanes: int | None = None
    """Multiply-adds of single precision in one multiprocessor and clock."""
    tegra: bool = False
    note: str | None = None
    source: tuple[str, ...] = ()


class Card(Struct, frozen=True, kw_only=True):
    """gpu/card.toml: a card by its name."""

    name: str
    capability: Capability
    kind: str
    """The column `class`: `datacenter`, `workstation`, `geforce` or `tegra`."""
    alias: tuple[str, ...] = ()
    memory_gib: float | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Peak(Struct, frozen=True, kw_only=True):
    """gpu/peak.toml: what a card could compute at most, in 10^12 operations per second."""

    name: str
    fp32: float
    alias: tuple[str, ...] = ()
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class CudaRelease(Struct, frozen=True, kw_only=True):
    """cuda/release.toml: a toolkit release."""

    cuda: CudaVersion
    line: str
    """`12.4`."""
    repositories: tuple[str, ...] = ()
    """Names of the apt repositories that carry it, `ubuntu2204`."""
    date: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Soname(Struct, frozen=True, kw_only=True):
    """cuda/soname.toml: the soname of one CUDA library over a range of CUDA lines, both ends inclusive."""

    library: str
    soname: str
    first: CudaVersion
    last: CudaVersion | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Component(Struct, frozen=True, kw_only=True):
    """cuda/component.toml: a pip package that carries a CUDA library."""

    library: str
    cuda_major: int
    package: str
    abi: str
    """How another wheel's `==X` on it may be read: `minor` (>= X within the major), `major` (any of the major), `exact`."""
    slot: str
    """Identity of the files that it owns; two packages of one slot cannot share an environment."""
    lib_dir: str
    """Relative to site-packages."""
    note: str | None = None
    source: tuple[str, ...] = ()


class CudaWheel(Struct, frozen=True, kw_only=True):
    """cuda/wheel.toml: the CUDA release that one version of a component package belongs to."""

    package: str
    version: str
    cuda: CudaVersion
    note: str | None = None
    source: tuple[str, ...] = ()


class Slot(Struct, frozen=True, kw_only=True):
    """package/slot.toml: packages that own the same files and so exclude one another."""

    slot: str
    packages: tuple[str, ...]
    note: str | None = None
    source: tuple[str, ...] = ()


class CudnnBuild(Struct, frozen=True, kw_only=True):
    """cudnn/release.toml: one cuDNN release built for one CUDA."""

    version: CudnnVersion
    cuda_major: int
    soname: int
    cuda_built: CudaVersion | None = None
    cuda_first: CudaVersion | None = None
    """Oldest CUDA runtime it works with, inclusive."""
    cuda_last: CudaVersion | None = None
    """Newest CUDA runtime it works with, inclusive; None = every later one of its major."""
    capability: tuple[Capability, ...] = ()
    """Compute capabilities with machine code inside; empty = unknown."""
    driver: DriverVersion | None = None
    wheel: str | None = None
    """Pip package that carries it."""
    apt_package: str | None = None
    apt_version: str | None = None
    parts: tuple[str, ...] = ()
    """Names of its sub-libraries, `ops`, `cnn_infer`, …; empty = one single file."""
    apt_basis: str | None = None
    """How the apt version is known: `seen` in a repository, or by its `pattern`."""
    date: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Advisory(Struct, frozen=True, kw_only=True):
    """advisory.toml: a release known to be bad."""

    id: str
    package: str
    """Pip package, or `cudnn` for a cuDNN of every channel."""
    versions: str
    """PEP 440 specifier."""
    action: str
    """`avoid` or `warn`."""
    summary: str
    remedy: str | None = None
    capability: tuple[Capability, ...] = ()
    """Only on these GPUs; empty = on all."""
    frameworks: tuple[str, ...] = ()
    """Only with these frameworks; empty = with all."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Trap(Struct, frozen=True, kw_only=True):
    """trap.toml: something worth saying about versions of a framework."""

    id: str
    framework: str
    versions: str
    kind: str
    summary: str
    action: str
    """`warn`: said in a plan that takes such a version; `note`: only in `matrix show`."""
    remedy: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Repository(Struct, frozen=True, kw_only=True):
    """apt/repository.toml: an apt repository of CUDA packages for one release of a distribution."""

    os: str
    """Distribution and release, `ubuntu22.04`."""
    name: str
    """`ubuntu2204`."""
    arch: str
    url: str
    cuda_first: CudaVersion | None = None
    cuda_last: CudaVersion | None = None
    keyring: str | None = None
    """File of the package that NVIDIA offers to install its key."""
    key: str | None = None
    """Fingerprint of the key that signs it, 40 hexadecimal digits."""
    key_file: str | None = None
    """File of that key."""
    note: str | None = None
    source: tuple[str, ...] = ()


class AptPattern(Struct, frozen=True, kw_only=True):
    """apt/package.toml: an apt package of the CUDA runtime over a range of CUDA lines.

    `name` and `version` hold the fields {major}, {minor} and {release} (toolkit release, `12.4.1`).
    """

    library: str
    """`libraries` for the meta package of all runtime libraries, else one component."""
    name: str
    version: str
    first: CudaVersion
    last: CudaVersion | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Index(Struct, frozen=True, kw_only=True):
    """index.toml: a package index other than the configured one."""

    id: str
    url: str
    kind: str
    """`simple` or `find-links`."""
    serves: tuple[str, ...] = ()
    note: str | None = None
    source: tuple[str, ...] = ()


class Bound(Struct, frozen=True, kw_only=True):
    """framework/*.toml: a requirement that is true although the metadata of these versions does not say so."""

    versions: str
    requirement: str
    reason: str
    package: str | None = None
    """Only for this distribution of the framework; None = for all."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Build(Struct, frozen=True, kw_only=True):
    """framework/*.toml: one build of one release of a framework."""

    framework: str
    version: str
    """Public version as users name it."""
    variant: str
    """`cu124`, `cpu`, …"""
    package: str
    """Distribution name, normalized."""
    wheel_version: str
    """What pip is asked for, with its local part where the index needs it."""
    index: str
    """`default`, or the id of a row of index.toml."""
    pythons: tuple[str, ...] = ()
    """`cp311`, `py3`; empty = those of the harvested wheel."""
    arch: tuple[str, ...] = ()
    glibc: str | None = None
    yanked: bool = False
    cuda: CudaVersion | None = None
    """Built with; None for a CPU build."""
    cudnn: CudnnVersion | None = None
    """Compiled against; None where it uses no cuDNN."""
    delivery: str = "none"
    """`wheel`, `bundled`, `system` or `none`."""
    finds: str = "none"
    """`rpath`, `runpath`, `self` or `none`."""
    loads: tuple[str, ...] = ()
    """CUDA libraries that must be found, `cublas`; beside delivery `wheel`: where its own requirements do not bring them."""
    sonames: tuple[tuple[str, str], ...] = ()
    """Library and soname where it wants another one than that of `cuda`."""
    targets: tuple[CodeTarget, ...] = ()
    """The column `capability`; empty = unknown."""
    targets_aarch64: tuple[CodeTarget, ...] = ()
    """The same for the aarch64 wheel where its code differs; empty = as `targets`."""
    capability_first: Capability | None = None
    """Oldest GPU by the documentation, where the code inside is not known."""
    extra: str | None = None
    requires: tuple[str, ...] | None = None
    """None = the harvested metadata of the wheel says it."""
    driver: DriverVersion | None = None
    requires_like: str | None = None
    """`default`: besides `requires`, what the same version of the package on the default index requires, NVIDIA's and triton apart."""
    date: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


class Framework(Struct, frozen=True, kw_only=True):
    """framework/*.toml: a framework, its names and what travels with it."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Distributions that are this framework."""
    companions: tuple[str, ...] = ()
    """Distributions that must move with it where they are installed."""
    builds: tuple[Build, ...] = ()
    bounds: tuple[Bound, ...] = ()
    other_accelerators: tuple[str, ...] = ()
    """Extras for other accelerators than NVIDIA's GPUs."""
    gpu_package: str | None = None
    """Distribution of the GPU builds where another one holds the CPU builds."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Metadata(Struct, frozen=True, kw_only=True):
    """wheel/*.toml: what the metadata of one or more releases requires."""

    id: int
    requires: tuple[str, ...] = ()
    """Requires-Dist lines."""
    extras: tuple[str, ...] = ()


class WheelRelease(Struct, frozen=True, kw_only=True):
    """wheel/*.toml: one release of a pip package, as its index shows it."""

    version: str
    requires_python: str | None = None
    tags: tuple[str, ...] = ()
    """Compressed tags of its Linux and any-platform wheels; `sdist` alone where there is no wheel."""
    yanked: bool = False
    date: str | None = None
    requires: Mapping[str, tuple[str, ...]] | None = None
    """Architecture (`x86_64`, `aarch64`) to Requires-Dist lines; None = not harvested."""


class Package(Struct, frozen=True, kw_only=True):
    """wheel/*.toml: a pip package."""

    name: str
    releases: tuple[WheelRelease, ...] = ()
    """Oldest first, by version."""


class ExtraRelease(Struct, frozen=True, kw_only=True):
    """framework/*.toml: a release that another index than the configured one holds, such as `0.21.0+cu118` of a companion.

    The fields mean what they mean in `Build`.
    """

    package: str
    version: str
    """With its local part, as pip is asked for it."""
    index: str
    pythons: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    glibc: str | None = None
    yanked: bool = False
    requires_python: str | None = None
    requires: tuple[str, ...] | None = None
    requires_like: str | None = None
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    delivery: str = "none"
    finds: str = "none"
    loads: tuple[str, ...] = ()
    targets: tuple[CodeTarget, ...] = ()
    date: str | None = None
    note: str | None = None
    source: tuple[str, ...] = ()


EMPTY: Mapping[str, tuple[str, ...]] = MappingProxyType({})
