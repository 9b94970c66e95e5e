"""Driver, GPUs and what builds hold for them: findings from facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cudnn_resolve.diagnosis.installed import Installed
from cudnn_resolve.diagnosis.machine import Machine, capability_of, driver_of, fact, visible
from cudnn_resolve.diagnosis.model import Evidence, Finding
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.version import CudaVersion

_MACHINE = ("driver_not_loaded", "this machine has no NVIDIA driver")
_PLACES = {
    "colab": ("no_gpu_runtime", "this runtime has no NVIDIA driver, as those without a GPU have none"),
    "kaggle": ("no_gpu_runtime", "this runtime has no NVIDIA driver, as those without a GPU have none"),
    "docker": ("container_gpu_not_passed", "no NVIDIA driver was passed on to this container, or its host has none"),
}
"""Where programs are, to the cause of a driver that is not there, and how it is said."""


def _no_driver(machine: Machine) -> Iterator[Finding]:
    """A GPU build without any driver: it will run on the CPU, or not at all."""
    builds = [one for one in machine.installed if one.cuda is not None]
    if not machine.driver_absent or not builds:
        return
    names = ", ".join(one.label for one in builds)
    cause, place = _PLACES.get(machine.facts.container if isinstance(machine.facts.container, str) else "", _MACHINE)
    are, they = ("is", "it runs") if len(builds) == 1 else ("are", "they run")
    yield Finding(
        cause=cause,
        severity="warning",
        summary=f"{names} {are} built for CUDA, and {place}: {they} on the CPU or not at all",
        evidence=(fact("driver", "no NVIDIA driver was found"), *(fact("frameworks", one.label) for one in builds)),
        confidence=0.9,
    )


def _driver_mismatch(machine: Machine) -> Iterator[Finding]:
    driver = machine.driver
    if driver is None or not driver.version or not driver.kernel_module or driver_of(driver.version) == driver_of(driver.kernel_module):
        return
    yield Finding(
        cause="driver_library_mismatch",
        severity="error",
        summary=f"the driver's libraries are {driver.version} and the kernel module that is loaded is {driver.kernel_module}",
        evidence=(fact("driver.version", driver.version), fact("driver.kernel_module", driver.kernel_module)),
        confidence=0.97,
    )


def _driver_old(machine: Machine) -> Iterator[Finding]:
    version = None if machine.is_tegra else machine.version
    for one in machine.installed:
        if version is None or one.cuda is None:
            continue
        floor = machine.book.floor(one.cuda.major)
        own = machine.book.toolkit_driver(one.cuda)
        least = floor or own
        if least is not None and version < least:
            yield Finding(
                cause="driver_too_old",
                severity="error",
                summary=f"{one.label} is built for CUDA {one.cuda}, which needs driver {least} or newer, and the driver is {version}",
                evidence=(fact("driver.version", str(version)), fact("frameworks", f"{one.label}: CUDA {one.cuda}")),
                confidence=0.95,
            )
        elif own is not None and version < own:
            yield Finding(
                cause="driver_too_old",
                severity="info",
                summary=f"{one.label} is built for CUDA {one.cuda}, whose own driver is {own}; with {version} it runs by NVIDIA's "
                f"minor-version rule, and PTX of CUDA {one.cuda} cannot be compiled",
                evidence=(fact("driver.version", str(version)),),
                confidence=0.6,
            )


def _architecture(machine: Machine) -> Iterator[Finding]:
    for gpu in visible(machine):
        capability = capability_of(gpu)
        for one in machine.installed:
            if capability is None or not one.targets:
                continue
            code = [target for target in one.targets if target.runs_on(capability)]
            name = gpu.name or f"the GPU of capability {capability}"
            shown = " ".join(map(str, one.targets))
            evidence = (fact("gpus", f"{name}: compute capability {capability}"), fact("frameworks", f"{one.label}: {shown}"))
            if not code:
                newer = capability > min(target.capability for target in one.targets)
                yield Finding(
                    cause="gpu_arch_too_new_for_build" if newer else "gpu_arch_too_old_for_build",
                    severity="error",
                    summary=f"{one.label} has code for {shown} and none that runs on {name} (capability {capability}), "
                    f"which is {'newer' if newer else 'older'} than the build",
                    evidence=evidence,
                    confidence=0.96,
                )
            elif all(target.kind == "ptx" for target in code) and one.cuda is not None:
                yield from _by_ptx(machine, one, name, evidence)


def _by_ptx(machine: Machine, one: Installed, name: str, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    """Only PTX serves the card: the driver must be able to compile it."""
    native = machine.book.native_cuda(machine.version) if machine.version else None
    if native is not None and one.cuda is not None and CudaVersion(native.line) < CudaVersion(one.cuda.line):
        yield Finding(
            cause="ptx_too_new",
            severity="error",
            summary=f"{one.label} serves {name} by PTX of CUDA {one.cuda} only, and driver {machine.version} compiles PTX "
            f"up to CUDA {native}",
            evidence=evidence,
            confidence=0.9,
        )


def _hidden(machine: Machine) -> Iterator[Finding]:
    if machine.gpus and all(gpu.hidden for gpu in machine.gpus):
        yield Finding(
            cause="gpu_hidden_by_env",
            severity="warning",
            summary="CUDA_VISIBLE_DEVICES hides every GPU of this machine from programs",
            evidence=tuple(fact("gpus", f"{gpu.name or 'GPU'}: hidden") for gpu in machine.gpus[:4]),
            confidence=0.95,
        )


def _forward(machine: Machine) -> Iterator[Finding]:
    """A compat libcuda that the loader finds on a card that does not support it."""
    places = [one for one in (*machine.loader.ld_library_path, *machine.loader.ldconfig) if "/compat" in one]
    if not places:
        return
    for gpu in machine.gpus:
        card = machine.book.card(gpu.name) if gpu.name else None
        if card is not None and card.kind == "geforce":
            yield Finding(
                cause="forward_compat_hw",
                severity="error",
                summary=f"the loader looks for libcuda in {places[0]}, a forward-compatibility package, and {gpu.name} does not support it",
                evidence=(fact("loader", places[0]), fact("gpus", gpu.name or "")),
                confidence=0.85,
            )
            return


def _wsl(machine: Machine) -> Iterator[Finding]:
    apt = or_none(machine.facts.packages.apt) or {}
    drivers = [name for name in apt if name.startswith(("nvidia-driver-", "libnvidia-compute-", "cuda-drivers"))]
    if machine.facts.container == "wsl" and drivers:
        yield Finding(
            cause="wsl_driver_shadowed",
            severity="warning",
            summary=f"{drivers[0]} is installed inside WSL, where the driver is that of Windows: "
            "its libcuda hides the one in /usr/lib/wsl/lib",
            evidence=tuple(fact("packages.apt", f"{name} {apt[name]}") for name in drivers[:4]),
            confidence=0.85,
        )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    _no_driver,
    _driver_mismatch,
    _driver_old,
    _architecture,
    _hidden,
    _forward,
    _wsl,
)
