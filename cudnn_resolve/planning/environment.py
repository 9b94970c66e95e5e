"""How the loader will find the CUDA libraries of each framework.

Never by setting LD_LIBRARY_PATH inside a running process: the loader reads it once, when the process starts (ld.so(8)).
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


def environment(resolution: Resolution, facts: Facts, book: Book) -> tuple[Environment, ...]:
    """One entry for each way that is needed; a single `none` where the libraries are found by themselves."""
    out: list[Environment] = []
    channels = resolution.channels
    preload = [build for build in resolution.builds if channels.get(build.framework) in ("pip", "folder") and build.finds == "none"]
    if preload:
        names = " ".join(build.framework for build in preload)
        why = "; ".join(f"{build.package} {build.version} does not look into the NVIDIA wheels of its environment" for build in preload)
        out.append(Environment(kind="preload", value=names, why=f"{why}: the libraries are loaded for it before it is imported"))
    out += _folder(resolution, book)
    out += _cache(resolution, facts)
    out += _compat(resolution, facts)
    if not out:
        why = "; ".join(dict.fromkeys(_found(build, resolution) for build in resolution.builds)) or "nothing to find"
        out.append(Environment(kind="none", value="", why=why))
    return tuple(out)


def _folder(resolution: Resolution, book: Book) -> Iterator[Environment]:
    """The second cuDNN, and the frameworks for which it is loaded before they are imported."""
    pin = resolution.in_folder
    builds = [build for build in resolution.builds if resolution.channels.get(build.framework) == "folder"]
    if pin is None or pin.version is None or not builds:
        return
    row = book.index(pin.index) if pin.index is not None else None
    file = pin.file
    if file is not None:
        file = File(filename=file.filename, url=file.url, hashes=file.hashes, size=file.size, origin=file.origin)
    wheel = FolderWheel(name=pin.name, version=pin.version, index=row.url if row is not None else None, file=file)
    who = " and ".join(f"{build.package} {build.version}" for build in builds)
    why = f"{pin.name} {pin.version} for {who} lies in {FOLDER} of the site-packages, and that of the others stays as it is"
    yield Environment(kind="folder", value=" ".join(build.framework for build in builds), why=why, wheel=wheel)


def _found(build: Build, resolution: Resolution) -> str:
    who = f"{build.package} {build.version}"
    channel = resolution.channels.get(build.framework)
    if channel is None:
        return f"{who} loads no CUDA library"
    if channel == "bundled":
        return f"{who} brings its libraries inside its own wheel"
    if loads_wheels(resolution, build.framework):
        return f"{who} finds CUDA in the NVIDIA wheels by its {build.finds.upper()}, and the system's cuDNN through the linker cache"
    if channel in ("apt", "system"):
        return f"{who} finds the system's libraries through the linker cache"
    ways = {
        "rpath": "finds the NVIDIA wheels by its RPATH",
        "runpath": "finds the NVIDIA wheels by its RUNPATH, unless LD_LIBRARY_PATH names another copy",
        "self": "loads the NVIDIA wheels by its own code",
    }
    return f"{who} {ways.get(build.finds, 'finds its libraries')}"


def _cache(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """A linker-cache file for installed copies that the loader does not search."""
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
        why = "these directories are not in the linker cache; a file in /etc/ld.so.conf.d and `ldconfig` put them there"
        yield Environment(kind="ldconfig", value=value, why=why)


def _compat(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """The directory of an installed forward-compatibility package, where the stack needs its driver and the loader does not look there."""
    machine, loader = resolution.machine, or_none(facts.loader) or Loader()
    compat, driver, needed = machine.compat, machine.driver, resolution.driver_min
    if compat is None or compat.package not in machine.apt or driver is None or needed is None or driver >= DriverVersion(needed):
        return
    place = f"/usr/local/cuda-{compat.cuda}/compat"
    if not _is_named(place, loader):
        why = f"the loader does not look where {compat.package} is, and takes driver {driver}: start programs with LD_LIBRARY_PATH={place}"
        yield Environment(kind="env", value=place, why=why)


def _is_named(path: str, loader: Loader) -> bool:
    """True for a directory on LD_LIBRARY_PATH or in the linker cache."""
    return path in loader.ld_library_path or any(entry.startswith(f"{path}/") for entry in loader.ldconfig)


def _is_searched(path: str, loader: Loader) -> bool:
    if _is_named(path, loader):
        return True
    return any(path == root or path.startswith((f"{root}/", f"{root}-")) for root in _SEARCHED)
