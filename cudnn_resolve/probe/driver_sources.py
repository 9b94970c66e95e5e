"""Sources of facts about the driver: its libraries, nvidia-smi and the kernel's files, each asked at most once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from cudnn_resolve.facts.driver_output import (
    OLD_QUERY_FIELDS,
    QUERY_FIELDS,
    Banner,
    is_compat,
    is_nvidia_display,
    library_version,
    parse_banner,
    parse_driver_version,
    parse_gpu_information,
    parse_module_version,
    parse_query,
    parse_tegra_release,
)
from cudnn_resolve.facts.model import Gpu, Problem
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import CommandResult, Host, is_dir, which
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

# --- NVML and libcuda ---

LIBRARY_SECONDS = 10.0
"""Time limit for one library; initialising eight GPUs without persistence mode takes several seconds."""

_DRIVER = r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}"
_UUID = r"(?i)GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MIB = 1 << 20


class DriverLibrary(Struct, frozen=True, kw_only=True):
    """Answers of one driver library; None = no answer."""

    name: str
    """`libcuda.so.1`."""
    path: str | None = None
    """Loaded file, links resolved."""
    by_loader: bool = True
    """True if it was found by name alone, as by any program."""
    absent: bool = False
    """True if it was found nowhere."""
    failure: str = ""
    """How it failed to load, hung or crashed; empty if it answered."""
    cuda: CudaVersion | None = None
    driver: DriverVersion | None = None
    error: tuple[int, str] | None = None
    """Status and name of a failed call."""
    count: int | None = None
    gpus: tuple[Gpu, ...] = ()
    instances: tuple[tuple[str, ...], ...] = ()
    """UUIDs of the MIG instances of each GPU."""
    problems: tuple[Problem, ...] = ()

    @property
    def file_version(self) -> DriverVersion | None:
        """Driver release in the file name."""
        return library_version(self.path) if self.path else None

    @property
    def is_compat(self) -> bool:
        """True for the libcuda of a forward-compatibility package, which is not the driver's own."""
        return self.path is not None and is_compat(self.path)

    @property
    def is_stub(self) -> bool:
        """True for the toolkit's libcuda for linking, which does nothing."""
        return (self.path is not None and "/stubs/" in self.path) or (self.error is not None and self.error[0] == 34)

    @property
    def complete(self) -> bool:
        """True if it described every GPU that it counts."""
        return self.count is not None and self.count == len(self.gpus)


def ask_libraries(host: Host) -> tuple[DriverLibrary, DriverLibrary]:
    """Answers of NVML and libcuda, asked concurrently in one child that forks for each and knows where they may be."""
    answer: dict[str, Any] = {"failed": "there is no Python to ask with"}
    if host.python:
        argv = [host.python, "-I", "-S", payload_path("probe/payload_library.py"), "driver", f"{LIBRARY_SECONDS:g}"]
        result = host.run(argv, timeout_seconds=LIBRARY_SECONDS + 5)
        answer = answer_of(result.stdout) or {"failed": f"the process that asks {result.why() or 'gave no answer'}"}
    if "failed" in answer:
        answer = {"nvml": answer, "libcuda": answer}
    return _library("libnvidia-ml.so.1", answer.get("nvml", {})), _library("libcuda.so.1", answer.get("libcuda", {}))


def _library(name: str, answer: Mapping[str, Any]) -> DriverLibrary:
    """Read one library's answer; impossible values are dropped and reported as problems."""
    problems: list[Problem] = []
    path = answer.get("path")
    error = answer.get("error")
    count = answer.get("count")
    if count is not None and not 0 <= count <= 256:
        problems.append(Problem(what=name, why=f"reports {count} GPUs, which is impossible"))
        count = None
    for index, status, words in answer.get("lost", []):
        problems.append(Problem(what=f"GPU {index}", why=f"does not answer {name}: {words or status}"))
    gpus = tuple(_gpu(name, index, row, problems) for index, row in enumerate(answer.get("gpus", [])))
    return DriverLibrary(
        name=name,
        path=str(path) if path else None,
        by_loader=not str(answer.get("place", "")).startswith("/"),
        absent=path is None and "tried" in answer and not any(_is_broken(place, message) for place, message in answer["tried"]),
        failure=_failure(answer),
        cuda=_cuda(name, answer.get("cuda"), problems),
        driver=_driver(name, answer.get("driver"), problems),
        error=(int(error[0]), str(error[1])) if error else None,
        count=count,
        gpus=gpus,
        instances=tuple(tuple(str(uuid) for uuid in row.get("mig", [])) for row in answer.get("gpus", [])),
        problems=tuple(problems),
    )


def _is_broken(place: str, message: str) -> bool:
    """True for a loader's error about an existing library: `libcuda.so.1: wrong ELF class`, or a missing dependency."""
    return not ("No such file" in message and place.rsplit("/", 1)[-1] in message.partition("No such file")[0])


def _failure(answer: Mapping[str, Any]) -> str:
    if answer.get("ended") == "time":
        return f"did not answer within {LIBRARY_SECONDS:g} s"
    if answer.get("ended", "exit") != "exit":
        return f"crashed ({answer['ended']})"
    if "failed" in answer:
        return f"could not be asked: {answer['failed']}"
    if answer.get("path") is None:
        broken = [message for place, message in answer.get("tried", []) if _is_broken(place, message)]
        return f"cannot be loaded: {broken[0]}" if broken else ""
    return ""


def _cuda(name: str, number: object, problems: list[Problem]) -> CudaVersion | None:
    if number is None or number == 0:
        return None
    version = CudaVersion.from_encoded(number) if isinstance(number, int) else None
    if version is None:
        problems.append(Problem(what=name, why=f"reports the impossible CUDA version {number!r}"))
    return version


def _driver(name: str, text: object, problems: list[Problem]) -> DriverVersion | None:
    if text is None:
        return None
    if isinstance(text, str) and re.fullmatch(_DRIVER, text):
        return DriverVersion(text)
    problems.append(Problem(what=name, why=f"reports the impossible driver version {text!r}"))
    return None


def _gpu(library: str, index: int, row: Mapping[str, Any], problems: list[Problem]) -> Gpu:
    """Read one GPU; an impossible value becomes None and a problem."""
    wrong: list[str] = []
    name = str(row["name"])[:100] if row.get("name") else None
    capability = row.get("capability")
    if capability is not None and not (1 <= capability[0] <= 29 and 0 <= capability[1] <= 9):
        wrong.append(f"compute capability {capability[0]}.{capability[1]}")
        capability = None
    memory = row.get("memory")
    if memory is not None and not 64 * _MIB <= memory <= _MIB * _MIB * 64:
        wrong.append(f"{memory} bytes of memory")
        memory = None
    uuid = row.get("uuid")
    if uuid is not None and not re.fullmatch(_UUID, uuid):
        wrong.append(f"the UUID {uuid!r}")
        uuid = None
    problems.extend(Problem(what=f"GPU {index}", why=f"{library} reports {value}, which is impossible") for value in wrong)
    return Gpu(
        name=name,
        compute_capability=str(Capability(*capability)) if capability else None,
        memory_mib=memory // _MIB if memory else None,
        uuid=uuid,
    )


# --- nvidia-smi ---

SMI_SECONDS = 15.0

SMI_PATHS = ("nvidia-smi", "/opt/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi")
"""Its locations: on PATH, in Colab, in WSL, in Kubernetes."""


class Smi(Struct, frozen=True, kw_only=True):
    """Output of nvidia-smi."""

    path: str | None
    """None = not installed."""
    banner: Banner
    gpus: tuple[Gpu, ...] | None = None
    """None = not reported."""
    driver: str | None = None
    failure: str = ""
    """Its own error message, if it failed."""


def ask_smi(host: Host) -> Smi:
    """Run nvidia-smi for its banner, and query it for the GPUs."""
    path = next((path for name in SMI_PATHS if (path := which(host, name))), None)
    if path is None:
        return Smi(path=None, banner=parse_banner(""))
    plain = host.run([path], timeout_seconds=SMI_SECONDS)
    if not plain.ok:
        return Smi(path=path, banner=parse_banner(plain.stdout), failure=_first_line(plain))
    rows = _query(host, path, QUERY_FIELDS) or _query(host, path, OLD_QUERY_FIELDS)
    gpus = None if rows is None else tuple(gpu for gpu, _ in rows)
    driver = next((driver for _, driver in rows or () if driver), None)
    return Smi(path=path, banner=parse_banner(plain.stdout), gpus=gpus, driver=driver)


def _query(host: Host, path: str, fields: tuple[str, ...]) -> tuple[tuple[Gpu, str | None], ...] | None:
    argv = [path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    result = host.run(argv, timeout_seconds=SMI_SECONDS)
    return parse_query(result.stdout, fields) if result.ok else None


def _first_line(result: CommandResult) -> str:
    """First line of its output: it prints errors to standard output."""
    if result.returncode is None:
        return result.why()
    lines = (result.stdout.strip() or result.stderr.strip()).splitlines()
    return lines[0][:200] if lines else result.why()


_OLDEST_BRANCH = 200
"""Desktop and data centre drivers have had three digits since 2010; a smaller number is a release of Jetson Linux."""


class DriverSources:
    """Answers of NVML and libcuda; the kernel's files and nvidia-smi are asked lazily, once each."""

    def __init__(self, host: Host, nvml: DriverLibrary, libcuda: DriverLibrary) -> None:
        self.host = host
        self.nvml = nvml
        self.libcuda = libcuda

    @cached_property
    def smi(self) -> Smi:
        """Answer of nvidia-smi; slow, so ask only if needed."""
        return ask_smi(self.host)

    @property
    def smi_was_asked(self) -> bool:
        """True once nvidia-smi has run."""
        return "smi" in self.__dict__

    @cached_property
    def proc_version(self) -> DriverVersion | None:
        """The kernel module's version in /proc; on a Jetson possibly the release of Jetson Linux."""
        return parse_driver_version(self.host.read_text("/proc/driver/nvidia/version") or "")

    @cached_property
    def sys_version(self) -> DriverVersion | None:
        """The kernel module's version in /sys."""
        return parse_module_version(self.host.read_text("/sys/module/nvidia/version") or "")

    @cached_property
    def kernel_module(self) -> DriverVersion | None:
        """Version of the loaded kernel module, if it is one of a driver release."""
        versions = (self.proc_version, self.sys_version)
        return next((version for version in versions if version is not None and version.major >= _OLDEST_BRANCH), None)

    @cached_property
    def jetson(self) -> str | None:
        """Release of Jetson Linux, `35.4.1`; None on any other machine."""
        return parse_tegra_release(self.host.read_text("/etc/nv_tegra_release") or "")

    @cached_property
    def board(self) -> str | None:
        """Name of the board in the device tree, `NVIDIA Jetson AGX Orin`; None without a device tree."""
        return (self.host.read_text("/proc/device-tree/model") or "").strip("\0\n ")[:100] or None

    @cached_property
    def in_wsl(self) -> bool:
        """True if the GPU is reached through the Windows host, which has the kernel module."""
        return self.host.stat("/dev/dxg") is not None

    @cached_property
    def kernel_signs(self) -> tuple[str, ...]:
        """Existing paths that prove the kernel side of a driver."""
        signs = ("/proc/driver/nvidia", "/sys/module/nvidia", "/sys/module/nvgpu", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu")
        return tuple(path for path in signs if self.host.stat(path) is not None)

    @cached_property
    def cards(self) -> tuple[str, ...]:
        """PCI addresses and device ids of NVIDIA's display and 3D controllers, `0000:00:04.0 (10de:1eb8)`."""
        found = []
        for address in self.host.list_dir("/sys/bus/pci/devices"):
            base = f"/sys/bus/pci/devices/{address}"
            vendor = self.host.read_text(f"{base}/vendor", 64) or ""
            if vendor.strip() and is_nvidia_display(vendor, self.host.read_text(f"{base}/class", 64) or ""):
                device = (self.host.read_text(f"{base}/device", 64) or "").strip().removeprefix("0x")
                found.append(f"{address} (10de:{device})")
        return tuple(found)

    @cached_property
    def has_no_card(self) -> bool:
        """True if the PCI bus is readable and has no NVIDIA GPU, and none can be elsewhere, as in WSL and on boards with a device tree."""
        is_readable = bool(self.host.list_dir("/sys/bus/pci/devices"))
        return is_readable and not self.cards and not self.in_wsl and self.board is None

    @cached_property
    def proc_gpus(self) -> tuple[dict[str, str], ...]:
        """The kernel module's description of each of its GPUs."""
        root = "/proc/driver/nvidia/gpus"
        texts = (self.host.read_text(f"{root}/{name}/information") for name in self.host.list_dir(root))
        return tuple(parse_gpu_information(text) for text in texts if text)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """Driver libraries that exist, working or not, without a toolkit's stub or compatibility library."""
        found = []
        for library in (self.nvml, self.libcuda):
            exists = library.path is not None or (library.failure and not library.failure.startswith("could not be asked"))
            if exists and not library.is_stub and not library.is_compat:
                found.append(library.path or library.name)
        return tuple(found)

    def library_file(self) -> str | None:
        """Find a driver library in the usual directories, when none could be asked."""
        directories = ("/usr/lib64", "/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")
        multiarch = tuple(f"/usr/lib/{name}" for name in self.host.list_dir("/usr/lib") if name.endswith("-linux-gnu"))
        for directory in directories + multiarch:
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                if is_dir(self.host, directory) and self.host.stat(f"{directory}/{name}") is not None:
                    return f"{directory}/{name}"
        return None
