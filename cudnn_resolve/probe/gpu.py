"""The GPUs, including those hidden by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import asdict, replace

from cudnn_resolve.facts.driver_output import visible_devices
from cudnn_resolve.facts.model import UNKNOWN, Driver, Gpu, Problem, Unknown
from cudnn_resolve.probe.driver_sources import DriverLibrary, DriverSources

GpuAnswer = tuple[Gpu, ...] | None
_SMI = "nvidia-smi"


def _ask_libcuda(probe: DriverSources) -> GpuAnswer:
    libcuda = probe.libcuda
    if libcuda.error is not None and libcuda.error[0] == 100:  # CUDA_ERROR_NO_DEVICE, also of a kernel module that is not loaded
        is_open = "CUDA_VISIBLE_DEVICES" in probe.host.environ or (not probe.kernel_signs and probe.cards)
        return None if is_open else ()
    return _of_library(libcuda)


def _ask_proc(probe: DriverSources) -> GpuAnswer:
    gpus = []
    for row in probe.proc_gpus:
        uuid = row.get("GPU UUID", "")
        gpus.append(Gpu(name=row.get("Model"), uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None))
    return tuple(gpus) or None


GPU_STEPS: tuple[tuple[str, Callable[[DriverSources], GpuAnswer]], ...] = (
    ("NVML", lambda probe: _of_library(probe.nvml)),
    ("libcuda", _ask_libcuda),  # only those that CUDA_VISIBLE_DEVICES leaves visible
    (_SMI, lambda probe: probe.smi.gpus),  # slow: asked only if something is still missing
    ("/proc/driver/nvidia/gpus", _ask_proc),  # names without capabilities
)
"""Sources in order of preference: the first that knows any GPU counts, later ones fill its gaps."""


def find_gpus(probe: DriverSources, driver: Driver | Unknown | None) -> tuple[tuple[Gpu, ...] | Unknown, str, tuple[Problem, ...]]:
    """Find the GPUs in the driver's order, their source, and their problems.

    UNKNOWN if there may be GPUs that could not be asked about; empty only if there are certainly none.
    """
    if driver is None:
        if probe.cards:
            return UNKNOWN, f"/sys/bus/pci: {', '.join(probe.cards)}", ()
        if probe.has_no_card:
            return (), "no driver, and no NVIDIA card on the PCI bus", ()
        return UNKNOWN, "no driver, and no PCI bus on which a card would show", ()
    gpus: GpuAnswer = None
    names: list[str] = []
    for name, step in GPU_STEPS:
        if name == _SMI and _is_complete(probe, gpus):
            continue
        answer = step(probe)
        if answer is None:
            continue
        merged = answer if gpus is None or len(answer) > len(gpus) else _filled(gpus, answer)
        if merged != gpus:
            names.append(name)
        gpus = merged
    if gpus is None:
        is_hidden = "CUDA_VISIBLE_DEVICES" in probe.host.environ  # which hides GPUs that the bus may not show, of a virtual machine
        if not probe.kernel_signs and probe.has_no_card and not is_hidden:
            return (), "no kernel module, and no NVIDIA card on the PCI bus", _smi_failure(probe)
        return UNKNOWN, "no source answered", _smi_failure(probe)
    marked, problems = _marked(probe, gpus)
    return marked, ", ".join(names), (*problems, *_instances(probe), *_smi_failure(probe))


def _of_library(library: DriverLibrary) -> GpuAnswer:
    return library.gpus if library.gpus or library.count == 0 else None


def _is_complete(probe: DriverSources, gpus: GpuAnswer) -> bool:
    """True if one library listed every GPU with all relevant facts."""
    is_listed = probe.nvml.complete or (probe.libcuda.complete and "CUDA_VISIBLE_DEVICES" not in probe.host.environ)
    return is_listed and gpus is not None and all(gpu.compute_capability and gpu.memory_mib for gpu in gpus)


def _filled(gpus: tuple[Gpu, ...], others: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Fill gaps from `others`, matched by UUID, or by position without UUIDs."""
    by_uuid = {other.uuid.lower(): other for other in others if other.uuid}
    by_position = len(gpus) == len(others) and not (by_uuid and all(gpu.uuid for gpu in gpus))
    merged = []
    for index, gpu in enumerate(gpus):
        other = by_uuid.get(gpu.uuid.lower()) if gpu.uuid else None
        if other is None and by_position:
            other = others[index]
        known = asdict(other) if other else {}
        merged.append(replace(gpu, **{field: gap or known.get(field, gap) for field, gap in asdict(gpu).items() if field != "hidden"}))
    return tuple(merged)


def _marked(probe: DriverSources, gpus: tuple[Gpu, ...]) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """Mark the GPUs hidden by CUDA_VISIBLE_DEVICES; a problem if it hides or may hide one."""
    value = probe.host.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return gpus, ()
    if _of_library(probe.nvml) is None and probe.smi.gpus is None:
        why = f"is {value!r}, and only libcuda, which obeys it, could be asked: there may be more GPUs"
        return gpus, (Problem(what="CUDA_VISIBLE_DEVICES", why=why),)
    seen = _seen(probe, gpus, value)
    marked = tuple(replace(gpu, hidden=not visible) for gpu, visible in zip(gpus, seen, strict=True))
    hidden = [f"{index} ({gpu.name or 'GPU'})" for index, gpu in enumerate(marked) if gpu.hidden]
    if not hidden:
        return marked, ()
    what = "every GPU" if len(hidden) == len(marked) else f"GPU {', '.join(hidden)}"
    return marked, (Problem(what="CUDA_VISIBLE_DEVICES", why=f"is {value!r} and hides {what} from programs"),)


def _seen(probe: DriverSources, gpus: tuple[Gpu, ...], value: str) -> tuple[bool, ...]:
    """Visibility of each GPU: what libcuda sees if known, else by the value of the variable."""
    libcuda = probe.libcuda
    if libcuda.complete and libcuda.gpus and all(gpu.uuid for gpu in (*libcuda.gpus, *gpus)):
        visible = {gpu.uuid.lower() for gpu in libcuda.gpus if gpu.uuid}
        if visible <= {gpu.uuid.lower() for gpu in gpus if gpu.uuid}:
            return tuple((gpu.uuid or "").lower() in visible for gpu in gpus)
    return visible_devices(value, [gpu.uuid for gpu in gpus], probe.nvml.instances)


def _instances(probe: DriverSources) -> tuple[Problem, ...]:
    """A problem for each GPU in MIG mode."""
    why = "is divided (MIG): a program sees one instance, with part of its memory"
    return tuple(Problem(what=f"GPU {index}", why=why) for index, inner in enumerate(probe.nvml.instances) if inner)


def _smi_failure(probe: DriverSources) -> tuple[Problem, ...]:
    """A problem if nvidia-smi had to be run and failed."""
    failure = probe.smi.failure if probe.smi_was_asked else ""
    return (Problem(what="nvidia-smi", why=failure),) if failure else ()
