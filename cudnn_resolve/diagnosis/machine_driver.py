"""The driver and the GPUs that programs see: findings from facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from cudnn_resolve.diagnosis.context import NO_CARD, has_no_card
from cudnn_resolve.diagnosis.derive_gpu import IS_STUB, IS_UNSEEN
from cudnn_resolve.diagnosis.machine import Checks, Inspection, driver_of, fact, finding
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.resolution.compatibility import cuda_span
from cudnn_resolve.version import Capability, CudaVersion, parsed

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


def _without_ptx(machine: Inspection) -> Iterator[Finding]:
    """Note on a driver older than the one released with a build's CUDA, which runs it by NVIDIA's minor-version compatibility."""
    version = None if machine.has_own_driver else machine.version
    for framework in machine.installed if version is not None else ():
        own = machine.book.toolkit_driver(framework.cuda) if framework.cuda is not None else None
        least = machine.book.floor(framework.cuda.major) if framework.cuda is not None else None
        if version is not None and own is not None and (least or own) <= version < own:
            summary = (
                f"{framework.label} is built for CUDA {framework.cuda}, released with driver {own}; driver {version} runs it by NVIDIA's "
                f"minor-version compatibility, but cannot compile PTX of CUDA {framework.cuda}"
            )
            yield finding("driver_too_old", "info", 0.6, summary, fact("driver.version", str(version)))


def _unsupported(machine: Inspection) -> Iterator[Finding]:
    """CUDA release that came before the GPU: its compiler and libraries have no code for it, although the build's PTX may run on it.

    The judgement accepts newer libraries of that major, as a plan does, and does not know of the compiler inside a framework.
    """
    gpus = {(gpu.name, gpu.compute_capability): gpu for gpu in machine.gpus if not gpu.hidden}
    for gpu, framework in product(gpus.values(), machine.installed):
        capability, cuda = parsed(Capability.parse, gpu.compute_capability), framework.cuda
        if capability is None or cuda is None or framework.delivery == "bundled" or len(cuda.parts) == 1:
            continue
        first, _ = cuda_span(machine.book, capability)
        has_code = any(target.runs_on(capability) for target in framework.targets)
        if has_code and first is not None and cuda.major == first.major and cuda < CudaVersion(first.line):
            name = gpu.name or f"the GPU of capability {capability}"
            summary = (
                f"{framework.label} is built for CUDA {cuda}, whose libraries have no code for {name} (capability {capability}): "
                f"CUDA {first.line} is the first that supports it"
            )
            evidence = (fact("gpus", f"{name}: compute capability {capability}"), fact("frameworks", f"{framework.label}: CUDA {cuda}"))
            yield finding("gpu_arch_too_new_for_build", "error", 0.9, summary, *evidence)


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


CHECKS: Checks = (_no_driver, _driver_mismatch, _refused, _without_ptx, _unsupported, _hidden, _forward, _wsl)
