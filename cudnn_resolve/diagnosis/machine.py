"""Facts as the checks of a machine read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.installed import Installed, installed_of
from cudnn_resolve.diagnosis.model import Evidence, Remedy
from cudnn_resolve.diagnosis.specifier import is_version
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, Loader, Unknown, or_none
from cudnn_resolve.version import Capability, CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

_TEGRA = re.compile(r"orin|xavier|tegra|jetson|nvgpu|\bnano\b", re.IGNORECASE)


class Machine(Struct, frozen=True, kw_only=True):
    """Facts as the checks read them; what is unknown is empty, and `known` says what was asked."""

    facts: Facts
    book: Book
    installed: tuple[Installed, ...]
    driver: Driver | None
    driver_absent: bool
    gpus: tuple[Gpu, ...]
    cudnn: tuple[CudnnCopy, ...]
    pip: Mapping[str, str]
    loader: Loader

    @property
    def version(self) -> DriverVersion | None:
        """The driver's version, where it is known."""
        return driver_of(self.driver.version) if self.driver else None

    @property
    def is_tegra(self) -> bool:
        """True for NVIDIA's own boards (Jetson), whose driver is numbered otherwise and whose wheels are of their own."""
        return any(_TEGRA.search(gpu.name or "") for gpu in self.gpus) or (
            self.version is not None and self.version.major < 100 and self.facts.platform.arch == "aarch64"
        )


def machine_of(facts: Facts, book: Book) -> Machine:
    """The machine behind the facts."""
    driver = None if isinstance(facts.driver, Unknown) else facts.driver
    pip = or_none(facts.packages.pip) or {}
    return Machine(
        facts=facts,
        book=book,
        installed=installed_of(facts, book),
        driver=driver,
        driver_absent=facts.driver is None,
        gpus=or_none(facts.gpus) or (),
        cudnn=or_none(facts.cudnn) or (),
        pip=pip,
        loader=Loader() if isinstance(facts.loader, Unknown) else facts.loader,
    )


def fact(source: str, text: str) -> Evidence:
    """A line of evidence from the facts."""
    return Evidence(source=source, line=None, text=text)


def visible(machine: Machine) -> list[Gpu]:
    """The kinds of GPU that programs see."""
    seen: dict[tuple[str | None, str | None], Gpu] = {}
    for gpu in machine.gpus:
        if not gpu.hidden:
            seen.setdefault((gpu.name, gpu.compute_capability), gpu)
    return list(seen.values())


def capability_of(gpu: Gpu) -> Capability | None:
    """The compute capability of a GPU, where it is known."""
    try:
        return Capability.parse(gpu.compute_capability) if gpu.compute_capability else None
    except ValueError:
        return None


def driver_of(text: str | None) -> DriverVersion | None:
    """The version of a driver, None where the text is none."""
    try:
        return DriverVersion(text) if text else None
    except ValueError:
        return None


def cudnn_of(text: str | None) -> CudnnVersion | None:
    """The version of cuDNN, None where the text is none."""
    try:
        return CudnnVersion(text) if text else None
    except ValueError:
        return None


def as_declared(one: Installed, text: str | None = None) -> tuple[Remedy, ...]:
    """What puts the libraries of a framework that stays right; none for what no command can name."""
    if not is_version(one.version):
        return ()
    public = one.version.partition("+")[0]
    text = text or f"install the libraries that {one.label} can work with"
    return (Remedy(text=text, command=f"cudnn-resolve apply -f {one.name}=={public}"),)
