"""The facts of a machine as its checks read them, and what every check needs: findings, evidence, versions that may be unreadable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from cudnn_resolve.diagnosis.installed import Installed, installed_of
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version, parsed
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, Loader, Toolkit, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.version import Capability, CudnnVersion, DriverVersion

_TEGRA = re.compile(r"orin|xavier|tegra|jetson|nvgpu|\bnano\b", re.IGNORECASE)


class Inspection(Struct, frozen=True, kw_only=True):
    """The facts of a machine with what the tables know of its frameworks; unknown lists are empty, `facts` tells them from absent ones."""

    facts: Facts
    book: Book
    installed: tuple[Installed, ...]
    driver: Driver | None
    driver_absent: bool
    gpus: tuple[Gpu, ...]
    cudnn: tuple[CudnnCopy, ...]
    toolkits: tuple[Toolkit, ...]
    pip: Mapping[str, str]
    loader: Loader

    @property
    def version(self) -> DriverVersion | None:
        """The driver's version, where it is known."""
        return driver_of(self.driver.version) if self.driver else None

    @property
    def arch(self) -> str:
        """The processor's architecture; `x86_64` where it is unknown."""
        return self.facts.platform.arch or "x86_64"

    @property
    def is_tegra(self) -> bool:
        """True for a Jetson, whose driver versions and wheels are its own."""
        return any(_TEGRA.search(gpu.name or "") for gpu in self.gpus) or (
            self.version is not None and self.version.major < 100 and self.facts.platform.arch == "aarch64"
        )

    def pip_facts(self, *names: str) -> tuple[Evidence, ...]:
        """The installed versions of some packages, as evidence."""
        return tuple(fact("packages.pip", f"{name} {self.pip[name]}") for name in names if name in self.pip)


Checks = tuple[Callable[[Inspection], Iterator[Finding]], ...]


def inspect(facts: Facts, book: Book) -> Inspection:
    """Read the facts once for all checks."""
    return Inspection(
        facts=facts,
        book=book,
        installed=installed_of(facts, book),
        driver=or_none(facts.driver),
        driver_absent=facts.driver is None,
        gpus=or_none(facts.gpus) or (),
        cudnn=or_none(facts.cudnn) or (),
        toolkits=or_none(facts.cuda_toolkits) or (),
        pip=or_none(facts.packages.pip) or {},
        loader=or_none(facts.loader) or Loader(),
    )


def finding(cause: str, severity: str, confidence: float, summary: str, *evidence: Evidence, remedy: tuple[Remedy, ...] = ()) -> Finding:
    """Make a finding from the facts."""
    return Finding(cause=cause, severity=severity, summary=summary, evidence=evidence, remedy=remedy, confidence=confidence)


def fact(source: str, text: str) -> Evidence:
    """A line of evidence from the facts."""
    return Evidence(source=source, line=None, text=text)


def visible(machine: Inspection) -> list[Gpu]:
    """The different GPUs that programs see."""
    seen: dict[tuple[str | None, str | None], Gpu] = {}
    for gpu in machine.gpus:
        if not gpu.hidden:
            seen.setdefault((gpu.name, gpu.compute_capability), gpu)
    return list(seen.values())


def capability_of(gpu: Gpu) -> Capability | None:
    """The compute capability of a GPU, where it is known."""
    return parsed(Capability.parse, gpu.compute_capability)


driver_of = partial(parsed, DriverVersion)
"""A driver version; None for a text that is none."""
cudnn_of = partial(parsed, CudnnVersion)
"""A cuDNN version; None for a text that is none."""


def as_declared(one: Installed, text: str | None = None) -> tuple[Remedy, ...]:
    """The remedy that installs the libraries of a framework whose version stays; none for a version that no command can name."""
    if not is_version(one.version):
        return ()
    public = one.version.partition("+")[0]
    text = text or f"install the libraries that {one.label} can work with"
    return (Remedy(text=text, command=f"cudnn-resolve apply -f {one.name}=={public}"),)
