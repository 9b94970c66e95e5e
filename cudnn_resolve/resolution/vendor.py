"""Frameworks built by an image's maker: `2.6.0a0+ecf3bae40a.nv25.01` counts as the version that it is made from, and is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.requirement.derive import VENDOR
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine

_OF_AN_INDEX = re.compile(r"(cu|cuda|cpu|rocm|xpu)\d*(\..*)?", re.ASCII)
"""Local parts of builds that come from an index."""


def vendor_build(book: Book, machine: Machine, package: str) -> Build | None:
    """The installed build of a framework where it is an image's own; None where it comes from an index, or its release is not known.

    It lives on the CUDA and cuDNN of the image. What GPUs it has code for is the image's affair.
    """
    text = machine.pip.get(package)
    version = parse_version(text) if text is not None else None
    framework = book.framework_of(package)
    if text is None or version is None or version.local is None or framework is None or _OF_AN_INDEX.fullmatch(version.local):
        return None
    builds = [one for one in book.framework(framework).builds if one.package == package and one.cuda is not None]
    if any(version.local in (one.variant, one.wheel_version.partition("+")[2]) for one in builds):
        return None
    base = Version(version.base_version)
    like = [one for one in builds if (known := parse_version(one.version)) is not None and Version(known.base_version) == base]
    if not like:
        return None
    cuda = _toolkit(machine)
    model = next((one for one in like if cuda is not None and one.cuda is not None and one.cuda.major == cuda.major), like[0])
    cudnn = _system_cudnn(machine) if model.cudnn is not None else None
    system = cuda is not None and (cudnn is not None or model.cudnn is None)
    return replace(
        model,
        variant=VENDOR,
        version=str(base),
        wheel_version=text,
        index="default",
        pythons=(),
        arch=(),
        glibc=None,
        yanked=False,
        cuda=cuda if system else model.cuda,
        cudnn=cudnn if system else model.cudnn,
        delivery="system" if system else "bundled",
        loads=(),
        sonames=(),
        targets=(),
        targets_aarch64=(),
        capability_first=None,
        extra=None,
        requires=machine.requires.get(package, ()),
        requires_like=None,
        driver=None,
    )


def _toolkit(machine: Machine) -> CudaVersion | None:
    """The newest CUDA of the system."""
    found = [CudaVersion(one.version) for one in machine.toolkits if one.version and one.source != "pip" and parse_version(one.version)]
    return max(found, default=None)


def _system_cudnn(machine: Machine) -> CudnnVersion | None:
    """The newest whole cuDNN of the system."""
    copies = [one for one in machine.cudnn if one.version and one.source != "pip" and one.complete is not False]
    return max((CudnnVersion(one.version) for one in copies if one.version and parse_version(one.version)), default=None)
