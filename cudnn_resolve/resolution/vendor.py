"""Frameworks built by an image's maker: `2.6.0a0+ecf3bae40a.nv25.01` counts as the version that it is made from, and is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine

_OF_AN_INDEX = re.compile(r"(cu|cuda|cpu|rocm|xpu)\d*(\..*)?", re.ASCII)
"""Local parts of builds that come from an index."""


def vendor_build(book: Book, machine: Machine, package: str) -> Build | None:
    """The installed build of a framework where it is an image's own; None where it comes from an index, or its release is not known.

    It lives on the CUDA and cuDNN of the image. What GPUs it has code for is the image's affair. A patch release that the tables do not
    know counts as built like the others of its minor.
    """
    text = machine.pip.get(package)
    version = parse_version(text) if text is not None else None
    framework = book.framework_of(package)
    if text is None or version is None or framework is None:
        return None
    rows = [one for one in book.framework(framework).builds if one.package == package]
    if not _is_own(version, rows, is_tegra=package in machine.of_jetpack):
        return None
    base = Version(version.base_version)
    like = _alike([one for one in rows if one.cuda is not None], base)
    if not like:
        return None
    cuda = _toolkit(machine)
    local = version.local or ""
    named = next((one for one in like if one.variant and f"{local}.".startswith(f"{one.variant}.")), None)
    model = named or next((one for one in like if cuda is not None and one.cuda is not None and one.cuda.major == cuda.major), like[0])
    own = replace(model, variant=VENDOR, version=str(base), wheel_version=text, index="default", pythons=(), arch=(), glibc=None)
    if named is not None or (not local and _has_wheels(book, machine, model)):
        return own  # built like one of an index, on the libraries that this has
    cudnn = _system_cudnn(machine) if model.cudnn is not None else None
    system = cuda is not None and (cudnn is not None or model.cudnn is None)
    return replace(
        own,
        yanked=False,
        cuda=cuda if system else model.cuda,
        cudnn=cudnn if system else model.cudnn,
        delivery="system" if system else "bundled",
        loads=(),
        sonames=(),
        targets=(),
        targets_aarch64=(),
        capability_first=None,
        capability_last=None,
        extra=None,
        requires=machine.requires.get(package, ()),
        requires_like=None,
        driver=None,
    )


def _is_own(version: Version, rows: Sequence[Build], *, is_tegra: bool) -> bool:
    """True for a version that no index has: with a local part of its maker's, or of a state between two releases."""
    local, between = version.local, version.is_devrelease or version.is_postrelease or (version.pre is not None and version.pre[0] == "a")
    if any(one.wheel_version == str(version) for one in rows):
        return is_tegra and local is None
    if local is None or version.is_devrelease:
        return is_tegra or between
    if any(local in (one.variant, one.wheel_version.partition("+")[2]) for one in rows):
        return False
    of_index = _OF_AN_INDEX.fullmatch(local)
    return of_index is None or (of_index[1] in ("cu", "cuda") and of_index[2] is not None)


def _alike(builds: Sequence[Build], base: Version) -> list[Build]:
    """The builds of a release, else those of the nearest release of its minor."""
    known = [(found, one) for one in builds if (found := parse_version(one.version)) is not None]
    minor = [(found, one) for found, one in known if found.release[:2] == base.release[:2]]
    same = [one for found, one in minor if Version(found.base_version) == base]
    nearest = max((found for found, _ in minor), default=None)
    return same or [one for found, one in minor if found == nearest]


def _has_wheels(book: Book, machine: Machine, build: Build) -> bool:
    """True where NVIDIA's wheels of the CUDA that a build is made with are installed."""
    return build.cuda is not None and any(
        book.component(name) is not None and name.endswith(f"-cu{build.cuda.major}") for name in machine.pip
    )


def _toolkit(machine: Machine) -> CudaVersion | None:
    """The newest CUDA of the system."""
    found = [CudaVersion(one.version) for one in machine.toolkits if one.version and one.source != "pip" and parse_version(one.version)]
    return max(found, default=None)


def _system_cudnn(machine: Machine) -> CudnnVersion | None:
    """The newest whole cuDNN of the system."""
    copies = [one for one in machine.cudnn if one.version and one.source != "pip" and one.complete is not False]
    return max((CudnnVersion(one.version) for one in copies if one.version and parse_version(one.version)), default=None)
