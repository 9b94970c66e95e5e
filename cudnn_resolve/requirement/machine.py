"""Facts, boiled down to what a resolution asks of a machine. None means unknown: then nothing is excluded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from cudnn_resolve.facts.model import UNKNOWN, CudnnCopy, Facts, Toolkit, or_none
from cudnn_resolve.version import Capability, CudaVersion, Dotted, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Forward

V = TypeVar("V", bound=Dotted)


class MachineGpu(Struct, frozen=True, kw_only=True):
    """One GPU as the resolution sees it."""

    label: str
    """What to call it, `Tesla T4 (7.5)`."""
    capability: Capability | None
    kind: str | None
    """`datacenter`, `workstation`, `geforce`, `tegra`; None = unknown."""


class Compat(Struct, frozen=True, kw_only=True):
    """An installed forward-compatibility package that serves this machine: a newer user-mode driver on the older kernel driver."""

    package: str
    """`cuda-compat-12-5`."""
    cuda: CudaVersion
    driver: DriverVersion
    """The oldest of the branch that its libcuda is of."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine and environment that a resolution is for."""

    python: tuple[int, int] | None
    python_full: str | None
    free_threaded: bool
    arch: str
    """`x86_64` or `aarch64`; empty only where a search leaves it open to see whether it matters."""
    glibc: tuple[int, int] | None
    os: str | None
    """Distribution and release, `ubuntu22.04`."""
    driver: DriverVersion | None
    driver_absent: bool
    native_cuda: CudaVersion | None
    """Newest CUDA that the driver itself supports."""
    gpus: tuple[MachineGpu, ...]
    root: bool | None
    pip: Mapping[str, str]
    apt: Mapping[str, str]
    requires: Mapping[str, tuple[str, ...]]
    toolkits: tuple[Toolkit, ...]
    cudnn: tuple[CudnnCopy, ...]
    compat: Compat | None = None
    of_jetpack: frozenset[str] = frozenset()
    """Frameworks without a local part in their version that are built for the Jetson on which they are."""

    @property
    def platform(self) -> str:
        """`linux_x86_64`."""
        return f"linux_{self.arch}"

    @property
    def user_driver(self) -> DriverVersion | None:
        """The driver that programs meet: that of a forward-compatibility package where one serves, else the installed one."""
        if self.driver is None or self.compat is None:
            return self.driver
        return max(self.driver, self.compat.driver)

    @property
    def driver_text(self) -> str:
        """The driver in words: `550.54.15 with cuda-compat-12-5`."""
        return f"{self.driver} with {self.compat.package}" if self.compat is not None else str(self.driver)


def machine_of(facts: Facts, book: Book) -> Machine:
    """The machine behind these facts; driver and GPU names are looked up in the matrix where the facts say no more."""
    driver_fact = or_none(facts.driver)
    driver = _dotted(driver_fact.version, DriverVersion) if driver_fact else None
    native = _dotted(driver_fact.cuda, CudaVersion) if driver_fact else None
    if driver is None and native is not None:  # the oldest one that brings that CUDA: it is at least that new
        driver = book.toolkit_driver(native)
    if driver is not None and native is None:
        native = book.native_cuda(driver)
    python = _two(facts.python.version)
    gpus = _gpus(facts, book)
    compat = _compat(facts, book, driver, native, gpus) if driver is not None else None
    os = None
    if facts.platform.distribution and facts.platform.release:
        os = f"{facts.platform.distribution}{facts.platform.release}"
    return Machine(
        python=python,
        python_full=facts.python.version,
        free_threaded=bool(facts.python.free_threaded),
        arch=facts.platform.arch or ("aarch64" if _is_jetson(gpus, book) else "x86_64"),
        glibc=_two(facts.platform.glibc),
        os=os,
        driver=driver,
        driver_absent=facts.driver is None,
        native_cuda=compat.cuda if compat is not None else native,
        gpus=gpus,
        root=facts.root,
        # Nothing may be installed into an environment that the system manages: the plan is for a new one beside it (PEP 668).
        pip={} if facts.python.externally_managed else or_none(facts.packages.pip) or {},
        apt=or_none(facts.packages.apt) or {},
        requires=facts.packages.requires,
        toolkits=() if facts.cuda_toolkits is UNKNOWN else facts.cuda_toolkits,
        cudnn=() if facts.cudnn is UNKNOWN else facts.cudnn,
        compat=compat,
        of_jetpack=frozenset(one.name for one in or_none(facts.frameworks) or () if one.cuda_built and _is_jetson(gpus, book)),
    )


def forward_rows(book: Book, driver: DriverVersion, gpus: tuple[MachineGpu, ...]) -> Iterator[Forward]:
    """The forward-compatibility packages that serve every GPU on an installed kernel driver, which must know the GPUs itself."""
    for gpu in gpus:
        row = book.architecture(gpu.capability) if gpu.capability is not None else None
        if row is not None and row.driver_first is not None and driver.major < row.driver_first:
            return
    for one in book.forward():
        if one.base == driver.major and one.status == "compatible" and gpus and all(gpu.kind in one.classes for gpu in gpus):
            yield one


def _compat(facts: Facts, book: Book, driver: DriverVersion, native: CudaVersion | None, gpus: tuple[MachineGpu, ...]) -> Compat | None:
    """The newest installed forward-compatibility package that serves here: an apt package, or seen by the CUDA that libcuda offers."""
    apt = or_none(facts.packages.apt) or {}
    own = book.native_cuda(driver)
    fitting = [
        one
        for one in forward_rows(book, driver, gpus)
        if (own is None or one.cuda > own) and (one.package in apt or (native is not None and native.line == one.cuda.line))
    ]
    if not fitting:
        return None
    best = max(fitting, key=lambda one: one.cuda)
    brought = book.toolkit_driver(best.cuda) or (DriverVersion(str(best.branch)) if best.branch is not None else driver)
    return Compat(package=best.package, cuda=CudaVersion(best.cuda.line), driver=brought)


def _is_jetson(gpus: tuple[MachineGpu, ...], book: Book) -> bool:
    """True where some GPU is one that only boards with Arm processors have."""
    rows = (book.architecture(gpu.capability) for gpu in gpus if gpu.capability is not None)
    return any(row is not None and row.tegra for row in rows)


def _gpus(facts: Facts, book: Book) -> tuple[MachineGpu, ...]:
    """GPUs that programs see; identical ones once, because what serves one serves the other."""
    out: list[MachineGpu] = []
    for gpu in or_none(facts.gpus) or ():
        if gpu.hidden:
            continue
        card = book.card(gpu.name) if gpu.name else None
        capability = Capability.parse(gpu.compute_capability) if gpu.compute_capability else None
        if capability is None and card is not None:
            capability = card.capability
        name = gpu.name or (capability.sm if capability else "GPU")
        label = f"{name} (compute capability {capability})" if capability else name
        found = MachineGpu(label=label, capability=capability, kind=card.kind if card else None)
        if found not in out:
            out.append(found)
    return tuple(out)


def _two(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        return None


def _dotted(text: str | None, kind: type[V]) -> V | None:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        return None
