"""The machine as a resolution sees it, derived from facts. None means unknown, which excludes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.facts.model import UNKNOWN, CudnnCopy, Facts, Gpu, InstalledFramework, Toolkit, or_none
from cudnn_resolve.matrix.row import Architecture, Forward
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

_FIRST_BRANCH = 100
"""Drivers have at least this number, except for those that are numbered like their JetPack's Linux."""


class MachineGpu(Struct, frozen=True, kw_only=True):
    """One GPU."""

    label: str
    """Display name, `Tesla T4 (compute capability 7.5)`."""
    capability: Capability | None
    kind: str | None
    """`datacenter`, `workstation`, `geforce`, `tegra`; None = unknown."""


class Compat(Struct, frozen=True, kw_only=True):
    """An installed forward-compatibility package that works here: a newer user-mode driver on the older kernel driver."""

    package: str
    """`cuda-compat-12-5`."""
    cuda: CudaVersion
    driver: DriverVersion
    """Oldest driver of the branch that its libcuda belongs to."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine and environment that a resolution is for."""

    python: tuple[int, int] | None
    python_full: str | None
    free_threaded: bool
    arch: str
    """`x86_64` or `aarch64`; empty only when a search ignores it to see whether it matters."""
    glibc: tuple[int, int] | None
    os: str | None
    """Distribution and release, `ubuntu22.04`."""
    driver: DriverVersion | None
    driver_absent: bool
    native_cuda: CudaVersion | None
    """Newest CUDA that the driver supports."""
    gpus: tuple[MachineGpu, ...]
    root: bool | None
    pip: Mapping[str, str]
    apt: Mapping[str, str]
    requires: Mapping[str, tuple[str, ...]]
    toolkits: tuple[Toolkit, ...]
    cudnn: tuple[CudnnCopy, ...]
    compat: Compat | None = None
    of_jetpack: frozenset[str] = frozenset()
    """CUDA frameworks installed on a Jetson: they may be builds for its JetPack even without a local version."""
    seen: tuple[InstalledFramework, ...] = ()
    """Installed frameworks whose files were inspected."""
    has_own_driver: bool = False
    """True for a Jetson before Thor, even if its GPU is hidden: its driver comes with its JetPack and has numbers of its own, 35.4.1."""

    @property
    def platform(self) -> str:
        """`linux_x86_64`."""
        return f"linux_{self.arch}"

    @property
    def user_driver(self) -> DriverVersion | None:
        """The user-mode driver: that of a forward-compatibility package if one works here, otherwise the installed one."""
        if self.driver is None or self.compat is None:
            return self.driver
        return max(self.driver, self.compat.driver)

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Compute capabilities of the GPUs, as far as they are known."""
        return tuple(gpu.capability for gpu in self.gpus if gpu.capability is not None)

    @property
    def driver_text(self) -> str:
        """Display name of the driver: `550.54.15 with cuda-compat-12-5`."""
        return f"{self.driver} with {self.compat.package}" if self.compat is not None else str(self.driver)


def machine_of(facts: Facts, book: Book) -> Machine:
    """Build the machine from facts; what they leave out of the driver and the GPUs is looked up in the matrix."""
    driver_fact = or_none(facts.driver)
    driver = DriverVersion(driver_fact.version) if driver_fact and driver_fact.version else None
    native = CudaVersion(driver_fact.cuda) if driver_fact and driver_fact.cuda else None
    if driver is None and native is not None:  # at least as new as the oldest driver with that CUDA
        driver = book.toolkit_driver(native)
    if driver is not None and native is None:
        native = book.native_cuda(driver)
    every = or_none(facts.gpus) or ()
    gpus = _known_gpus((gpu for gpu in every if not gpu.hidden), book)
    is_jetson = has_tegra(gpus, book)
    compat = _installed_compat(facts, book, driver, native, gpus) if driver is not None else None
    platform = facts.platform
    return Machine(
        python=_major_minor(facts.python.version),
        python_full=facts.python.version,
        free_threaded=bool(facts.python.free_threaded),
        arch=platform.arch or ("aarch64" if is_jetson else "x86_64"),
        glibc=_major_minor(platform.glibc),
        os=f"{platform.distribution}{platform.release}" if platform.distribution and platform.release else None,
        driver=driver,
        driver_absent=facts.driver is None,
        native_cuda=compat.cuda if compat is not None else native,
        gpus=gpus,
        root=facts.root,
        # PEP 668: nothing may be installed into an externally managed environment, so the plan is for a new one.
        pip={} if facts.python.externally_managed else or_none(facts.packages.pip) or {},
        apt=or_none(facts.packages.apt) or {},
        requires=facts.packages.requires,
        toolkits=() if facts.cuda_toolkits is UNKNOWN else facts.cuda_toolkits,
        cudnn=() if facts.cudnn is UNKNOWN else facts.cudnn,
        compat=compat,
        of_jetpack=frozenset(found.name for found in or_none(facts.frameworks) or () if found.cuda_built and is_jetson),
        seen=or_none(facts.frameworks) or (),
        has_own_driver=_has_own_driver(driver, platform.arch, _known_gpus(every, book), book),
    )


def forward_rows(book: Book, driver: DriverVersion, gpus: tuple[MachineGpu, ...]) -> Iterator[Forward]:
    """Forward-compatibility packages that support every GPU on a kernel driver, which must support the GPUs itself."""
    if any(row.driver_first is not None and driver.major < row.driver_first for row in architectures(gpus, book)):
        return
    for row in book.rows(Forward):
        if row.base == driver.major and row.status == "compatible" and gpus and all(gpu.kind in row.classes for gpu in gpus):
            yield row


def _installed_compat(
    facts: Facts, book: Book, driver: DriverVersion, native: CudaVersion | None, gpus: tuple[MachineGpu, ...]
) -> Compat | None:
    """Newest installed forward-compatibility package that works: an apt package, or recognised by the CUDA that libcuda reports."""
    apt = or_none(facts.packages.apt) or {}
    own = book.native_cuda(driver)
    fitting = [
        row
        for row in forward_rows(book, driver, gpus)
        if (own is None or row.cuda > own) and (row.package in apt or (native is not None and native.line == row.cuda.line))
    ]
    if not fitting:
        return None
    newest = max(fitting, key=lambda row: row.cuda)
    user_driver = book.toolkit_driver(newest.cuda) or (DriverVersion(str(newest.branch)) if newest.branch is not None else driver)
    return Compat(package=newest.package, cuda=CudaVersion(newest.cuda.line), driver=user_driver)


def architectures(gpus: tuple[MachineGpu, ...], book: Book) -> Iterator[Architecture]:
    """Architecture of each GPU, as far as it is known."""
    rows = (book.architecture(gpu.capability) for gpu in gpus if gpu.capability is not None)
    return (row for row in rows if row is not None)


def has_tegra(gpus: tuple[MachineGpu, ...], book: Book) -> bool:
    """True if some GPU belongs to a Jetson board."""
    return any(row.tegra for row in architectures(gpus, book))


def _has_own_driver(driver: DriverVersion | None, arch: str | None, gpus: tuple[MachineGpu, ...], book: Book) -> bool:
    """True for a driver or a GPU, visible or not, of a Jetson before Thor."""
    is_of_jetpack = driver is not None and driver.major < _FIRST_BRANCH and arch == "aarch64"
    return is_of_jetpack or any(row.tegra and row.server_arm is None for row in architectures(gpus, book))


def _known_gpus(gpus: Iterable[Gpu], book: Book) -> tuple[MachineGpu, ...]:
    """GPUs with what the matrix has of them; identical ones are listed once, because they have the same requirements."""
    known: dict[MachineGpu, None] = {}
    for gpu in gpus:
        card = book.card(gpu.name) if gpu.name else None
        capability = Capability.parse(gpu.compute_capability) if gpu.compute_capability else None
        if capability is None and card is not None:
            capability = card.capability
        name = gpu.name or (capability.sm if capability else "GPU")
        label = f"{name} (compute capability {capability})" if capability else name
        known[MachineGpu(label=label, capability=capability, kind=card.kind if card else None)] = None
    return tuple(known)


def _major_minor(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        return None
