"""Vendor builds: frameworks that an image's maker built.

`2.6.0a0+ecf3bae40a.nv25.01` counts as the release that it is based on, and is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.release import parse_version, row_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

_INDEX_LOCAL = re.compile(r"(cu|cuda|cpu|rocm|xpu)\d*(\..*)?", re.ASCII)
"""Local versions of builds from an index."""


def vendor_build(book: Book, machine: Machine, package: str) -> Build | None:
    """The installed build of a framework if it is a vendor build; None if it comes from an index or its release is unknown.

    It uses the CUDA and cuDNN of the image, and its GPU code is unknown. A patch release that the tables lack counts as built like the
    others of its minor.
    """
    text = machine.pip.get(package)
    version = parse_version(text) if text is not None else None
    if text is None or version is None or book.framework_of(package) is None:
        return None
    builds = book.builds_of(package)
    if not _is_vendor_version(version, builds, is_tegra=package in machine.of_jetpack):
        return None
    base = Version(version.base_version)
    similar = _similar_builds([build for build in builds if build.cuda is not None], base)
    if not similar:
        return None
    cuda = _system_cuda(machine)
    local = version.local or ""
    named = next((build for build in similar if build.variant and f"{local}.".startswith(f"{build.variant}.")), None)
    of_major = (build for build in similar if cuda is not None and build.cuda is not None and build.cuda.major == cuda.major)
    model = named or next(of_major, similar[0])
    build = replace(model, variant=VENDOR, version=str(base), wheel_version=text, index="default", pythons=(), arch=(), glibc=None)
    if named is not None or (not local and _has_cuda_wheels(book, machine, model)):
        return build  # built like a wheel of an index, with the same libraries
    cudnn = _system_cudnn(machine) if model.cudnn is not None else None
    uses_system = cuda is not None and (cudnn is not None or model.cudnn is None)
    return replace(
        build,
        yanked=False,
        cuda=cuda if uses_system else model.cuda,
        cudnn=cudnn if uses_system else model.cudnn,
        delivery="system" if uses_system else "bundled",
        loads=(),
        targets=(),
        targets_aarch64=(),
        capability_first=None,
        capability_last=None,
        extra=None,
        requires=machine.requires.get(package, ()),
        requires_like=None,
        driver=None,
    )


def _is_vendor_version(version: Version, builds: Sequence[Build], *, is_tegra: bool) -> bool:
    """True for a version that no index has: with a vendor's local version, or between two releases."""
    local = version.local
    is_between_releases = version.is_devrelease or version.is_postrelease or (version.pre is not None and version.pre[0] == "a")
    if any(build.wheel_version == str(version) for build in builds):
        return is_tegra and local is None
    if local is None or version.is_devrelease:
        return is_tegra or is_between_releases
    if any(local in (build.variant, build.wheel_version.partition("+")[2]) for build in builds):
        return False
    of_index = _INDEX_LOCAL.fullmatch(local)
    return of_index is None or (of_index[1] in ("cu", "cuda") and of_index[2] is not None)


def _similar_builds(builds: Sequence[Build], base: Version) -> list[Build]:
    """Builds of a release, otherwise those of the newest release of its minor."""
    parsed = ((row_version(build.version), build) for build in builds)
    of_minor = [(version, build) for version, build in parsed if version.release[:2] == base.release[:2]]
    same = [build for version, build in of_minor if Version(version.base_version) == base]
    newest = max((version for version, _ in of_minor), default=None)
    return same or [build for version, build in of_minor if version == newest]


def _has_cuda_wheels(book: Book, machine: Machine, build: Build) -> bool:
    """True if NVIDIA's wheels for the CUDA of a build are installed."""
    return build.cuda is not None and any(
        book.component(name) is not None and name.endswith(f"-cu{build.cuda.major}") for name in machine.pip
    )


def _system_cuda(machine: Machine) -> CudaVersion | None:
    """Newest CUDA toolkit of the system."""
    toolkits = (toolkit for toolkit in machine.toolkits if toolkit.source != "pip")
    versions = [CudaVersion(toolkit.version) for toolkit in toolkits if toolkit.version and parse_version(toolkit.version)]
    return max(versions, default=None)


def _system_cudnn(machine: Machine) -> CudnnVersion | None:
    """Newest complete cuDNN of the system."""
    copies = (copy for copy in machine.cudnn if copy.source != "pip" and copy.complete is not False)
    return max((CudnnVersion(copy.version) for copy in copies if copy.version and parse_version(copy.version)), default=None)
