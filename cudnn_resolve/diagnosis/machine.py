"""Machine facts prepared for the checks: frameworks with their builds from the matrix, and helpers to make findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from cudnn_resolve.diagnosis.context import TEGRA
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version, parsed
from cudnn_resolve.facts.model import CPU_PACKAGES, CudnnCopy, Driver, Facts, Gpu, InstalledFramework, Loader, Toolkit, WouldLoad, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.resolution.release import build_requires
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, CudnnVersion, DriverVersion


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
    def arch(self) -> str:
        """The processor's architecture; `x86_64` where it is unknown."""
        return self.facts.platform.arch or "x86_64"

    @property
    def is_tegra(self) -> bool:
        """True for a Jetson, which has its own driver versions and wheels."""
        return any(re.search(TEGRA, gpu.name or "") for gpu in self.gpus) or (
            self.version is not None and self.version.major < 100 and self.facts.platform.arch == "aarch64"
        )

    def pip_facts(self, *names: str) -> tuple[Evidence, ...]:
        """Evidence lines with the installed versions of packages."""
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


def visible(machine: Inspection) -> list[Gpu]:
    """Distinct GPUs that programs see."""
    seen: dict[tuple[str | None, str | None], Gpu] = {}
    for gpu in machine.gpus:
        if not gpu.hidden:
            seen.setdefault((gpu.name, gpu.compute_capability), gpu)
    return list(seen.values())


def capability_of(gpu: Gpu) -> Capability | None:
    """Compute capability of a GPU, if known."""
    return parsed(Capability.parse, gpu.compute_capability)


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

_RELEASE = r"\d{1,6}\.\d{1,6}(?:\.\d{1,6})?"


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
    is_cpu: bool = False
    """True for a known CPU build."""
    is_wheel: bool = False
    """True if the facts are consistent with a wheel in the tables."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


def installed_of(facts: Facts, book: Book) -> tuple[Installed, ...]:
    """Installed frameworks; from the package list alone if their files were not inspected."""
    pip = or_none(facts.packages.pip) or {}
    seen = {framework.name: framework for framework in or_none(facts.frameworks) or ()}
    inspected = {book.framework_named(name) for name in seen}
    listed = [name for name in pip if name not in seen and book.framework_of(name) not in {None, *inspected}]
    every = (*seen.values(), *(InstalledFramework(name=name, version=pip[name]) for name in listed))
    return tuple(_installed(framework, facts, book) for framework in every)


def _installed(seen: InstalledFramework, facts: Facts, book: Book) -> Installed:
    """Complete the facts of a framework with its build in the tables."""
    cuda, cudnn = parsed(CudaVersion, seen.cuda_built), _cudnn(seen.cudnn_built)
    arch = facts.platform.arch
    possible = [build for build in _builds(book, seen) if arch is None or arch in (build.arch or (arch,))]
    possible = [build for build in possible if _pins_what_is_there(build, facts)] or possible
    alike = [build for build in possible if _agrees(build, cuda, cudnn)]
    builds = alike or possible
    pluginless = seen.name in ("jax", "jaxlib") and not _has_jax_plugin(facts)
    is_cpu = _is_cpu(seen, pluginless=pluginless)
    build = builds[0] if builds and not pluginless else None
    if build is not None and not is_cpu:
        cuda = cuda or build.cuda
    if pluginless:
        cuda = None
    # If no build agrees, it is a build of that version that the tables do not have.
    is_known = build is not None and bool(alike) and not is_cpu
    targets = () if build is None else build.code_on(arch or "")
    return Installed(
        name=seen.name,
        version=seen.version,
        cuda=cuda,
        cudnn=_finer(cudnn, build.cudnn if build and is_known else None),
        others=() if parsed(CudaVersion, seen.cuda_built) else tuple((build.cuda, build.cudnn) for build in builds[1:]),
        targets=targets if cuda is not None else (),
        is_wheel=is_known and facts.platform.system in (None, "linux"),
        delivery=build.delivery if build else "none",
        would_load=seen.would_load,
        requires=facts.packages.requires.get(seen.name) or _declared(seen, builds, facts, book),
        is_cpu=is_cpu,
    )


def _builds(book: Book, seen: InstalledFramework) -> list[Build]:
    """Possible builds, most likely first."""
    framework = book.framework_of(seen.name)
    every = [build for build in book.framework(framework).builds if build.package == seen.name] if framework is not None else []
    public, _, local = seen.version.partition("+")
    found = [build for build in every if build.version == public] or _of_same_minor(every, public)
    names = {name for name in (seen.variant, local) if name}
    exact = [build for build in found if build.variant in names or build.wheel_version == seen.version]
    if (local and not exact) or seen.variant == "cpu":
        return [build for build in exact if build.cuda is None]
    return sorted(exact or found, key=lambda build: build.index != "default" or build.cuda is None)


def _of_same_minor(every: Iterable[Build], public: str) -> list[Build]:
    """For a patch release missing from the tables: builds of another patch release of that minor, if all of them are alike."""
    minor = public.split(".")[:2]
    kinds: dict[str, set[tuple[object, ...]]] = {}
    near = [build for build in every if build.version.split(".")[:2] == minor] if re.fullmatch(_RELEASE, public) else []
    for build in near:
        kinds.setdefault(build.version, set()).add((build.variant, build.index, build.cuda, build.cudnn, build.delivery))
    alike = len({frozenset(kind) for kind in kinds.values()}) == 1
    return [build for build in near if build.version == near[0].version] if alike else []


def _pins_what_is_there(build: Build, facts: Facts) -> bool:
    """False if another build of a package is installed than a build requires: jaxlib with its CUDA and cuDNN in the local version."""
    pip = or_none(facts.packages.pip) or {}
    pins = (_plain(line).partition("==") for line in build.requires or ())
    return all(pip.get(name, version) == version for name, _, version in pins if "+" in version)


def _agrees(build: Build, cuda: CudaVersion | None, cudnn: CudnnVersion | None) -> bool:
    """True if a build has the CUDA and cuDNN that a framework reports, as far as it does."""
    if cuda is not None and (build.cuda is None or build.cuda.parts[: min(2, len(cuda.parts))] != cuda.parts[:2]):
        return False
    return cudnn is None or build.cudnn is None or cudnn.major == build.cudnn.major


def _finer(reported: CudnnVersion | None, known: CudnnVersion | None) -> CudnnVersion | None:
    """The cuDNN it was built with: the reported one, or the tables' more exact one if only a major is reported."""
    return known if reported is None or (known is not None and len(reported.parts) == 1) else reported


def _declared(seen: InstalledFramework, builds: Iterable[Build], facts: Facts, book: Book) -> tuple[str, ...]:
    """Requirements of the wheel without extras, if the matrix knows them; for several possible builds, those that all share."""
    public, _, local = seen.version.partition("+")
    arch = facts.platform.arch or "x86_64"
    known = book.requires(seen.name, public)
    harvested = known.get(arch) or known.get("x86_64")
    python = "".join(("cp", *(facts.python.version or "").split(".")[:2]))
    fit = [build for build in builds if arch in (build.arch or (arch,)) and (python in (build.pythons or (python,)) or python == "cp")]
    some = [build_requires(build.requires, build.requires_like, harvested) or () for build in (fit if local else fit[:1])]
    first, *others = some or [() if local else harvested or ()]
    plain = [{_plain(line) for line in lines} for lines in others]
    return tuple(line for line in first if "extra ==" not in line and all(_plain(line) in other for other in plain))


def _plain(line: str) -> str:
    """Requirement without its marker."""
    return line.partition(";")[0].strip()


def _has_jax_plugin(facts: Facts) -> bool:
    """True if JAX has GPU support: a plugin, or an older jaxlib that contains it."""
    pip = or_none(facts.packages.pip) or {}
    return any(name.startswith(("jax-cuda", "jax-rocm")) for name in pip) or "+cuda" in pip.get("jaxlib", "")


def _is_cpu(seen: InstalledFramework, *, pluginless: bool) -> bool:
    """True for a known CPU build."""
    if seen.variant is not None:
        return seen.variant == "cpu"
    return seen.version.endswith("+cpu") or seen.name in CPU_PACKAGES or (pluginless and seen.name == "jaxlib")


def _cudnn(text: str | None) -> CudnnVersion | None:
    """The cuDNN that a framework reports; an encoded number such as `90100` is ignored."""
    return parsed(CudnnVersion, text) if text and ("." in text or len(text) < 3) else None
