"""What a copy of cuDNN needs in turn, and would not get."""

from __future__ import annotations

from collections.abc import Mapping

from cudnn_resolve.facts.cudnn_files import companions_of, parse_name
from cudnn_resolve.facts.loader_rules import Loaded, Missing, Process
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.environment import TargetEnvironment
from cudnn_resolve.probe.loader import DRIVER_LIBRARIES, Loading
from cudnn_resolve.version import CudnnVersion

_DRIVER_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version", "/sys/module/nvidia/version")


def find_lacks(
    host: Host, environment: TargetEnvironment, loading: Loading, files: Mapping[str, str], release: tuple[CudnnVersion, int | None]
) -> tuple[str, ...]:
    """Libraries that the parts in `files` need, or open when they are used, and that nothing leads to, in words.

    `release` is the version and the CUDA major. The driver's libraries are missed only where there is a driver; a library that lies
    in another wheel of NVIDIA's is not missed where it is only opened: frameworks load those first.
    """
    process = loading.process(driver=not any(host.stat(path) for path in _DRIVER_SIGNS))
    lacks: dict[str, list[str]] = {}
    objects: dict[str, Loaded] = {}
    for part, path in sorted(files.items()):  # libcudnn itself is ""
        found = process.open(path, objects.get(""))
        if isinstance(found, Loaded):
            objects[part] = found
        elif parse_name(found.name) is None:
            lacks.setdefault(found.name, []).append(found.by.rpartition("/")[2])
    told = []
    for name, by in lacks.items():
        where = "which comes with the driver and is not found" if name in DRIVER_LIBRARIES else "which is not found"
        verb = "needs" if len(set(by)) == 1 else "need"
        told.append(f"{', '.join(dict.fromkeys(by))} {verb} {name}, {where}")
    opened = [name for name in _opened(process, objects, release) if name not in lacks and not _in_wheels(environment, loading, name)]
    if opened:
        told.append(f"opens {' and '.join(opened)} when it is used, not found from here unless the program has loaded it before")
    return tuple(told)


def _opened(process: Process, objects: Mapping[str, Loaded], release: tuple[CudnnVersion, int | None]) -> list[str]:
    """CUDA libraries that the parts open by name and would not find."""
    missed = []
    for opening in companions_of(*release):
        asker = objects.get(opening.by)
        if asker is not None and isinstance(process.find(opening.names[0], asker), Missing):
            missed.append(opening.names[0])
    return missed


def _in_wheels(environment: TargetEnvironment, loading: Loading, name: str) -> bool:
    """True where a wheel of NVIDIA's in the environment has the library."""
    folders = (f"{site}/nvidia/{folder}/lib" for site in environment.site_packages for folder in loading.names(f"{site}/nvidia"))
    return any(name in loading.names(folder) for folder in folders)
