"""Channels of CUDA libraries (pip wheels, the system, apt, a folder), and which of them an installed build uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from packaging.version import Version

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import CudnnCopy
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import AptPattern, Build
from cudnn_resolve.resolution.candidate import Channel
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion, parsed

CUDA_MAJORS = (13, 12, 11, 14, 15)
"""CUDA majors whose wheels are candidates, those with most builds first."""
EXTRA_LIBRARIES = ("nvtx", "nccl")
"""Libraries that frameworks load and that the apt metapackage of runtime libraries leaves out."""


def allowed_channels(context: Context) -> tuple[Channel, ...]:
    """Channels that the request allows, in the documented order: pip, the system, apt."""
    wanted = context.request.channel
    if wanted == "pip":
        return ("pip",)
    if wanted == "apt":
        return ("system", "apt")
    return ("pip", "system", "apt")


def system_channels(context: Context) -> tuple[Channel, ...]:
    """Allowed channels for libraries of the system."""
    return ("system", "apt") if "apt" in allowed_channels(context) else ("system",)


def channels_of_build(context: Context, build: Build) -> tuple[Channel, ...]:
    """Channels for a build, best first, including the folder: first if the build uses it now, last if it could.

    An installed build keeps the channel that it uses now; otherwise the documented order holds.
    """
    channels = allowed_channels(context)
    if build.delivery == "system" and context.selects_build_by_extra(build.framework):
        channels = tuple(sorted(channels, key=lambda channel: channel == "pip"))  # extras such as cuda12-local request the system's
    elif "pip" in channels and "system" in channels and uses_system(context, build):
        channels = ("system", *(channel for channel in channels if channel != "system"))
    if is_installed(context, build) and folder_serves(context, build):
        return ("folder", *channels)
    return (*channels, *(("folder",) if _can_use_folder(context, build) else ()))


def _can_use_folder(context: Context, build: Build) -> bool:
    """True if the installed cuDNN wheel has another major than a build loads, so that it needs a cuDNN in a folder."""
    if build.cudnn is None or build.cuda is None or "pip" not in allowed_channels(context):
        return False
    if any(CudnnVersion(version).major != build.cudnn.major for version in folder_versions(context)):
        return False  # in use by an installed framework
    wheel = parse_version(context.machine.pip.get(component_package(context.book, "cudnn", build.cuda.major) or "", ""))
    return wheel is not None and wheel.major != build.cudnn.major


def folder_serves(context: Context, build: Build) -> bool:
    """True if the folder holds a cuDNN that works for the build."""
    return build.cudnn is not None and any(serves_cudnn(version, build.cudnn) for version in folder_versions(context))


def folder_versions(context: Context) -> tuple[str, ...]:
    """Versions of the complete cuDNN copies in the folder."""
    copies = (copy for copy in context.machine.cudnn if copy.path is not None and f"/{FOLDER}/" in copy.path and copy.complete is not False)
    return tuple(copy.version for copy in copies if copy.version is not None)


def is_installed(context: Context, build: Build) -> bool:
    """True if the installed version can be this build, and installed versions are preferred."""
    installed = context.machine.pip.get(build.package)
    if installed is None or context.request.prefer != "installed":
        return False
    if installed == build.wheel_version:
        return True
    version = parse_version(installed)
    if version is None or build.index != "default" or _public(installed) != build.version:
        return False
    return version.local is None or version.local in (build.variant, build.wheel_version.partition("+")[2])


@lru_cache(4096)
def _public(version: str) -> str:
    """Normalized version without its local part."""
    return Version(version).public


def uses_system(context: Context, build: Build) -> bool:
    """True for an installed build that loads the system's libraries because its library wheels are missing.

    The loader falls back to its cache if an RPATH leads nowhere; Colab's images of 2024 ran PyTorch so.
    """
    return is_installed(context, build) and not wheels_serve(context, build) and system_serves(context, build)


def wheels_serve(context: Context, build: Build) -> bool:
    """True if the installed library wheels are complete for the build."""
    if build.cuda is None:
        return True
    if build.delivery == "system":
        wanted = (component_package(context.book, library, build.cuda.major) for library in build.loads)
        if not all(package in context.machine.pip for package in wanted if package is not None):
            return False
    installed = context.machine.pip.get(main_wheel(context.book, build) or "")
    if installed is None:
        return False
    if folder_serves(context, build):
        return True
    return build.cudnn is None or serves_cudnn(installed, build.cudnn)


def finds_wheel(context: Context, build: Build) -> bool:
    """True if a build finds the installed cuDNN wheel by its RPATH, before that of the system."""
    if build.cuda is None or build.cudnn is None or build.finds not in ("rpath", "runpath"):
        return False
    version = context.machine.pip.get(component_package(context.book, "cudnn", build.cuda.major) or "")
    return version is not None and version.partition(".")[0] == str(build.cudnn.major)


def cuda_of_found_wheels(context: Context, build: Build) -> CudaVersion | None:
    """CUDA of the installed wheels, if a build finds them before the system's and they are complete except for cuDNN."""
    if build.cuda is None or build.finds not in ("rpath", "runpath") or build.delivery == "bundled":
        return None
    names = [component_package(context.book, library, build.cuda.major) for library in build.loads if library != "cudnn"]
    runtime = component_package(context.book, "cudart", build.cuda.major)
    if runtime is None or runtime not in names or not all(name in context.machine.pip for name in names if name is not None):
        return None
    cuda = context.book.cuda_of(runtime, context.machine.pip[runtime])
    return CudaVersion(cuda.line) if cuda is not None else None


def system_serves(context: Context, build: Build) -> bool:
    """True if a toolkit and a cuDNN of the system are complete for the build."""
    if build.cuda is None:
        return False
    versions = (toolkit.version for toolkit in context.machine.toolkits if toolkit.source != "pip")
    if not any(version and int(version.partition(".")[0]) == build.cuda.major for version in versions):
        return False
    if build.cudnn is None:
        return True
    copies = (copy for copy in context.machine.cudnn if copy.source != "pip" and copy.complete is not False)
    return any(copy.version and serves_cudnn(copy.version, build.cudnn) for copy in copies if _can_find(context, build, copy))


def describe_copies(context: Context, build: Build) -> list[str]:
    """Descriptions of the system's cuDNN copies, for a build that needs one."""
    copies = [copy for copy in context.machine.cudnn if build.cudnn and copy.version and copy.source != "pip"]
    inside = "{0.version} inside {0.owner}, where only {0.owner} finds it"
    return [(copy.version or "") if _can_find(context, build, copy) else inside.format(copy) for copy in copies]


def _can_find(context: Context, build: Build, copy: CudnnCopy) -> bool:
    """False for a copy inside the package of another framework, which alone finds it."""
    return enclosing_framework(context, copy) in (None, build.framework)


def enclosing_framework(context: Context, copy: CudnnCopy) -> str | None:
    """The framework whose package contains a cuDNN copy; None for a copy outside of frameworks."""
    owner = "torch" if copy.owner == "pytorch" else copy.owner  # conda's name
    return context.book.framework_of(owner) if owner is not None else None


def serves_cudnn(version: str, built: CudnnVersion) -> bool:
    """True if a cuDNN of some version works for code that was built with another."""
    found = parsed(CudnnVersion, version)
    return found is not None and found.serves(built)


def extra_apt_package(book: Book, library: str, cuda: CudaVersion) -> AptPattern | None:
    """Apt package of one of `EXTRA_LIBRARIES` for a CUDA line, if its version is known."""
    return next((pattern for pattern in apt_patterns(book, cuda) if pattern.library == library and "*" not in pattern.version), None)


def apt_patterns(book: Book, cuda: CudaVersion) -> Iterator[AptPattern]:
    """Apt packages for a CUDA line."""
    return (pattern for pattern in book.rows(AptPattern) if pattern.first <= cuda and (pattern.last is None or cuda <= pattern.last))


def main_wheel(book: Book, build: Build) -> str | None:
    """The wheel whose presence shows that a build's CUDA libraries are installed: cuDNN, or the runtime if it uses no cuDNN."""
    return component_package(book, "cudnn" if build.cudnn else "cudart", build.cuda.major) if build.cuda is not None else None


def component_package(book: Book, library: str, major: int) -> str | None:
    """The pip package of a CUDA library for a CUDA major; None if there is none."""
    return next((component.package for component in book.components(major) if component.library == library), None)
