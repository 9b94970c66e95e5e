"""The NVIDIA driver: its release, and the CUDA it supports."""

from __future__ import annotations

from cudnn_resolve.facts.model import UNKNOWN, Driver, Problem, Unknown
from cudnn_resolve.probe.driver_sources import DriverLibrary, DriverSources
from cudnn_resolve.version import CudaVersion, DriverVersion


def find_driver(probe: DriverSources) -> tuple[Driver | Unknown | None, dict[str, str], tuple[Problem, ...]]:
    """Find the driver, the source of each of its facts, and its problems; for each fact the first source that has it counts.

    None only without any trace of a driver: no library, no kernel module, no device. UNKNOWN for a driver that gives no answers.
    """
    if not (probe.libraries or probe.kernel_signs):
        return _without_signs(probe)
    sources: dict[str, str] = {}
    found: dict[str, DriverVersion | CudaVersion] = {}

    def take(source: str, **facts: DriverVersion | CudaVersion | None) -> None:
        """Take what is not known yet."""
        new = {field: value for field, value in facts.items() if value is not None and field not in found}
        found.update(new)
        sources.update((f"driver.{field}", source) for field in new)

    nvml, libcuda, module = probe.nvml, probe.libcuda, probe.kernel_module
    take(_named("NVML", nvml.path), version=nvml.driver or nvml.file_version, cuda=nvml.cuda)  # sees hidden GPUs, too
    if not libcuda.is_stub:
        file = f"{libcuda.path}, of a forward-compatibility package" if libcuda.is_compat else libcuda.path
        take(_named("libcuda", file), version=None if libcuda.is_compat else libcuda.file_version, cuda=libcuda.cuda)
    for path, version in (("/proc/driver/nvidia/version", probe.proc_version), ("/sys/module/nvidia/version", probe.sys_version)):
        if version == module:  # otherwise it is not one of a driver release
            take(path, version=module, kernel_module=module)
    if not {"version", "cuda"} <= found.keys():  # nvidia-smi is slow
        smi = probe.smi
        version = DriverVersion(smi.driver) if smi.driver else smi.banner.driver or smi.banner.library
        take(_named("nvidia-smi", smi.path), version=version, cuda=smi.banner.cuda)
    problems = _problems(probe)
    if not found:
        if probe.jetson is None:
            problems.append(Problem(what="driver", why=f"is present ({_signs(probe)}), but its version is unknown"))
            return UNKNOWN, {"driver": _signs(probe)}, tuple(problems)
        sources["driver"] = f"Jetson Linux {probe.jetson} (/etc/nv_tegra_release)"
    texts = {field: str(value) for field, value in found.items()}
    driver = Driver(version=texts.get("version"), cuda=texts.get("cuda"), kernel_module=texts.get("kernel_module"))
    return driver, sources, tuple(problems)


def _named(source: str, file: str | None) -> str:
    return f"{source} ({file})" if file else source


def _without_signs(probe: DriverSources) -> tuple[Driver | Unknown | None, dict[str, str], tuple[Problem, ...]]:
    """Answer for a machine without a library, kernel module or device of a driver."""
    problems: list[Problem] = []
    failed = [library for library in (probe.nvml, probe.libcuda) if library.failure]
    file = probe.library_file() if failed else None
    if file:
        problems = [Problem(what=library.name, why=library.failure) for library in failed]
        problems.append(Problem(what="driver", why=f"{file} exists, but could not be asked"))
        return UNKNOWN, {"driver": file}, tuple(problems)
    if probe.libcuda.is_stub or probe.libcuda.is_compat:
        problems.append(_stand_in(probe.libcuda))
    if probe.cards:
        why = f"is not installed or loaded, although there is an NVIDIA card ({', '.join(probe.cards)})"
        problems.append(Problem(what="NVIDIA driver", why=why))
    return None, {"driver": "no driver library, no kernel module, no device"}, tuple(problems)


def _problems(probe: DriverSources) -> list[Problem]:
    """Problems of a driver that is present."""
    problems: list[Problem] = []
    for library in (probe.nvml, probe.libcuda):
        if library.failure:
            problems.append(Problem(what=library.name, why=library.failure))
        problems.extend(library.problems)
        if library.path and not library.by_loader:
            folder = library.path.rsplit("/", 1)[0]
            why = f"is in {folder}, where the loader does not look: programs started from here will not find it (LD_LIBRARY_PATH)"
            problems.append(Problem(what=library.name, why=why))
    if probe.libcuda.is_stub or probe.libcuda.is_compat:
        problems.append(_stand_in(probe.libcuda))
    problems.extend(_mismatch(probe) or _refusals(probe))
    if probe.jetson is not None:
        board = f" on {probe.board}" if probe.board else ""
        why = f"Jetson Linux {probe.jetson}{board}: its driver comes with Jetson Linux and is not chosen by version"
        problems.append(Problem(what="driver", why=why))
    return problems


def _stand_in(libcuda: DriverLibrary) -> Problem:
    """Problem of a libcuda that is not the driver's own."""
    if libcuda.is_stub:
        why = (
            f"{libcuda.path} is the toolkit's stub for linking, which does not work; it comes before the driver's own on the loader's path"
        )
        return Problem(what=libcuda.name, why=why)
    cuda = f"CUDA {libcuda.cuda}" if libcuda.cuda else "a CUDA"
    why = f"{libcuda.path} belongs to a forward-compatibility package: it offers {cuda}, which the driver itself may not support"
    return Problem(what=libcuda.name, why=why)


def _mismatch(probe: DriverSources) -> list[Problem]:
    """Problem of a kernel module and libraries of different releases."""
    module = probe.kernel_module
    library = probe.nvml if probe.nvml.file_version else probe.libcuda
    version = None if library.is_compat or library.is_stub else library.file_version
    refused = probe.nvml.error is not None and probe.nvml.error[0] == 18
    if probe.in_wsl or not (refused or (module and version and module != version)):
        return []
    kernel = f"kernel module {module}" if module else "the kernel module"
    libraries = f"libraries {version} ({library.path})" if version else f"libraries ({library.path})"
    why = f"{kernel} and {libraries} are of different releases; CUDA cannot start until the machine is rebooted or the module reloaded"
    return [Problem(what="driver/library version mismatch", why=why)]


_NVML_WORDS = {
    4: "this user may not use the GPU's device files",
    9: "the kernel module is not loaded",
    15: "a GPU has fallen off the bus",
}
_CUDA_WORDS = {
    100: "it sees no GPU",
    802: "the system is not ready: on machines with NVSwitch the fabric manager must run",
    803: "libcuda and the kernel module are of different releases",
    804: "this GPU does not allow the forward-compatibility libcuda that is loaded",
    999: "the device files are missing or the kernel module is in a bad state",
}


def _refusals(probe: DriverSources) -> list[Problem]:
    """Failed calls of the libraries that nothing else explains."""
    nvml, libcuda = probe.nvml, probe.libcuda
    problems: list[Problem] = []
    if nvml.error is not None:
        problems.append(Problem(what="NVML", why=_call_failure(nvml.error, _NVML_WORDS)))
    hidden = libcuda.error is not None and libcuda.error[0] == 100 and "CUDA_VISIBLE_DEVICES" in probe.host.environ
    if libcuda.error is not None and not libcuda.is_stub and not hidden:
        problems.append(Problem(what="cuInit", why=_call_failure(libcuda.error, _CUDA_WORDS)))
    if libcuda.absent and probe.kernel_signs:
        cause = "the driver's libraries are not installed, or this container was started without its GPU"
        problems.append(Problem(what=libcuda.name, why=f"is nowhere although the kernel module is loaded: {cause}"))
    works = bool(nvml.gpus or libcuda.gpus)
    if probe.libraries and not probe.kernel_signs and not probe.in_wsl and not works:
        why = "is not loaded and there is no device, although the driver's libraries exist; a container needs the GPU passed in"
        problems.append(Problem(what="NVIDIA kernel module", why=why))
    return problems


def _call_failure(error: tuple[int, str], known: dict[int, str]) -> str:
    status, name = error
    failure = f"failed with {name} ({status})" if name else f"failed with status {status}"
    return f"{failure}: {known[status]}" if status in known else failure


def _signs(probe: DriverSources) -> str:
    return ", ".join(probe.kernel_signs + probe.libraries)
