"""Driver, GPUs and the code that builds hold for them: findings from facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, capability_of, driver_of, fact, finding, visible
from cudnn_resolve.diagnosis.model import Evidence, Finding
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.facts.model import Gpu, or_none
from cudnn_resolve.version import CudaVersion

_NOTEBOOK = ("no_gpu_runtime", "this runtime has no NVIDIA driver, as those without a GPU have none")
_MACHINE = ("driver_not_loaded", "this machine has no NVIDIA driver")
_PLACES = {
    "colab": _NOTEBOOK,
    "kaggle": _NOTEBOOK,
    "docker": ("container_gpu_not_passed", "no NVIDIA driver was passed on to this container, or its host has none"),
}
"""Kind of container to the cause of a missing driver, and the words for it."""
_FAILED = r"failed with (?:\S+ \(|status )(\d{1,4})"
_REFUSALS = {
    ("cuInit", 802): ("fabric_manager_missing", "error"),
    ("cuInit", 803): ("driver_library_mismatch", "error"),
    ("cuInit", 804): ("forward_compat_hw", "error"),
    ("cuInit", 999): ("driver_wedged", "error"),
    ("NVML", 9): ("driver_not_loaded", "warning"),
    ("NVML", 15): ("hardware_fault", "error"),
}
"""What a call of the driver's libraries returned (cuda.h, nvml.h) to its cause; a driver that is not at work may not be wanted."""
_NO_DEVICE, _NOT_SUPPORTED, _UNKNOWN = 100, 804, 999


def _no_driver(machine: Inspection) -> Iterator[Finding]:
    """A GPU build without any driver: it will run on the CPU, or not at all."""
    builds = [one for one in machine.installed if one.cuda is not None]
    if not machine.driver_absent or not builds:
        return
    cause, place = _PLACES.get(str(machine.facts.container), _MACHINE)
    are, they = ("is", "it runs") if len(builds) == 1 else ("are", "they run")
    said = f"{', '.join(one.label for one in builds)} {are} built for CUDA, and {place}: {they} on the CPU or not at all"
    shown = (fact("frameworks", one.label) for one in builds)
    yield finding(cause, "warning", 0.9, said, fact("driver", "no NVIDIA driver was found"), *shown)


def _driver_mismatch(machine: Inspection) -> Iterator[Finding]:
    """A kernel module of another version than the driver's libraries."""
    driver = machine.driver
    if driver and driver.version and driver.kernel_module and _is_mismatched(machine):
        said = f"the driver's libraries are {driver.version} and the kernel module that is loaded is {driver.kernel_module}"
        shown = (fact("driver.version", driver.version), fact("driver.kernel_module", driver.kernel_module))
        yield finding("driver_library_mismatch", "error", 0.97, said, *shown)


def _is_mismatched(machine: Inspection) -> bool:
    """True where the facts know both versions, and that they differ."""
    module = machine.driver.kernel_module if machine.driver else None
    return bool(machine.version and module) and machine.version != driver_of(module)


def _refused(machine: Inspection) -> Iterator[Finding]:
    """What the driver's own libraries said when they were asked, where that names a cause."""
    in_container = machine.facts.container == "docker"
    for problem in machine.facts.problems:
        said, shown = f"{problem.what} {problem.why}", fact("driver", f"{problem.what}: {problem.why}")
        status = _status(problem.why)
        cause, severity = _REFUSALS.get((problem.what, status or 0), (None, "error"))
        if problem.what == "NVML" and status == _UNKNOWN and in_container:
            cause, said = "container_gpu_detached", f"this container has lost its GPU: {said}, though a driver is there"
        elif problem.what == "driver/library version mismatch" and not _is_mismatched(machine):
            cause, said = "driver_library_mismatch", problem.why
        elif problem.what == "NVIDIA kernel module" or (problem.what == "libcuda.so.1" and problem.why.startswith("is nowhere")):
            cause, severity = _PLACES.get(str(machine.facts.container), _MACHINE)[0], "warning"
        elif problem.what == "libcuda.so.1" and ", where the loader does not look" in problem.why:
            cause = "lib_not_on_path"
        if cause is not None:
            yield finding(cause, severity, 0.94, said, shown)


def _status(why: str) -> int | None:
    """The number that a failed call returned; None where none is told."""
    found = re.match(_FAILED, why)
    return int(found[1]) if found else None


def _driver_old(machine: Inspection) -> Iterator[Finding]:
    """A driver older than the CUDA of a build needs, or than the one that was made for it."""
    version = None if machine.is_tegra else machine.version
    for one in machine.installed if version is not None else ():
        if version is None or one.cuda is None:
            continue
        own = machine.book.toolkit_driver(one.cuda)
        least = machine.book.floor(one.cuda.major) or own
        driver = fact("driver.version", str(version))
        if least is not None and version < least:
            said = f"{one.label} is built for CUDA {one.cuda}, which needs driver {least} or newer, and the driver is {version}"
            yield finding("driver_too_old", "error", 0.95, said, driver, fact("frameworks", f"{one.label}: CUDA {one.cuda}"))
        elif own is not None and version < own:
            said = (
                f"{one.label} is built for CUDA {one.cuda}, whose own driver is {own}; with {version} it runs by NVIDIA's "
                f"minor-version rule, and PTX of CUDA {one.cuda} cannot be compiled"
            )
            yield finding("driver_too_old", "info", 0.6, said, driver)


def _architecture(machine: Inspection) -> Iterator[Finding]:
    """A GPU that a build holds no code for, or only PTX."""
    pairs = [(gpu, capability, one) for gpu in visible(machine) if (capability := capability_of(gpu)) for one in machine.installed]
    for gpu, capability, one in pairs:
        if not one.targets:
            continue
        code = [target for target in one.targets if target.runs_on(capability)]
        name = gpu.name or f"the GPU of capability {capability}"
        targets = " ".join(map(str, one.targets))
        shown = (fact("gpus", f"{name}: compute capability {capability}"), fact("frameworks", f"{one.label}: {targets}"))
        if not code:
            age = "newer" if capability > min(target.capability for target in one.targets) else "older"
            cause = f"gpu_arch_too_{'new' if age == 'newer' else 'old'}_for_build"
            said = (
                f"{one.label} has code for {targets} and none that runs on {name} (capability {capability}), which is {age} than the build"
            )
            served = any(other is not gpu and _is_served(one, other) for other in visible(machine))
            severity, confidence = ("warning", 0.8) if served else ("error", 0.96)
            yield finding(cause, severity, confidence, said, *shown)
        elif all(target.kind == "ptx" for target in code) and one.cuda is not None:
            yield from _by_ptx(machine, one, name, shown)


def _is_served(one: Installed, gpu: Gpu) -> bool:
    """True for a GPU that a build has code for."""
    capability = capability_of(gpu)
    return capability is not None and any(target.runs_on(capability) for target in one.targets)


def _by_ptx(machine: Inspection, one: Installed, name: str, shown: tuple[Evidence, ...]) -> Iterator[Finding]:
    """Only PTX serves the card: the driver must be able to compile it."""
    native = machine.book.native_cuda(machine.version) if machine.version else None
    if native is not None and one.cuda is not None and CudaVersion(native.line) < CudaVersion(one.cuda.line):
        said = f"{one.label} serves {name} by PTX of CUDA {one.cuda} only, and driver {machine.version} compiles PTX up to CUDA {native}"
        yield finding("ptx_too_new", "error", 0.9, said, *shown)


def _hidden(machine: Inspection) -> Iterator[Finding]:
    """Every GPU is hidden from programs."""
    if machine.gpus and all(gpu.hidden for gpu in machine.gpus):
        shown = (fact("gpus", f"{gpu.name or 'GPU'}: hidden") for gpu in machine.gpus[:4])
        yield finding("gpu_hidden_by_env", "warning", 0.95, "CUDA_VISIBLE_DEVICES hides every GPU of this machine from programs", *shown)


def _forward(machine: Inspection) -> Iterator[Finding]:
    """A compat libcuda that the loader finds, with a card that does not support it."""
    place = next((one for one in (*machine.loader.ld_library_path, *machine.loader.ldconfig) if is_compat(one)), None)
    names = [gpu.name for gpu in machine.gpus if gpu.name and (card := machine.book.card(gpu.name)) and card.kind == "geforce"]
    told = any(one.what == "cuInit" and _status(one.why) == _NOT_SUPPORTED for one in machine.facts.problems)
    if place is not None and names and not told:
        said = f"the loader looks for libcuda in {place}, a forward-compatibility package, and {names[0]} does not support it"
        yield finding("forward_compat_hw", "error", 0.85, said, fact("loader", place), fact("gpus", names[0]))


def _wsl(machine: Inspection) -> Iterator[Finding]:
    """A Linux driver inside WSL."""
    apt = or_none(machine.facts.packages.apt) or {}
    drivers = [name for name in apt if name.startswith(("nvidia-driver-", "libnvidia-compute-", "cuda-drivers"))]
    if machine.facts.container == "wsl" and drivers:
        said = f"{drivers[0]} is installed inside WSL, where the driver is that of Windows: its libcuda hides the one in /usr/lib/wsl/lib"
        blind = any(one.what == "cuInit" and _status(one.why) == _NO_DEVICE for one in machine.facts.problems)
        shown = (fact("packages.apt", f"{name} {apt[name]}") for name in drivers[:4])
        yield finding("wsl_driver_shadowed", "error" if blind else "warning", 0.95 if blind else 0.85, said, *shown)


CHECKS: Checks = (_no_driver, _driver_mismatch, _refused, _driver_old, _architecture, _hidden, _forward, _wsl)
