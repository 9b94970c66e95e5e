"""Machine facts prepared for the checks: frameworks with their builds from the matrix, and helpers to make findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from cudnn_resolve.diagnosis.judged import judgement_of
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, Loader, Toolkit, WouldLoad, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.fault import JudgedFramework
from cudnn_resolve.resolution.release import build_requires
from cudnn_resolve.version import CodeTarget, CudaVersion, CudnnVersion, DriverVersion, parsed


class Inspection(Struct, frozen=True, kw_only=True):
    """Facts of a machine and what the tables know of its frameworks; unknown lists are empty (`facts` tells unknown from absent)."""

    facts: Facts
    book: Book
    installed: tuple[Installed, ...]
    driver: Driver | None
    driver_absent: bool
    gpus: tuple[Gpu, ...]
    cudnn: tuple[CudnnCopy, ...]
    toolkits: tuple[Toolkit, ...]
    """Without the runtime of NVIDIA's wheels, of which `pip` tells."""
    pip: Mapping[str, str]
    loader: Loader

    @property
    def version(self) -> DriverVersion | None:
        """Driver version, if known."""
        return driver_of(self.driver.version) if self.driver else None

    @property
    def has_own_driver(self) -> bool:
        """True for a Jetson before Thor, which has drivers and builds of its own."""
        return machine_of(self.facts, self.book).has_own_driver


Checks = tuple[Callable[[Inspection], Iterator[Finding]], ...]


def inspect(facts: Facts, book: Book) -> Inspection:
    """Read the facts once for all checks."""
    return Inspection(
        facts=facts,
        book=book,
        installed=tuple(_installed(framework, facts, book) for framework in judgement_of(facts, book).frameworks),
        driver=or_none(facts.driver),
        driver_absent=facts.driver is None,
        gpus=or_none(facts.gpus) or (),
        cudnn=or_none(facts.cudnn) or (),
        toolkits=tuple(one for one in or_none(facts.cuda_toolkits) or () if one.source != "pip"),
        pip=or_none(facts.packages.pip) or {},
        loader=or_none(facts.loader) or Loader(),
    )


def finding(cause: str, severity: str, confidence: float, summary: str, *evidence: Evidence, remedy: tuple[Remedy, ...] = ()) -> Finding:
    """Make a finding from facts."""
    return Finding(cause=cause, severity=severity, summary=summary, evidence=evidence, remedy=remedy, confidence=confidence)


def fact(source: str, text: str) -> Evidence:
    """Make an evidence line from facts."""
    return Evidence(source=source, line=None, text=text)


driver_of = partial(parsed, DriverVersion)
"""Parse a driver version; None if invalid."""
cudnn_of = partial(parsed, CudnnVersion)
"""Parse a cuDNN version; None if invalid."""


def as_declared(framework: Installed, text: str | None = None) -> tuple[Remedy, ...]:
    """Remedy that installs a framework's libraries and keeps its version; () for a version that no command can contain."""
    if not is_version(framework.version):
        return ()
    public = framework.version.partition("+")[0]
    text = text or f"install the libraries that {framework.label} needs"
    return (Remedy(text=text, command=f"cudnn-resolve apply -f {framework.name}=={public}"),)


# --- installed frameworks ---


class Installed(Struct, frozen=True, kw_only=True):
    """One installed framework."""

    name: str
    version: str
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    others: tuple[tuple[CudaVersion | None, CudnnVersion | None], ...] = ()
    """CUDA and cuDNN of other possible builds, if neither the facts nor the version determine the build."""
    targets: tuple[CodeTarget, ...] = ()
    delivery: str = "none"
    would_load: WouldLoad | None = None
    requires: tuple[str, ...] = ()
    is_wheel: bool = False
    """True if the facts are consistent with a wheel in the tables."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


def _installed(framework: JudgedFramework, facts: Facts, book: Book) -> Installed:
    """Facts of a framework with its build as it was judged."""
    name, version, build = framework.package, framework.version, framework.build
    seen = next((one for one in or_none(facts.frameworks) or () if one.name in (name, framework.framework)), None)
    rows = [row for row in book.builds_of(name) if row.wheel_version == version]
    is_known = build is not None and build.variant != VENDOR
    return Installed(
        name=name,
        version=version,
        cuda=build.cuda if build is not None else None,
        cudnn=_finer(_cudnn(seen.cudnn_built) if seen is not None else None, build.cudnn if build is not None and is_known else None),
        others=() if seen is not None and seen.cuda_built else tuple((row.cuda, row.cudnn) for row in rows if row is not build),
        targets=build.code_on(facts.platform.arch or "") if build is not None else (),
        is_wheel=is_known and facts.platform.system in (None, "linux"),
        delivery=build.delivery if build is not None and is_known else "none",
        would_load=seen.would_load if seen is not None else None,
        requires=facts.packages.requires.get(name) or (_declared(rows, version, facts, book) if build is not None else ()),
    )


def _finer(reported: CudnnVersion | None, known: CudnnVersion | None) -> CudnnVersion | None:
    """The cuDNN it was built with: the reported one, or the tables' more exact one if only a major is reported."""
    return known if reported is None or (known is not None and len(reported.parts) == 1) else reported


def _declared(builds: Iterable[Build], version: str, facts: Facts, book: Book) -> tuple[str, ...]:
    """Requirements of the wheel without extras, if the matrix knows them; for several possible builds, those that all share."""
    public, _, local = version.partition("+")
    arch = facts.platform.arch or "x86_64"
    python = "".join(("cp", *(facts.python.version or "").split(".")[:2]))
    fit = [build for build in builds if arch in (build.arch or (arch,)) and (python in (build.pythons or (python,)) or python == "cp")]
    known = book.requires(fit[0].package, public) if fit else {}
    harvested = known.get(arch) or known.get("x86_64")
    some = [build_requires(build.requires, build.requires_like, harvested) or () for build in (fit if local else fit[:1])]
    plain = [{_plain(line) for line in lines} for lines in some[1:]]
    return tuple(line for line in some[0] if "extra ==" not in line and all(_plain(line) in other for other in plain)) if some else ()


def _plain(line: str) -> str:
    """Requirement without its marker."""
    return line.partition(";")[0].strip()


def _cudnn(text: str | None) -> CudnnVersion | None:
    """The cuDNN that a framework reports; an encoded number such as `90100` is ignored."""
    return parsed(CudnnVersion, text) if text and ("." in text or len(text) < 3) else None
