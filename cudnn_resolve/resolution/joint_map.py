"""Where each release of a framework runs and which releases share an environment, for the pages of `matrix html`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Packages, Platform, Python
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine, MachineGpu, machine_of
from cudnn_resolve.requirement.model import Target
from cudnn_resolve.requirement.target import parse_target
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import Need
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import disjoint_targets
from cudnn_resolve.resolution.key import DRIVER, FrameworkKey, GpuKey
from cudnn_resolve.resolution.marker import apply_markers
from cudnn_resolve.resolution.model import Failure, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.strategies import PYTHONS, attempt
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

OLDEST_GPU = (3, 0)
Drivers = tuple[str | None, ...]
"""Oldest driver for any GPU, then for each of `gpus`: empty if any driver will do, None if it does not run."""


class BuildReach(Struct, frozen=True, kw_only=True):
    """Where one build of a framework runs."""

    build: Build
    pythons: dict[str, Drivers]


class Shared(Struct, frozen=True, kw_only=True):
    """The environment that two releases share on one Python."""

    cuda: str | None
    cudnn: str | None
    builds: tuple[str, ...]
    overrides: tuple[str, ...]
    """Descriptions of overridden pins."""
    drivers: Drivers


class Pair(Struct, frozen=True, kw_only=True):
    """The environments of two releases."""

    shared: dict[str, Shared] = {}
    """Environment by Python, in the order in which Pythons are tried."""
    why: str = ""
    """Why there is none."""


def gpus(book: Book) -> tuple[Capability, ...]:
    """Compute capabilities of graphics cards; a Jetson needs NVIDIA's own builds."""
    return tuple(row.capability for row in book.architectures() if not row.tegra and row.capability >= OLDEST_GPU)


def reach(book: Book, framework: str) -> tuple[BuildReach, ...]:
    """Where each GPU build of a framework runs, in the order of its table."""
    found: dict[int, tuple[Build, dict[str, Drivers]]] = {}
    supported: dict[int, tuple[bool, ...]] = {}
    for python in sorted(PYTHONS):
        any_gpu = _universe(book, python)
        by_gpu = [_universe(book, python, gpu) for gpu in gpus(book)]
        for candidate in any_gpu.unordered(FrameworkKey(framework)):
            if any_gpu.machine_filter.rejections(candidate):
                continue
            build = candidate.build
            if id(build) not in supported:
                supported[id(build)] = tuple(_is_supported(book, universe.machine, build) for universe in by_gpu)
            drivers = [_oldest_driver(any_gpu.needs(candidate))]
            for universe, is_supported in zip(by_gpu, supported[id(build)], strict=True):
                drivers.append(_oldest_driver(universe.needs(candidate)) if is_supported else None)
            found.setdefault(id(build), (build, {}))[1][_python_text(python)] = tuple(drivers)
    return tuple(BuildReach(build=build, pythons=pythons) for build, pythons in found.values())


def pair(book: Book, first: str, second: str) -> Pair:
    """The environments of two requirements on every Python, or why there is none."""
    targets = (parse_target(first, book), parse_target(second, book))
    request = OpenRequest(targets=targets)
    shared: dict[str, Shared] = {}
    failures: list[Failure] = []
    for python in PYTHONS:
        machine = _machine(book, python)
        answer = attempt(book, machine, apply_markers(request, machine))
        if isinstance(answer, Resolution):
            shared[_python_text(python)] = _shared(book, answer)
        elif answer.rounds:
            failures.append(answer)
    return Pair(shared=shared, why="" if shared else _why_none(book, targets, failures))


def _machine(book: Book, python: tuple[int, int], gpu: Capability | None = None) -> Machine:
    """An empty environment on Linux about which nothing else is known."""
    version = _python_text(python)
    facts = Facts(platform=Platform(system="linux", arch="x86_64"), python=Python(version=version), packages=Packages(pip={}))
    cards = () if gpu is None else (MachineGpu(label=f"compute capability {gpu}", capability=gpu, kind=None),)
    return replace(machine_of(facts, book), gpus=cards)


def _universe(book: Book, python: tuple[int, int], gpu: Capability | None = None) -> Universe:
    return Universe(Context(book, _machine(book, python, gpu), OpenRequest(targets=())))


def _oldest_driver(needs: Iterable[Need]) -> str | None:
    """The oldest driver that meets these needs, empty for any; None if they refuse a GPU."""
    floors: list[DriverVersion] = []
    for need in needs:
        if isinstance(need.key, GpuKey):
            return None
        if need.key == DRIVER and isinstance(need.floor, DriverVersion):
            floors.append(need.floor)
    return str(max(floors, default=""))


def _is_supported(book: Book, machine: Machine, build: Build) -> bool:
    """True if some CUDA runtime and some cuDNN that work for a build support the GPU; only the bundled ones for a wheel that has them."""
    built, is_bundled = build.cuda, build.delivery == "bundled"
    if built is None:
        return True
    accepts_later = built.major >= 11 and not is_bundled
    of_major = [row.cuda for row in book.cuda_releases() if row.cuda.major == built.major]
    runtimes = [cuda for cuda in of_major if cuda.line == built.line or accepts_later]
    if runtimes and all(any(compatibility.library_needs(book, machine, cuda, "")) for cuda in reversed(runtimes)):
        return False
    cudnn = build.cudnn
    rows = [row for row in book.cudnn_builds() if cudnn is not None and row.cuda_major == built.major]
    if is_bundled and cudnn is not None:
        rows = [row for row in rows if row.version.parts[: len(cudnn.parts)] == cudnn.parts]
    elif cudnn is not None:
        rows = [row for row in rows if row.version.serves(cudnn)]
    return not rows or not all(any(compatibility.cudnn_hardware(book, machine, row)) for row in rows)


def _shared(book: Book, found: Resolution) -> Shared:
    """The environment of a resolution, with the GPUs that its builds and its cuDNN support."""
    drivers = []
    for gpu in (None, *gpus(book)):
        universe = _universe(book, found.machine.python or PYTHONS[0], gpu)
        needs = [need for build in found.builds for need in universe.builds.machine_needs(build, build.package)]
        if found.cudnn_build is not None:
            needs += compatibility.cudnn_hardware(book, universe.machine, found.cudnn_build)
        if found.cuda is not None:
            needs += compatibility.library_needs(book, universe.machine, CudaVersion(found.cuda), "CUDA")
        drivers.append(_oldest_driver(needs))
    return Shared(
        cuda=found.cuda,
        cudnn=found.cudnn,
        builds=tuple(
            build.wheel_version if build.variant in build.wheel_version else f"{build.wheel_version} ({build.variant})"
            for build in found.builds
        ),
        overrides=tuple(
            f"{override.package} {override.chosen} for {override.requested_by}, which declares {override.declared}"
            for override in found.overrides
        ),
        drivers=tuple(drivers),
    )


def _why_none(book: Book, targets: tuple[Target, Target], failures: Sequence[Failure]) -> str:
    """Why two releases share no environment."""
    if not failures:
        return "no Python has wheels of both"
    request = OpenRequest(targets=targets)
    disjoint = disjoint_targets(Universe(Context(book, _machine(book, PYTHONS[0]), request)))
    if disjoint:
        return f"{disjoint[0].what}; {disjoint[0].because}"
    causes = list(dict.fromkeys(f"{need.text}: {need.because}" for need, _ in failures[0].causes))
    return "; ".join(causes[:4]) or "their requirements exclude one another"


def _python_text(python: tuple[int, int]) -> str:
    return f"{python[0]}.{python[1]}"
