"""The facts of a machine as its checks read them: its frameworks, each with what the matrix knows of its build, findings, evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version, parsed
from cudnn_resolve.facts.model import CPU_PACKAGES, CudnnCopy, Driver, Facts, Gpu, InstalledFramework, Loader, Toolkit, WouldLoad, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.resolution.release import build_requires
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, CudnnVersion, DriverVersion

_TEGRA = r"(?i)orin|xavier|tegra|jetson|nvgpu|\bnano\b"


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
    """Without the runtime of NVIDIA's wheels, of which `pip` tells."""
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
        return any(re.search(_TEGRA, gpu.name or "") for gpu in self.gpus) or (
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
        toolkits=tuple(one for one in or_none(facts.cuda_toolkits) or () if one.source != "pip"),
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


# --- installed frameworks ---

_RELEASE = r"\d{1,6}\.\d{1,6}(?:\.\d{1,6})?"


class Installed(Struct, frozen=True, kw_only=True):
    """One installed framework."""

    name: str
    version: str
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    others: tuple[tuple[CudaVersion | None, CudnnVersion | None], ...] = ()
    """CUDA and cuDNN of the other builds that it may be, where neither the facts nor its version say which."""
    targets: tuple[CodeTarget, ...] = ()
    delivery: str = "none"
    would_load: WouldLoad | None = None
    requires: tuple[str, ...] = ()
    is_cpu: bool = False
    """True for a build that is known to have no CUDA in it."""
    is_wheel: bool = False
    """True where it may be the wheel that the tables know, as far as the facts say."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


def installed_of(facts: Facts, book: Book) -> tuple[Installed, ...]:
    """The installed frameworks; from the package list alone where nobody looked into their files."""
    pip = or_none(facts.packages.pip) or {}
    seen = {one.name: one for one in or_none(facts.frameworks) or ()}
    listed = [name for name in pip if name not in seen and book.framework_of(name) is not None]
    every = (*seen.values(), *(InstalledFramework(name=name, version=pip[name]) for name in listed))
    return tuple(_installed(one, facts, book) for one in every)


def _installed(seen: InstalledFramework, facts: Facts, book: Book) -> Installed:
    """Complete what the facts say of a framework with the build of the tables that it is."""
    cuda, cudnn = parsed(CudaVersion, seen.cuda_built), _cudnn(seen.cudnn_built)
    arch = facts.platform.arch
    possible = [one for one in _builds(book, seen) if arch is None or arch in (one.arch or (arch,))]
    alike = [one for one in possible if _agrees(one, cuda, cudnn)]
    builds = alike or possible
    pluginless = seen.name in ("jax", "jaxlib") and not _has_jax_plugin(facts)
    is_cpu = _is_cpu(seen, pluginless=pluginless)
    build = builds[0] if builds and not pluginless else None
    if build is not None and not is_cpu:
        cuda = cuda or build.cuda
    if pluginless:
        cuda = None
    # Where no build agrees it is another one of that version, of which the tables know nothing.
    is_known = build is not None and bool(alike) and not is_cpu
    targets = () if build is None else build.code_on(arch or "")
    return Installed(
        name=seen.name,
        version=seen.version,
        cuda=cuda,
        cudnn=_finer(cudnn, build.cudnn if build and is_known else None),
        others=() if parsed(CudaVersion, seen.cuda_built) else tuple((one.cuda, one.cudnn) for one in builds[1:]),
        targets=targets if cuda is not None else (),
        is_wheel=is_known and facts.platform.system in (None, "linux"),
        delivery=build.delivery if build else "none",
        would_load=seen.would_load,
        requires=facts.packages.requires.get(seen.name) or _declared(seen, builds, facts, book),
        is_cpu=is_cpu,
    )


def _builds(book: Book, seen: InstalledFramework) -> list[Build]:
    """The builds that it can be, the likeliest first."""
    framework = book.framework_of(seen.name)
    every = [one for one in book.framework(framework).builds if one.package == seen.name] if framework is not None else []
    public, _, local = seen.version.partition("+")
    found = [one for one in every if one.version == public] or _of_same_minor(every, public)
    names = {one for one in (seen.variant, local) if one}
    exact = [one for one in found if one.variant in names or one.wheel_version == seen.version]
    if (local and not exact) or seen.variant == "cpu":
        return [one for one in exact if one.cuda is None]
    return sorted(exact or found, key=lambda one: one.index != "default" or one.cuda is None)


def _of_same_minor(every: Iterable[Build], public: str) -> list[Build]:
    """For a patch release that the tables lack: the builds of another one of its minor, where all of these are alike."""
    minor = public.split(".")[:2]
    kinds: dict[str, set[tuple[object, ...]]] = {}
    near = [one for one in every if one.version.split(".")[:2] == minor] if re.fullmatch(_RELEASE, public) else []
    for one in near:
        kinds.setdefault(one.version, set()).add((one.variant, one.index, one.cuda, one.cudnn, one.delivery))
    alike = len({frozenset(kind) for kind in kinds.values()}) == 1
    return [one for one in near if one.version == near[0].version] if alike else []


def _agrees(build: Build, cuda: CudaVersion | None, cudnn: CudnnVersion | None) -> bool:
    """True where a build has the CUDA and the cuDNN that a framework says of itself, as far as it does."""
    if cuda is not None and (build.cuda is None or build.cuda.parts[: min(2, len(cuda.parts))] != cuda.parts[:2]):
        return False
    return cudnn is None or build.cudnn is None or cudnn.major == build.cudnn.major


def _finer(told: CudnnVersion | None, known: CudnnVersion | None) -> CudnnVersion | None:
    """What it was built with: as it says itself, or more exactly where the tables know the same major."""
    return known if told is None or (known is not None and len(told.parts) == 1) else told


def _declared(seen: InstalledFramework, builds: Iterable[Build], facts: Facts, book: Book) -> tuple[str, ...]:
    """What the wheel of that version requires, extras apart, as far as the matrix knows it; where it may be one of several, what all do."""
    public, _, local = seen.version.partition("+")
    arch = facts.platform.arch or "x86_64"
    known = book.requires(seen.name, public)
    harvested = known.get(arch) or known.get("x86_64")
    python = "".join(("cp", *(facts.python.version or "").split(".")[:2]))
    fit = [one for one in builds if arch in (one.arch or (arch,)) and (python in (one.pythons or (python,)) or python == "cp")]
    some = [build_requires(one.requires, one.requires_like, harvested) or () for one in (fit if local else fit[:1])]
    first, *others = some or [() if local else harvested or ()]
    plain = [{_plain(line) for line in lines} for lines in others]
    return tuple(line for line in first if "extra ==" not in line and all(_plain(line) in one for one in plain))


def _plain(line: str) -> str:
    """A requirement without its marker."""
    return line.partition(";")[0].strip()


def _has_jax_plugin(facts: Facts) -> bool:
    """True where JAX has its GPU part: a plugin, or inside an older jaxlib."""
    pip = or_none(facts.packages.pip) or {}
    return any(one.startswith(("jax-cuda", "jax-rocm")) for one in pip) or "+cuda" in pip.get("jaxlib", "")


def _is_cpu(seen: InstalledFramework, *, pluginless: bool) -> bool:
    """True for a build that is known to have no CUDA in it."""
    if seen.variant is not None:
        return seen.variant == "cpu"
    return seen.version.endswith("+cpu") or seen.name in CPU_PACKAGES or (pluginless and seen.name == "jaxlib")


def _cudnn(text: str | None) -> CudnnVersion | None:
    """The cuDNN that a framework says it was built with; an encoded number such as `90100` is not read."""
    return parsed(CudnnVersion, text) if text and ("." in text or len(text) < 3) else None
