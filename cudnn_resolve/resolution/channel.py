"""Channels of CUDA libraries: pip wheels, what is on the system, apt packages; and which of them serves an installed build now."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.facts.model import CudnnCopy
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import AptPattern, Build
    from cudnn_resolve.resolution.candidate import Channel
    from cudnn_resolve.resolution.context import Context


def channels(context: Context) -> tuple[Channel, ...]:
    """The channels that the request allows, in the order of the contract: pip where it serves, what is there, then apt."""
    wanted = context.request.channel
    if wanted == "pip":
        return ("pip",)
    if wanted == "apt":
        return ("system", "apt")
    return ("pip", "system", "apt")


def preferred(context: Context, build: Build | None = None) -> tuple[Channel, ...]:
    """The allowed channels for a build, best first on this machine.

    An installed build stays with the channel that serves it now; any other order is the contract's.
    """
    allowed = channels(context)
    if build is not None and build.delivery == "system" and context.fixes_by_extra(build.framework):
        return tuple(sorted(allowed, key=lambda one: one == "pip"))  # an extra such as cuda12-local means the machine's own libraries
    if build is None or "pip" not in allowed or "system" not in allowed or not is_installed(context, build):
        return allowed
    if lives_on_system(context, build):
        return ("system", *(one for one in allowed if one != "system"))
    return allowed


def of_build(context: Context, build: Build) -> tuple[Channel, ...]:
    """The same for a build, with the folder: first where it serves the build now, else last, where it could."""
    if is_installed(context, build) and folder_serves(context, build):
        return ("folder", *preferred(context, build))
    return (*preferred(context, build), *(("folder",) if can_stand_apart(context, build) else ()))


def can_stand_apart(context: Context, build: Build) -> bool:
    """True where the environment's cuDNN wheel is of another major than a build loads, so that one in a folder could stand beside it."""
    if build.cudnn is None or build.cuda is None or "pip" not in channels(context):
        return False
    if any(CudnnVersion(one).major != build.cudnn.major for one in in_folder(context)):
        return False  # an installed framework lives on that one
    here = parse_version(context.machine.pip.get(component_package(context.book, "cudnn", build.cuda.major) or "", ""))
    return here is not None and here.major != build.cudnn.major


def folder_serves(context: Context, build: Build) -> bool:
    """True where the folder holds a cuDNN that serves the build."""
    return build.cudnn is not None and any(_cudnn_version(one, build) for one in in_folder(context))


def in_folder(context: Context) -> tuple[str, ...]:
    """Versions of the whole copies of cuDNN in the folder."""
    copies = (one for one in context.machine.cudnn if one.path is not None and f"/{FOLDER}/" in one.path and one.complete is not False)
    return tuple(one.version for one in copies if one.version is not None and parse_version(one.version) is not None)


def is_installed(context: Context, build: Build) -> bool:
    """True where the environment holds a build of this version, as far as the version tells, and the user does not ask for the newest."""
    installed = context.machine.pip.get(build.package)
    if installed is None or context.request.prefer != "installed":
        return False
    if installed == build.wheel_version:
        return True
    version = parse_version(installed)
    if version is None or _public(installed) != build.version:
        return False
    if version.local is None:
        return build.index == "default"
    return build.index == "default" and version.local in (build.variant, build.wheel_version.partition("+")[2])


@lru_cache(4096)
def _public(version: str) -> str:
    """A version without its local part, as PEP 440 spells it."""
    return Version(version).public


def lives_on_system(context: Context, build: Build) -> bool:
    """True for an installed build whose library wheels are missing and which loads the system's libraries instead.

    The loader falls back to its cache where an RPATH leads nowhere; Colab's images of 2024 ran PyTorch so.
    """
    return is_installed(context, build) and not wheels_serve(context, build) and system_serves(context, build)


def wheels_serve(context: Context, build: Build) -> bool:
    """True where installed library wheels are all that the build needs; half a set is none."""
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
    return build.cudnn is None or _cudnn_version(installed, build)


def finds_wheel(context: Context, build: Build) -> bool:
    """True where an installed cuDNN wheel has the name that a build looks for beside itself: it is found before that of the system."""
    if build.cuda is None or build.cudnn is None or build.finds not in ("rpath", "runpath"):
        return False
    version = context.machine.pip.get(component_package(context.book, "cudnn", build.cuda.major) or "")
    return version is not None and version.partition(".")[0] == str(build.cudnn.major)


def wheels_found(context: Context, build: Build) -> CudaVersion | None:
    """The CUDA of the installed wheels where a build finds them before that of the system, and all that it loads but cuDNN is there."""
    if build.cuda is None or build.finds not in ("rpath", "runpath") or build.delivery == "bundled":
        return None
    names = [component_package(context.book, one, build.cuda.major) for one in build.loads if one != "cudnn"]
    runtime = component_package(context.book, "cudart", build.cuda.major)
    if runtime not in names or not all(name in context.machine.pip for name in names if name is not None):
        return None
    found = context.book.cuda_of(runtime or "", context.machine.pip[runtime or ""])
    return CudaVersion(found.line) if found is not None else None


def system_serves(context: Context, build: Build) -> bool:
    """True where a toolkit and a cuDNN of the system are all that the build needs."""
    if build.cuda is None:
        return False
    major = build.cuda.major
    toolkits = any(one.version and one.source != "pip" and int(one.version.partition(".")[0]) == major for one in context.machine.toolkits)
    if build.cudnn is None:
        return toolkits
    copies = (one for one in context.machine.cudnn if one.source != "pip" and one.complete is not False and _finds(context, build, one))
    return toolkits and any(_cudnn_version(one.version, build) for one in copies if one.version)


def told_copies(context: Context, build: Build) -> list[str]:
    """The copies of cuDNN on the system, in words, for a build that needs one."""
    copies = [one for one in context.machine.cudnn if build.cudnn and one.version and one.source != "pip"]
    inside = "{0.version} inside {0.owner}, where only {0.owner} finds it"
    return [(one.version or "") if _finds(context, build, one) else inside.format(one) for one in copies]


def _finds(context: Context, build: Build, copy: CudnnCopy) -> bool:
    """True for a copy that a build can find: one inside another framework's own package is found by that framework alone."""
    return framework_around(context, copy) in (None, build.framework)


def framework_around(context: Context, copy: CudnnCopy) -> str | None:
    """The framework in whose own package a copy lies; None for one that all find."""
    owner = "torch" if copy.owner == "pytorch" else copy.owner  # as conda calls it
    return context.book.framework_of(owner) if owner is not None else None


def _cudnn_version(text: str, build: Build) -> bool:
    try:
        return build.cudnn is None or CudnnVersion(text).serves(build.cudnn)
    except ValueError:
        return False


def channels_of_system(context: Context) -> tuple[Channel, ...]:
    """The channels that give the system's libraries."""
    allowed = channels(context)
    return ("system", "apt") if "apt" in allowed else ("system",)


BESIDE = ("nvtx", "nccl")
"""Libraries that frameworks load and that the apt package of all runtime libraries does not bring."""


def apt_beside(book: Book, library: str, cuda: CudaVersion) -> AptPattern | None:
    """The apt package of such a library for a CUDA line, in the version that is known; None where there is none."""
    return next((one for one in apt_patterns(book, cuda) if one.library == library and "*" not in one.version), None)


def apt_patterns(book: Book, cuda: CudaVersion) -> Iterator[AptPattern]:
    """The apt packages that there are for a CUDA line."""
    return (one for one in book.apt_patterns() if one.first <= cuda and (one.last is None or cuda <= one.last))


def main_wheel(book: Book, build: Build) -> str | None:
    """The wheel that tells whether those with a build's CUDA libraries are there: of cuDNN, or of the runtime where it loads none."""
    return component_package(book, "cudnn" if build.cudnn else "cudart", build.cuda.major) if build.cuda is not None else None


MAJORS = (13, 12, 11, 14, 15)
"""CUDA majors whose wheels are candidates, those with most builds first."""


def component_package(book: Book, library: str, major: int) -> str | None:
    """The pip package that carries a CUDA library of a major, None where there is none."""
    for component in book.components(major):
        if component.library == library:
            return component.package
    return None
