"""Warnings about CUDA libraries that packages of one environment would share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudnn_resolve.matrix.evidence import evidence_rows
from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.assemble import loaded_cudnn, versions_after
from cudnn_resolve.resolution.evidence import fitting_majors
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.resolution.model import Resolution


def library_warnings(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Warn of CUDA and cuDNN libraries whose majors differ, and of options that have no effect on them."""
    yield from _cuda_majors(resolution)
    yield from _cudnn_majors(resolution, book)
    yield from _other_major(resolution, book)
    yield from _other_cuda(resolution, book)
    yield from _optional_cudnn(resolution)
    yield from _bundled(resolution)


def _cuda_majors(resolution: Resolution) -> Iterator[Warning]:
    """Requested and standing frameworks that use different CUDA majors."""
    standing = [one.build for one in resolution.unrequested if one.build is not None and one.libraries != "none"]
    builds = [build for build in (*resolution.builds, *standing) if build.cuda is not None]
    requested = {build.cuda.major for build in resolution.builds if build.cuda is not None}
    if requested and len(requested | {build.cuda.major for build in builds if build.cuda is not None}) > 1:
        each = ", ".join(f"{build.package} {build.wheel_version} on CUDA {build.cuda}" for build in builds)
        yield Warning(
            code="cuda-majors",
            message=f"two CUDA majors in one environment: {each}; import these frameworks in separate processes: libcurand.so.10 and, for "
            "CUDA 11 and 12, libcusolver.so.11 have the same name in both, and whichever loads first serves all",
        )


def _cudnn_majors(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Requested and standing frameworks that load different cuDNN majors."""
    loaded = {f"{build.package} loads": text for build in resolution.builds if (text := loaded_cudnn(resolution, build)) is not None}
    if not loaded:
        return
    after = versions_after(book, resolution)
    standing = ((one.package, one.build) for one in resolution.unrequested if one.works and one.broken_by(after) is None)
    wanted = {f"{name} wants": str(build.cudnn) for name, build in standing if build is not None and build.cudnn is not None}
    if len({text.partition(".")[0] for text in (*loaded.values(), *wanted.values())}) > 1:
        each = ", ".join(f"{framework} cuDNN {text}" for framework, text in (loaded | wanted).items())
        yield Warning(
            code="cudnn-majors",
            message=f"these frameworks need different cuDNN majors: {each}; they can live side by side because their file names differ",
        )


def _other_major(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """CUDA libraries of another major in the place of those that a package of the stack is built for."""
    if resolution.cuda is None:
        return
    own = {component.slot: component.package for component in book.components(CudaVersion(resolution.cuda).major)}
    for pin in resolution.pip:
        component = book.component(pin.name)
        twin = own.get(component.slot) if component is not None else None
        if component is None or twin is None or twin == pin.name:
            continue
        user = _requirer(twin, resolution, book)
        if user is not None:
            yield Warning(
                code="other-major",
                message=f"{pin.name} {pin.version} replaces {twin}, which {user} is built for: {user} then finds a CUDA "
                f"{component.cuda_major} library next to CUDA {resolution.cuda}, which NVIDIA does not guarantee to work",
            )


def _requirer(name: str, resolution: Resolution, book: Book) -> str | None:
    """First package of the resolution that requires this one."""
    requirement = re.compile(rf"{re.escape(name)}(?![\w-])")
    for pin in resolution.pip:
        for lines in book.requires(pin.name, pin.version or "").values():
            if any(requirement.match(line) for line in lines):
                return pin.name
    return None


def _other_cuda(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Unpinned packages whose inspected wheels all need another CUDA."""
    if resolution.cuda is None:
        return
    major = CudaVersion(resolution.cuda).major
    for pin in resolution.pip:
        rows = evidence_rows(book, pin.name).values() if pin.version is None else ()
        majors = [fitting_majors(book, row) or frozenset({row.cuda.major} if row.cuda is not None else ()) for row in rows]
        links_cuda = any(fitting_majors(book, row) for row in rows)  # a wheel built with an older CUDA that links none of it still runs
        if majors and all(majors) and all(major not in fitting and (links_cuda or min(fitting) > major) for fitting in majors):
            wanted = " or ".join(map(str, sorted(frozenset.union(*majors))))
            yield Warning(
                code="other-cuda",
                message=f"the installer chooses the version of {pin.name}, but all of its inspected wheels are built for CUDA {wanted} "
                f"and do not work with CUDA {resolution.cuda}",
            )


def _optional_cudnn(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks that do without cuDNN because the stack has another major."""
    if resolution.cudnn is None:
        return
    planned = CudnnVersion(resolution.cudnn).major
    present = {planned, *(copy.soname for copy in resolution.machine.cudnn if copy.source != "pip")}
    for build in resolution.builds:
        if build.cudnn_optional is not None and build.cudnn_optional not in present:
            yield Warning(
                code="cudnn-optional",
                message=f"{build.package} {build.wheel_version} can use cuDNN {build.cudnn_optional}, but the stack has cuDNN {planned}: "
                "it runs without cuDNN and has no convolutions",
            )


def _bundled(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks that bundle their CUDA libraries although the user chose apt for these."""
    if resolution.request.channel != "apt":
        return
    for build in resolution.builds:
        if resolution.channels.get(build.framework) == "bundled":
            yield Warning(
                code="channel-bundled",
                message=f"{build.package} {build.wheel_version} bundles its CUDA libraries in its wheel: --channel apt has no effect on it",
            )
