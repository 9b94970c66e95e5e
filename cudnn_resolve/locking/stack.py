"""The stack of a lock: made of a resolution, and asked which cuDNN its frameworks load."""

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
    """The stack of a resolution on its platform."""
    is_gpu = resolution.request.device == "gpu"
    native, ptx, driver = _capabilities(resolution, book) if is_gpu else ((), (), None)
    return Stack(
        platform=resolution.machine.platform,
        driver_min=resolution.driver_min if is_gpu else None,
        cuda=resolution.cuda,
        cudnn=resolution.cudnn,
        cudnn_soname=resolution.cudnn_soname,
        compute_capabilities=native,
        ptx_capabilities=ptx,
        ptx_driver_min=driver,
        frameworks=tuple(map(Framework.of, resolution.builds)),
        apt=tuple(sorted((replace(pin, because=()) for pin in resolution.apt), key=astuple)),
        overrides=tuple(sorted(resolution.overrides, key=astuple)),
        environment=environment,
    )


def _capabilities(resolution: Resolution, book: Book) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """GPUs that every part has machine code for, GPUs that need PTX, and the oldest driver that can compile it."""
    if not any(build.targets or build.targets_aarch64 or build.capability_first for build in resolution.builds):
        return (), (), None
    native: list[str] = []
    ptx: list[str] = []
    drivers: list[DriverVersion] = []
    for row in book.architectures():
        if row.tegra:  # Jetson modules have their own drivers and libraries, which these wheels do not support
            continue
        needs = list(_needs(resolution, book, row.capability))
        if any(need.key == GpuKey(0) for need in needs):
            continue
        floors = [need.floor for need in needs if isinstance(need.floor, DriverVersion)]
        (ptx if floors else native).append(str(row.capability))
        drivers += floors
    return tuple(native), tuple(ptx), str(max(drivers)) if drivers else None


def _needs(resolution: Resolution, book: Book, capability: Capability) -> Iterator[Need]:
    """What the parts of the stack need of a machine with one GPU of this compute capability."""
    machine = replace(resolution.machine, gpus=(MachineGpu(label=str(capability), capability=capability, kind=None),))
    for build in resolution.builds:
        if build.cuda is not None:
            yield from code_needs(book, machine, build, build.package)
    if resolution.cudnn_build is not None:
        yield from cudnn_hardware(book, machine, resolution.cudnn_build)
    if resolution.cuda is not None:
        yield from library_needs(book, machine, CudaVersion(resolution.cuda), "the stack")


def bundled_cudnns(lock: Lock, stack: Stack, book: Book) -> dict[str, str]:
    """Framework to the cuDNN inside its wheel; only those that the matrix knows to contain one."""
    found = ((framework.name, _bundled_cudnn(lock, framework, book)) for framework in stack.frameworks)
    return {name: version for name, version in found if version is not None}


def _bundled_cudnn(lock: Lock, framework: Framework, book: Book) -> str | None:
    key = (framework.version, framework.variant)
    rows = [row for row in book.builds_of(framework.name) if (row.wheel_version, row.variant) == key]
    bundled = [row for row in rows if row.delivery == "bundled"]
    # Some releases have wheels with and without libraries under one version; the latter require NVIDIA's wheels.
    if not bundled or (len(bundled) < len(rows) and _requires_cudnn(lock, framework.name)):
        return None
    return str(bundled[0].cudnn) if bundled[0].cudnn is not None else framework.cudnn_built


def _requires_cudnn(lock: Lock, name: str) -> bool:
    needs = (need for package in lock.packages if package.name == name for need in package.dependencies or ())
    return any(str(need.get("name")).startswith("nvidia-cudnn") for need in needs)
