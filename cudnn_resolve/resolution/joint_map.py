"""Where each release of a framework runs, and which releases share an environment: what the pages of `matrix html` show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Packages, Platform, Python
from cudnn_resolve.requirement.machine import Machine, MachineGpu, machine_of
from cudnn_resolve.requirement.target import parse_target
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.attempt import PYTHONS, attempt
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import apart
from cudnn_resolve.resolution.key import DRIVER, FrameworkKey, GpuKey
from cudnn_resolve.resolution.marker import settle
from cudnn_resolve.resolution.model import Failure, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Target
    from cudnn_resolve.resolution.candidate import Need
    from cudnn_resolve.version import Capability

OLDEST_GPU = (3, 0)
Drivers = tuple[str | None, ...]
"""The oldest driver with any GPU that fits, and with each of `gpus`: empty where none is asked for, None where it does not run."""


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
    """Pins of wheels that are left, in words."""
    drivers: Drivers


class Pair(Struct, frozen=True, kw_only=True):
    """What the resolution says of two releases."""

    shared: dict[str, Shared] = {}
    """The environment by its Python, the one that is tried first in front."""
    why: str = ""
    """Why there is none."""


def gpus(book: Book) -> tuple[Capability, ...]:
    """The compute capabilities of graphics cards; those of a Jetson take builds of NVIDIA's own."""
    return tuple(one.capability for one in book.architectures() if not one.tegra and one.capability >= OLDEST_GPU)


def reach(book: Book, framework: str) -> tuple[BuildReach, ...]:
    """Where each GPU build of a framework runs, in the order of its table."""
    found: dict[int, tuple[Build, dict[str, Drivers]]] = {}
    served: dict[int, tuple[bool, ...]] = {}
    for python in sorted(PYTHONS):
        whole = _universe(book, python)
        single = [_universe(book, python, gpu) for gpu in gpus(book)]
        for candidate in whole.unordered(FrameworkKey(framework)):
            if not whole.look.met(candidate):
                build = candidate.build
                if id(build) not in served:
                    served[id(build)] = tuple(_is_served(book, one.machine, build) for one in single)
                each = (
                    _driver(one.needs(candidate)) if is_served else None for one, is_served in zip(single, served[id(build)], strict=True)
                )
                drivers = (_driver(whole.needs(candidate)), *each)
                found.setdefault(id(candidate.build), (candidate.build, {}))[1][_text(python)] = drivers
    return tuple(BuildReach(build=build, pythons=pythons) for build, pythons in found.values())


def pair(book: Book, first: str, second: str) -> Pair:
    """The environments of two requirements on every Python, and why there is none where there is none."""
    targets = (parse_target(first, book), parse_target(second, book))
    request = OpenRequest(targets=targets)
    shared: dict[str, Shared] = {}
    failures: list[Failure] = []
    for python in PYTHONS:
        machine = _machine(book, python)
        answer = attempt(book, machine, settle(request, machine))
        if isinstance(answer, Resolution):
            shared[_text(python)] = _shared(book, answer)
        elif answer.rounds:
            failures.append(answer)
    return Pair(shared=shared, why="" if shared else _why(book, targets, failures))


def _machine(book: Book, python: tuple[int, int], gpu: Capability | None = None) -> Machine:
    """An empty environment on Linux of which nobody knows more than this."""
    facts = Facts(platform=Platform(system="linux", arch="x86_64"), python=Python(version=_text(python)), packages=Packages(pip={}))
    named = () if gpu is None else (MachineGpu(label=f"compute capability {gpu}", capability=gpu, kind=None),)
    return replace(machine_of(facts, book), gpus=named)


def _universe(book: Book, python: tuple[int, int], gpu: Capability | None = None) -> Universe:
    """Everything that there is on a machine."""
    return Universe(Context(book, _machine(book, python, gpu), OpenRequest(targets=())))


def _driver(needs: Iterable[Need]) -> str | None:
    """The oldest driver that meets these needs, empty for any; None where a GPU is refused."""
    floors: list[DriverVersion] = []
    for need in needs:
        if isinstance(need.key, GpuKey):
            return None
        if need.key == DRIVER and isinstance(need.floor, DriverVersion):
            floors.append(need.floor)
    return str(max(floors, default=""))


def _is_served(book: Book, machine: Machine, build: Build) -> bool:
    """True where some CUDA runtime and some cuDNN that serve a build know the GPU; of a wheel with both inside those very ones."""
    built, inside = build.cuda, build.delivery == "bundled"
    if built is None:
        return True
    later = built.major >= 11 and not inside
    runtimes = [one.cuda for one in book.cuda_releases() if one.cuda.major == built.major and (one.cuda.line == built.line or later)]
    if runtimes and all(any(compatibility.library_needs(book, machine, one, "")) for one in reversed(runtimes)):
        return False
    cudnn = build.cudnn
    rows = [one for one in book.cudnn_builds() if cudnn is not None and one.cuda_major == built.major]
    if inside and cudnn is not None:
        rows = [one for one in rows if one.version.parts[: len(cudnn.parts)] == cudnn.parts]
    elif cudnn is not None:
        rows = [one for one in rows if one.version.serves(cudnn)]
    return not rows or not all(any(compatibility.cudnn_hardware(book, machine, one)) for one in rows)


def _shared(book: Book, found: Resolution) -> Shared:
    """What a resolution shares, and on which GPUs these very builds and this cuDNN run."""
    drivers = []
    for gpu in (None, *gpus(book)):
        one = _universe(book, found.machine.python or PYTHONS[0], gpu)
        needs = [need for build in found.builds for need in one.builds.machine_needs(build, build.package)]
        if found.cudnn_build is not None:
            needs += compatibility.cudnn_hardware(book, one.machine, found.cudnn_build)
        if found.cuda is not None:
            needs += compatibility.library_needs(book, one.machine, CudaVersion(found.cuda), "CUDA")
        drivers.append(_driver(needs))
    return Shared(
        cuda=found.cuda,
        cudnn=found.cudnn,
        builds=tuple(
            build.wheel_version if build.variant in build.wheel_version else f"{build.wheel_version} ({build.variant})"
            for build in found.builds
        ),
        overrides=tuple(f"{one.package} {one.chosen} for {one.requested_by}, which declares {one.declared}" for one in found.overrides),
        drivers=tuple(drivers),
    )


def _why(book: Book, targets: tuple[Target, Target], failures: Sequence[Failure]) -> str:
    """Why two releases share no environment."""
    if not failures:
        return "no Python has wheels of both"
    request = OpenRequest(targets=targets)
    found = apart(Universe(Context(book, _machine(book, PYTHONS[0]), request)))
    if found:
        return f"{found[0].what}; {found[0].because}"
    causes = list(dict.fromkeys(f"{one.text}: {one.because}" for one in failures[0].causes))
    return "; ".join(causes[:4]) or "their requirements exclude one another"


def _text(python: tuple[int, int]) -> str:
    return f"{python[0]}.{python[1]}"
