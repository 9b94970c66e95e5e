"""How the dynamic loader will find the CUDA libraries of each framework.

Setting LD_LIBRARY_PATH in a running process is never an option: the loader reads it once, at process start (ld.so(8)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Loader, or_none
from cudnn_resolve.locking.model import Environment, FolderWheel
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.assemble import loads_wheels
from cudnn_resolve.resolution.key import CUDNN, CUDNN_OF_SYSTEM
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.model import Resolution

_SEARCHED = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/cuda", "/usr/local/lib")


def loader_environment(resolution: Resolution, facts: Facts, book: Book) -> tuple[Environment, ...]:
    """Return one entry per loader setting that the stack needs; a single `none` if it needs no setting."""
    entries: list[Environment] = []
    channels = resolution.channels
    preload = [build for build in resolution.builds if channels.get(build.framework) in ("pip", "folder") and build.finds == "none"]
    if preload:
        names = " ".join(build.framework for build in preload)
        why = "; ".join(f"{build.package} {build.version} does not search the NVIDIA wheels of its environment" for build in preload)
        entries.append(Environment(kind="preload", value=names, why=f"{why}: a preload opens the libraries before it is imported"))
    entries += _second_cudnn(resolution, book)
    entries += _linker_cache(resolution, facts)
    entries += _forward_compatibility(resolution, facts)
    if not entries:
        why = "; ".join(dict.fromkeys(_found_unaided(build, resolution) for build in resolution.builds)) or "no libraries to find"
        entries.append(Environment(kind="none", value="", why=why))
    return tuple(entries)


def _second_cudnn(resolution: Resolution, book: Book) -> Iterator[Environment]:
    """Second cuDNN in a folder of site-packages, and the frameworks that a preload loads it for."""
    pin = resolution.in_folder
    builds = [build for build in resolution.builds if resolution.channels.get(build.framework) == "folder"]
    if pin is None or pin.version is None or not builds:
        return
    row = book.index(pin.index) if pin.index is not None else None
    file = pin.file
    if file is not None:
        file = File(filename=file.filename, url=file.url, hashes=file.hashes, size=file.size, origin=file.origin)
    wheel = FolderWheel(name=pin.name, version=pin.version, index=row.url if row is not None else None, file=file)
    names = " and ".join(f"{build.package} {build.version}" for build in builds)
    why = f"{pin.name} {pin.version} for {names} is installed into {FOLDER} in site-packages; the other frameworks keep their cuDNN"
    yield Environment(kind="folder", value=" ".join(build.framework for build in builds), why=why, wheel=wheel)


def _found_unaided(build: Build, resolution: Resolution) -> str:
    """How a framework finds its libraries without any setting."""
    framework = f"{build.package} {build.version}"
    channel = resolution.channels.get(build.framework)
    if channel is None:
        return f"{framework} loads no CUDA library"
    if channel == "bundled":
        return f"{framework} bundles its libraries in its wheel"
    if loads_wheels(resolution, build.framework):
        return f"{framework} finds CUDA in the NVIDIA wheels by its {build.finds.upper()}, and the system's cuDNN through the linker cache"
    if channel in ("apt", "system"):
        return f"{framework} finds the system's libraries through the linker cache"
    ways = {
        "rpath": "finds the NVIDIA wheels by its RPATH",
        "runpath": "finds the NVIDIA wheels by its RUNPATH, unless LD_LIBRARY_PATH names another copy",
        "self": "loads the NVIDIA wheels by its own code",
    }
    return f"{framework} {ways.get(build.finds, 'finds its libraries')}"


def _linker_cache(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """Linker-cache configuration for installed copies that the loader does not search."""
    if "system" not in resolution.channels.values():
        return
    loader = or_none(facts.loader) or Loader()
    directories = []
    cudnn = resolution.pins.get(CUDNN_OF_SYSTEM) or resolution.pins.get(CUDNN)
    version = cudnn.candidate.version if cudnn is not None else None
    for copy in resolution.machine.cudnn:
        same = version is not None and copy.version is not None and version.startswith(copy.version)
        if copy.source != "pip" and copy.path and same and not _is_searched(copy.path, loader):
            directories.append(copy.path)
    if directories:
        value = ":".join(dict.fromkeys(directories))
        why = "these directories are not in the linker cache; a file in /etc/ld.so.conf.d and `ldconfig` add them"
        yield Environment(kind="ldconfig", value=value, why=why)


def _forward_compatibility(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """Directory of an installed forward-compatibility package, if the stack needs its driver and the loader does not search it."""
    machine, loader = resolution.machine, or_none(facts.loader) or Loader()
    compat, driver, needed = machine.compat, machine.driver, resolution.driver_min
    if compat is None or compat.package not in machine.apt or driver is None or needed is None or driver >= DriverVersion(needed):
        return
    folder = f"/usr/local/cuda-{compat.cuda}/compat"
    if not _is_configured(folder, loader):
        why = (
            f"the loader does not search the folder of {compat.package} and would load driver {driver}: "
            f"start programs with LD_LIBRARY_PATH={folder}"
        )
        yield Environment(kind="env", value=folder, why=why)


def _is_configured(folder: str, loader: Loader) -> bool:
    """True for a folder on LD_LIBRARY_PATH or in the linker cache."""
    return folder in loader.ld_library_path or any(entry.startswith(f"{folder}/") for entry in loader.ldconfig)


def _is_searched(folder: str, loader: Loader) -> bool:
    if _is_configured(folder, loader):
        return True
    return any(folder == root or folder.startswith((f"{root}/", f"{root}-")) for root in _SEARCHED)
