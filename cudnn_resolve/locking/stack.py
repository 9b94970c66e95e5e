"""What a lock says of a stack: made of a resolution, and asked which cuDNN its frameworks load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import astuple, replace

from cudnn_resolve.locking.model import Environment, Framework, Stack
from cudnn_resolve.requirement.machine import MachineGpu
from cudnn_resolve.resolution.compatibility import code_needs, cudnn_hardware, library_needs
from cudnn_resolve.resolution.key import GpuKey
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Lock
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.resolution.candidate import Need
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.version import Capability


def stack_of(resolution: Resolution, environment: tuple[Environment, ...], book: Book) -> Stack:
    """What the matrix decided for the platform of this resolution."""
    gpu = resolution.request.device == "gpu"
    native, ptx, driver = _capabilities(resolution, book) if gpu else ((), (), None)
    return Stack(
        platform=resolution.machine.platform,
        driver_min=resolution.driver_min if gpu else None,
        cuda=resolution.cuda,
        cudnn=resolution.cudnn,
        cudnn_soname=resolution.cudnn_soname,
        compute_capabilities=native,
        ptx_capabilities=ptx,
        ptx_driver_min=driver,
        frameworks=tuple(map(Framework.of, resolution.builds)),
        apt=tuple(sorted((replace(one, because=()) for one in resolution.apt), key=astuple)),
        overrides=tuple(sorted(resolution.overrides, key=astuple)),
        environment=environment,
    )


def _capabilities(resolution: Resolution, book: Book) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """GPUs that every part has machine code for, those that need PTX, and the oldest driver that may compile it."""
    if not any(build.targets or build.targets_aarch64 or build.capability_first for build in resolution.builds):
        return (), (), None
    native: list[str] = []
    ptx: list[str] = []
    drivers: list[DriverVersion] = []
    for row in book.architectures():
        if row.tegra:  # modules with drivers and libraries of their own, which these wheels do not know
            continue
        needs = list(_needs(resolution, book, row.capability))
        if any(need.key == GpuKey(0) for need in needs):
            continue
        floors = [need.floor for need in needs if isinstance(need.floor, DriverVersion)]
        (ptx if floors else native).append(str(row.capability))
        drivers += floors
    return tuple(native), tuple(ptx), str(max(drivers)) if drivers else None


def _needs(resolution: Resolution, book: Book, capability: Capability) -> Iterator[Need]:
    """What the parts of the stack would need of a machine whose one GPU has this compute capability."""
    machine = replace(resolution.machine, gpus=(MachineGpu(label=str(capability), capability=capability, kind=None),))
    for build in resolution.builds:
        if build.cuda is not None:
            yield from code_needs(book, machine, build, build.package)
    if resolution.cudnn_build is not None:
        yield from cudnn_hardware(book, machine, resolution.cudnn_build)
    if resolution.cuda is not None:
        yield from library_needs(book, machine, CudaVersion(resolution.cuda), "the stack")


def bundled_cudnns(lock: Lock, stack: Stack, book: Book) -> dict[str, str]:
    """Framework of the stack to the cuDNN inside its wheel, for those that have one; of what the matrix does not know, nothing."""
    found = ((one.name, _bundled_cudnn(lock, one, book)) for one in stack.frameworks)
    return {name: version for name, version in found if version is not None}


def _bundled_cudnn(lock: Lock, one: Framework, book: Book) -> str | None:
    name = book.framework_of(one.name)
    builds = book.framework(name).builds if name is not None else ()
    rows = [row for row in builds if (row.package, row.wheel_version, row.variant) == (one.name, one.version, one.variant)]
    bundled = [row for row in rows if row.delivery == "bundled"]
    # Some releases are there both ways under one version; the wheel without libraries asks for those of NVIDIA.
    if not bundled or (len(bundled) < len(rows) and _asks_for_cudnn(lock, one.name)):
        return None
    return str(bundled[0].cudnn) if bundled[0].cudnn is not None else one.cudnn_built


def _asks_for_cudnn(lock: Lock, name: str) -> bool:
    needs = (one for package in lock.packages if package.name == name for one in package.dependencies or ())
    return any(str(one.get("name")).startswith("nvidia-cudnn") for one in needs)
