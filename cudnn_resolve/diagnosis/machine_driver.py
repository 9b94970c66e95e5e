"""Driver, GPUs and the code that builds hold for them: findings from facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudnn_resolve.diagnosis.context import NO_CARD, has_no_card
from cudnn_resolve.diagnosis.derive_gpu import IS_STUB, IS_UNSEEN
from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, capability_of, driver_of, fact, finding, visible
from cudnn_resolve.diagnosis.model import Evidence, Finding
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.facts.model import Gpu, or_none
from cudnn_resolve.resolution.compatibility import cuda_span
from cudnn_resolve.version import Capability, CudaVersion

_NOTEBOOK = ("no_gpu_runtime", "this runtime has no NVIDIA driver, so it has no GPU")
_MACHINE = ("driver_not_loaded", "this machine has no NVIDIA driver")
_PLACES = {
    "colab": _NOTEBOOK,
    "kaggle": _NOTEBOOK,
    "docker": (
        "container_gpu_not_passed",
        "this container has no NVIDIA driver: it was started without the GPU, or its host has no driver",
    ),
}
"""Kind of container → cause and wording of a missing driver."""
_FAILED = r"failed with (?:\S+ \(|status )(\d{1,4})"
_REFUSALS = {
    ("cuInit", 802): ("fabric_manager_missing", "error"),
    ("cuInit", 803): ("driver_library_mismatch", "error"),
    ("cuInit", 804): ("forward_compat_hw", "error"),
    ("cuInit", 999): ("driver_wedged", "error"),
    ("NVML", 9): ("driver_not_loaded", "warning"),
    ("NVML", 15): ("hardware_fault", "error"),
}
"""Status of a driver API call (cuda.h, nvml.h) → cause and severity; only a warning where the GPU may not be wanted."""
_OF_IMAGE = "/usr/local/cuda/compat/lib"
"""On the path of every NVIDIA image, whose start script makes it only where the GPU supports it."""
_NO_DEVICE, _NOT_SUPPORTED, _UNKNOWN = 100, 804, 999


def _no_driver(machine: Inspection) -> Iterator[Finding]:
    """GPU build without a driver: runs on the CPU, or not at all."""
    builds = [framework for framework in machine.installed if framework.cuda is not None]
    if not machine.driver_absent or not builds:
        return
    cause, place = _PLACES.get(str(machine.facts.container), _MACHINE)
    place = NO_CARD if has_no_card(machine.facts) else place
    are, they = ("is", "it runs") if len(builds) == 1 else ("are", "they run")
    summary = f"{', '.join(framework.label for framework in builds)} {are} built for CUDA, and {place}: {they} on the CPU or not at all"
    evidence = (fact("frameworks", framework.label) for framework in builds)
    yield finding(cause, "warning", 0.9, summary, fact("driver", "no NVIDIA driver was found"), *evidence)


def _driver_mismatch(machine: Inspection) -> Iterator[Finding]:
    """Kernel module and driver libraries of different versions."""
    driver = machine.driver
    if driver and driver.version and driver.kernel_module and _is_mismatched(machine):
        summary = f"the driver libraries are version {driver.version}, but the loaded kernel module is {driver.kernel_module}"
        evidence = (fact("driver.version", driver.version), fact("driver.kernel_module", driver.kernel_module))
        yield finding("driver_library_mismatch", "error", 0.97, summary, *evidence)


def _is_mismatched(machine: Inspection) -> bool:
    """True if both versions are known and differ."""
    module = machine.driver.kernel_module if machine.driver else None
    return bool(machine.version and module) and machine.version != driver_of(module)


def _refused(machine: Inspection) -> Iterator[Finding]:
    """Errors of the driver API that name a cause."""
    in_container = machine.facts.container == "docker"
    for problem in machine.facts.problems:
        summary, evidence = f"{problem.what} {problem.why}", fact("driver", f"{problem.what}: {problem.why}")
        status = _status(problem.why)
        cause, severity = _REFUSALS.get((problem.what, status or 0), (None, "error"))
        if problem.what == "NVML" and status == _UNKNOWN and in_container:
            cause, summary = "container_gpu_detached", f"this container has lost its GPU: {summary}, although a driver is present"
        elif problem.what == "driver/library version mismatch" and not _is_mismatched(machine):
            cause, summary = "driver_library_mismatch", problem.why
        elif problem.what == "NVIDIA kernel module" or (problem.what == "libcuda.so.1" and problem.why.startswith("is nowhere")):
            cause, severity = _PLACES.get(str(machine.facts.container), _MACHINE)[0], "warning"
        elif problem.what == "libcuda.so.1" and IS_UNSEEN in problem.why:
            cause = "lib_not_on_path"
        elif problem.what == "libcuda.so.1" and IS_STUB in problem.why and not machine.driver_absent:
            cause = "ld_path_shadowing"
        if cause is not None:
            yield finding(cause, severity, 0.94, summary, evidence)


def _status(why: str) -> int | None:
    """Status code in the text of a failed call, or None."""
    found = re.match(_FAILED, why)
    return int(found[1]) if found else None


def _driver_old(machine: Inspection) -> Iterator[Finding]:
    """Driver older than a build's CUDA requires (error), or older than the one released with it (note)."""
    version = None if machine.is_tegra else machine.version
    for framework in machine.installed if version is not None else ():
        if version is None or framework.cuda is None:
            continue
        own = machine.book.toolkit_driver(framework.cuda)
        least = machine.book.floor(framework.cuda.major) or own
        driver = fact("driver.version", str(version))
        if least is not None and version < least:
            summary = (
                f"{framework.label} is built for CUDA {framework.cuda}, which needs driver {least} or newer; driver {version} is installed"
            )
            yield finding("driver_too_old", "error", 0.95, summary, driver, fact("frameworks", f"{framework.label}: CUDA {framework.cuda}"))
        elif own is not None and version < own:
            summary = (
                f"{framework.label} is built for CUDA {framework.cuda}, released with driver {own}; driver {version} runs it by NVIDIA's "
                f"minor-version compatibility, but cannot compile PTX of CUDA {framework.cuda}"
            )
            yield finding("driver_too_old", "info", 0.6, summary, driver)


def _architecture(machine: Inspection) -> Iterator[Finding]:
    """GPU that a build has no code for, or only PTX."""
    pairs = [
        (gpu, capability, framework) for gpu in visible(machine) if (capability := capability_of(gpu)) for framework in machine.installed
    ]
    for gpu, capability, framework in pairs:
        name = gpu.name or f"the GPU of capability {capability}"
        code = [target for target in framework.targets if target.runs_on(capability)]
        if code or not framework.targets:
            yield from _libraries(machine, framework, name, capability)
        if not framework.targets:
            continue
        targets = " ".join(map(str, framework.targets))
        evidence = (fact("gpus", f"{name}: compute capability {capability}"), fact("frameworks", f"{framework.label}: {targets}"))
        if not code:
            age = "newer" if capability > min(target.capability for target in framework.targets) else "older"
            cause = f"gpu_arch_too_{'new' if age == 'newer' else 'old'}_for_build"
            summary = (
                f"{framework.label} has code for {targets}, but none for {name} (capability {capability}), which is {age} than the build"
            )
            served = any(other is not gpu and _is_served(framework, other) for other in visible(machine))
            severity, confidence = ("warning", 0.8) if served else ("error", 0.96)
            yield finding(cause, severity, confidence, summary, *evidence)
        elif all(target.kind == "ptx" for target in code) and framework.cuda is not None:
            yield from _by_ptx(machine, framework, name, evidence)


def _libraries(machine: Inspection, framework: Installed, name: str, capability: Capability) -> Iterator[Finding]:
    """CUDA release whose own libraries, such as cuBLAS, have no code for the GPU, although the build's PTX may run on it."""
    cuda, (first, last) = framework.cuda, cuda_span(machine.book, capability)
    if cuda is None:
        return
    evidence = (fact("gpus", f"{name}: compute capability {capability}"), fact("frameworks", f"{framework.label}: CUDA {cuda}"))
    without = f"{framework.label} is built for CUDA {cuda}, whose libraries have no code for {name} (capability {capability})"
    if first is not None and cuda < CudaVersion(str(first.major) if len(cuda.parts) == 1 else first.line):
        yield finding("gpu_arch_too_new_for_build", "error", 0.9, f"{without}: CUDA {first.line} is the first that supports it", *evidence)
    elif last is not None and CudaVersion(cuda.line) > CudaVersion(str(last.major) if len(cuda.parts) == 1 else last.line):
        yield finding("gpu_arch_too_old_for_build", "error", 0.9, f"{without}: CUDA {last.line} is the last that supports it", *evidence)


def _is_served(framework: Installed, gpu: Gpu) -> bool:
    """True if a build has code for a GPU."""
    capability = capability_of(gpu)
    return capability is not None and any(target.runs_on(capability) for target in framework.targets)


def _by_ptx(machine: Inspection, framework: Installed, name: str, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    """Only PTX runs on the GPU: check that the driver can compile it."""
    native = machine.book.native_cuda(machine.version) if machine.version else None
    if native is not None and framework.cuda is not None and CudaVersion(native.line) < CudaVersion(framework.cuda.line):
        summary = (
            f"{framework.label} has only PTX of CUDA {framework.cuda} for {name}, "
            f"but driver {machine.version} compiles PTX up to CUDA {native} only"
        )
        yield finding("ptx_too_new", "error", 0.9, summary, *evidence)


def _hidden(machine: Inspection) -> Iterator[Finding]:
    """All GPUs are hidden by CUDA_VISIBLE_DEVICES."""
    if machine.gpus and all(gpu.hidden for gpu in machine.gpus):
        evidence = (fact("gpus", f"{gpu.name or 'GPU'}: hidden") for gpu in machine.gpus[:4])
        yield finding("gpu_hidden_by_env", "warning", 0.95, "CUDA_VISIBLE_DEVICES hides all GPUs of this machine", *evidence)


def _forward(machine: Inspection) -> Iterator[Finding]:
    """Forward-compatibility libcuda on the loader path of a GPU that does not support it."""
    searched = (*machine.loader.ld_library_path, *machine.loader.ldconfig)
    place = next((directory for directory in searched if is_compat(directory) and directory.rstrip("/") != _OF_IMAGE), None)
    names = [gpu.name for gpu in machine.gpus if gpu.name and (card := machine.book.card(gpu.name)) and card.kind == "geforce"]
    is_reported = any(problem.what == "cuInit" and _status(problem.why) == _NOT_SUPPORTED for problem in machine.facts.problems)
    if place is not None and names and not is_reported:
        summary = f"the loader finds libcuda in {place}, a forward-compatibility package, which {names[0]} does not support"
        yield finding("forward_compat_hw", "error", 0.85, summary, fact("loader", place), fact("gpus", names[0]))


def _wsl(machine: Inspection) -> Iterator[Finding]:
    """Linux driver installed inside WSL."""
    apt = or_none(machine.facts.packages.apt) or {}
    drivers = [name for name in apt if name.startswith(("nvidia-driver-", "libnvidia-compute-", "cuda-drivers"))]
    if machine.facts.container == "wsl" and drivers:
        summary = (
            f"{drivers[0]} is installed inside WSL, where the driver is that of Windows: its libcuda hides the one in /usr/lib/wsl/lib"
        )
        blind = any(problem.what == "cuInit" and _status(problem.why) == _NO_DEVICE for problem in machine.facts.problems)
        evidence = (fact("packages.apt", f"{name} {apt[name]}") for name in drivers[:4])
        yield finding("wsl_driver_shadowed", "error" if blind else "warning", 0.95 if blind else 0.85, summary, *evidence)


CHECKS: Checks = (_no_driver, _driver_mismatch, _refused, _driver_old, _architecture, _hidden, _forward, _wsl)
