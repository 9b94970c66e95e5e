"""A resolution to what a lock says of its stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.locking.model import LockedApt, LockedEnvironment, LockedFramework, LockedOverride, Stack
from cudnn_resolve.requirement.machine import MachineGpu
from cudnn_resolve.resolution.rule import code_needs, cudnn_hardware, library_needs
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Need
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.version import Capability


def platform_of(resolution: Resolution) -> str:
    """The platform of a resolution, `linux_aarch64`."""
    return f"linux_{resolution.machine.arch}"


def stack_of(resolution: Resolution, environment: tuple[LockedEnvironment, ...], book: Book) -> Stack:
    """What the matrix decided for the platform of this resolution."""
    gpu = resolution.request.device == "gpu"
    native, ptx, driver = _capabilities(resolution, book) if gpu else ((), (), None)
    return Stack(
        platform=platform_of(resolution),
        driver_min=resolution.driver_min if gpu else None,
        cuda=resolution.cuda,
        cudnn=resolution.cudnn,
        cudnn_soname=resolution.cudnn_soname,
        compute_capabilities=native,
        ptx_capabilities=ptx,
        ptx_driver_min=driver,
        frameworks=tuple(
            LockedFramework(
                name=build.package,
                version=build.wheel_version,
                variant=build.variant,
                cuda_built=str(build.cuda) if build.cuda else None,
                cudnn_built=str(build.cudnn) if build.cudnn else None,
            )
            for build in resolution.builds
        ),
        apt=tuple(sorted(LockedApt(one.name, one.version, one.repository) for one in resolution.apt)),
        overrides=tuple(
            sorted(LockedOverride(one.package, one.requested_by, one.declared, one.chosen, one.reason) for one in resolution.overrides)
        ),
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
        if any(need.name == "gpu:0" for need in needs):
            continue
        floors = [need.payload for need in needs if need.name == "driver"]
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
