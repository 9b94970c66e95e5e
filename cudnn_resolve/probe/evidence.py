"""Everything that was asked about the driver, each question at most once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from cudnn_resolve.facts.procfs import (
    is_nvidia_display,
    parse_driver_version,
    parse_gpu_information,
    parse_module_version,
    parse_tegra_release,
)
from cudnn_resolve.host.port import Host, is_dir
from cudnn_resolve.probe.native import Native
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.probe.smi import Smi

_OLDEST_BRANCH = 200
"""Desktop and data centre drivers have had three digits since 2010; a smaller number is a release of Jetson Linux."""


class Evidence:
    """What NVML and libcuda said (`native`), and lazily what the kernel's files and nvidia-smi say."""

    def __init__(self, host: Host, native: Native) -> None:
        self.host = host
        self.native = native

    @cached_property
    def smi(self) -> Smi:
        """The answer of nvidia-smi; slow, so not to be asked without need."""
        from cudnn_resolve.probe.smi import ask_smi

        return ask_smi(self.host)

    @property
    def smi_was_asked(self) -> bool:
        """True where somebody needed nvidia-smi's answer already."""
        return "smi" in self.__dict__

    @cached_property
    def proc_version(self) -> DriverVersion | None:
        """The kernel module's version in /proc; on a Jetson the release of Jetson Linux may stand there."""
        return parse_driver_version(self.host.read_text("/proc/driver/nvidia/version") or "")

    @cached_property
    def sys_version(self) -> DriverVersion | None:
        """The kernel module's version in /sys."""
        return parse_module_version(self.host.read_text("/sys/module/nvidia/version") or "")

    @cached_property
    def kernel_module(self) -> DriverVersion | None:
        """The version of the loaded kernel module, where it is one of a driver release."""
        return next((one for one in (self.proc_version, self.sys_version) if one is not None and one.major >= _OLDEST_BRANCH), None)

    @cached_property
    def jetson(self) -> str | None:
        """Release of Jetson Linux, `35.4.1`; None on any other machine."""
        return parse_tegra_release(self.host.read_text("/etc/nv_tegra_release") or "")

    @cached_property
    def board(self) -> str | None:
        """What the device tree calls the board, `NVIDIA Jetson AGX Orin`; None where there is no device tree."""
        return (self.host.read_text("/proc/device-tree/model") or "").strip("\0\n ")[:100] or None

    @cached_property
    def in_wsl(self) -> bool:
        """True where the GPU is reached through the Windows host, which has the kernel module."""
        return self.host.stat("/dev/dxg") is not None

    @cached_property
    def kernel_signs(self) -> tuple[str, ...]:
        """Paths that exist only where the kernel side of a driver is there."""
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
    def proc_gpus(self) -> tuple[dict[str, str], ...]:
        """What the kernel module says of each of its GPUs."""
        root = "/proc/driver/nvidia/gpus"
        texts = (self.host.read_text(f"{root}/{name}/information") for name in self.host.list_dir(root))
        return tuple(parse_gpu_information(text) for text in texts if text)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """The driver libraries that are there, working or not; a toolkit's stub or compatibility library is none."""
        found = []
        for library in (self.native.nvml, self.native.libcuda):
            there = library.path is not None or (library.failure and not library.failure.startswith("could not be asked"))
            if there and not library.is_stub and not library.is_compat:
                found.append(library.path or library.name)
        return tuple(found)

    def library_file(self) -> str | None:
        """A driver library lying in one of its usual places, for when nobody could ask one."""
        places = ("/usr/lib64", "/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")
        multiarch = tuple(f"/usr/lib/{name}" for name in self.host.list_dir("/usr/lib") if name.endswith("-linux-gnu"))
        for place in places + multiarch:
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                if is_dir(self.host, place) and self.host.stat(f"{place}/{name}") is not None:
                    return f"{place}/{name}"
        return None
