"""Warnings about the machine that a plan is for: driver, GPUs, loader, Python and apt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.key import CUDA, CUDA_OF_SYSTEM
from cudnn_resolve.resolution.solve import cuda_of
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.resolution.model import Resolution


def machine_warnings(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    """Warn of unknown facts that the plan had to assume, and of settings of the machine that interfere with it."""
    if resolution.request.device == "gpu":
        yield from _driver(resolution)
        yield from _gpu(resolution, facts)
        yield from _shadowed(resolution, facts)
    yield from _python(resolution, facts)


def _driver(resolution: Resolution) -> Iterator[Warning]:
    machine, minimum = resolution.machine, resolution.driver_min
    policy = resolution.request.driver_policy
    if machine.driver is None:
        state = "no NVIDIA driver found" if machine.driver_absent else "unknown driver"
        if minimum:
            yield Warning(
                code="driver-unknown",
                message=f"{state}: the target machine needs driver {minimum} or newer ({resolution.driver_because}; policy {policy})",
            )
        return
    native = machine.native_cuda
    if policy == "minor" and native is not None and resolution.cuda and CudaVersion(resolution.cuda) > CudaVersion(native.line):
        yield Warning(
            code="driver-policy",
            message=f"driver {machine.driver_text} is made for CUDA {native} and runs CUDA {resolution.cuda} by minor-version "
            "compatibility (policy minor): PTX that the driver must compile and features of newer drivers do not work; "
            "--driver-policy strict excludes such plans",
        )


def _gpu(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if resolution.machine.gpus:
        for gpu in resolution.machine.gpus:
            if gpu.capability is None:
                message = f"the compute capability of {gpu.label} is unknown: no build was excluded because of it"
                yield Warning(code="gpu-unknown", message=message)
        return
    if not resolution.builds:
        return
    covered = []
    for build in resolution.builds:
        targets = build.code_on(resolution.machine.arch)
        if targets:
            covered.append(f"{build.package} {build.version} has code for {', '.join(map(str, targets))}")
    state = "no GPU found" if facts.gpus == () else "unknown GPU"
    detail = f": {'; '.join(covered)}" if covered else ""
    yield Warning(code="gpu-unknown", message=f"{state}, so the plan is for any GPU that the stack supports{detail}; name one with --gpu")


def _shadowed(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    """Copies on LD_LIBRARY_PATH that the loader finds before the planned one.

    LD_LIBRARY_PATH overrides a RUNPATH but not an RPATH. The libraries of the cuDNN wheel, however, find one another by RUNPATH, so even
    behind an RPATH its parts come from the other copy (all of them up to cuDNN 9.20, later the engines; read from the wheels).
    """
    if facts.loader is UNKNOWN or resolution.cudnn is None or "pip" not in resolution.channels.values():
        return
    planned = CudnnVersion(resolution.cudnn)
    only_rpath = all(build.finds == "rpath" for build in resolution.builds)
    effect = "whose parts are loaded into" if only_rpath else "which is loaded instead of"
    for directory in facts.loader.ld_library_path:
        folder = directory.rstrip("/")
        for copy in resolution.machine.cudnn:
            if copy.path is None or copy.version is None or not (copy.path == folder or copy.path.startswith(f"{folder}/")):
                continue
            found = CudnnVersion(copy.version)
            if found.major == planned.major and found != planned:
                yield Warning(
                    code="shadowed-cudnn",
                    message=f"LD_LIBRARY_PATH names {copy.path} with cuDNN {copy.version}, {effect} the planned {planned}: "
                    "remove it from LD_LIBRARY_PATH before starting Python",
                )


def _python(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if facts.python.version is None:
        assumed = resolution.machine.python_full
        message = f"unknown Python version: the plan is for Python {assumed}; name one with --python-version"
        yield Warning(code="python-unknown", message=message)
    if facts.python.externally_managed:
        yield Warning(
            code="externally-managed",
            message="the system manages this environment (PEP 668), and pip refuses to change it: the plan makes a new one, .venv",
        )


def apt_warnings(resolution: Resolution) -> Iterator[Warning]:
    """Warn of what a plan with apt packages assumes of the system's repositories and user."""
    root = resolution.machine.root
    runtime = cuda_of(resolution.pins, CUDA_OF_SYSTEM) or cuda_of(resolution.pins, CUDA)
    if runtime is not None and runtime.repository is not None:
        if resolution.machine.os is None:
            message = f"unknown distribution: the apt packages are those of {runtime.repository}; name one with --os"
            yield Warning(code="os-unknown", message=message)
        elif runtime.foreign:
            yield Warning(
                code="older-repository",
                message=f"the apt repository of {resolution.machine.os} has no CUDA {runtime.version}: its libraries come from "
                f"{runtime.repository}, the repository of an older release, which is safe for libraries only",
            )
    detail = {None: " (unknown here)", True: "", False: ", which this user is not: hand the commands to an administrator"}[root]
    yield Warning(code="needs-root", message=f"the apt packages need root{detail}")
