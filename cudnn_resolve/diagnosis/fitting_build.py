"""Builds of a framework that fit the GPU, driver and Python of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.log_stack import cuda_of_driver, driver_of, python_line
from cudnn_resolve.diagnosis.pip_release import python_tags
from cudnn_resolve.version import Capability, CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Case
    from cudnn_resolve.diagnosis.pip_release import PythonLine
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, WheelRelease

OLDEST_PYTHON = (3, 6)
"""Oldest Python with wheels of NVIDIA's libraries, and with plans."""
_MINOR_COMPATIBLE = 11
"""First CUDA major with minor-version compatibility of drivers."""


class Served(Struct, frozen=True, kw_only=True):
    """Newest build of a framework for a known machine, and what is known of it."""

    build: Build | None
    title: str
    known: str

    @property
    def text(self) -> str:
        """Description of the build."""
        build = self.build
        return "" if build is None or build.cuda is None else f"{self.title} {build.version}, built with CUDA {build.cuda.line}"


def fitting(framework: str, case: Case, *, machine_code: bool = False, cudnn: int | None = None) -> list[Build]:
    """CUDA builds for the log's GPU, driver and Python: newest release first, then oldest CUDA first.

    `cudnn`: only builds with that cuDNN major.
    """
    from cudnn_resolve.resolution.release import parse_version

    book, row = case.book, case.book.framework(framework)
    line, gpus, driver, most = python_line(case), case.context.capabilities, driver_of(case), cuda_of_driver(case)
    releases = {name: {release.version: release for release in book.releases(name)} for name in row.packages}

    def takes(build: Build, cuda: CudaVersion) -> bool:
        if cudnn is not None and (build.cudnn is None or build.cudnn.major != cudnn):
            return False
        if build.yanked or (line is not None and not _serves_python(build, line, releases.get(build.package, {}))):
            return False
        least = book.floor(cuda.major) or book.toolkit_driver(cuda)
        if driver is not None and least is not None and driver < least:
            return False
        if most is not None and cuda.line != most.line and not (cuda < most or cuda.major == most.major >= _MINOR_COMPATIBLE):
            return False
        return all(_serves_gpu(build, gpu, book, machine_code=machine_code) for gpu in gpus)

    fit = (build for build in sorted(row.builds, key=lambda build: str(build.cuda)) if build.cuda and takes(build, build.cuda))
    found = [(version, build) for build in fit if (version := parse_version(build.version)) and not version.is_prerelease]
    return [build for _, build in sorted(found, key=lambda pair: pair[0], reverse=True)]


def served(framework: str, case: Case, *, machine_code: bool = False, version: str | None = None) -> Served | None:
    """Newest fitting build, or that of a release; None if the log shows nothing that limits it."""
    line, driver, most = python_line(case), driver_of(case), cuda_of_driver(case)
    words = [f"compute capability {capability}" for capability in dict.fromkeys(case.context.capabilities)]
    words += [f"driver {driver}"] if driver else [f"a driver for CUDA {most.line}"] if most else []
    words += [f"Python {line[0]}.{line[1]}"] if line else []
    if not words:
        return None
    builds = fitting(framework, case, machine_code=machine_code)
    build = next((build for build in builds if version in (None, build.version)), None)
    return Served(build=build, title=case.book.framework(framework).title.removesuffix(" GPU"), known=" and ".join(words))


def has_code(framework: str, gpu: Capability, book: Book) -> bool:
    """True if any build of a framework has machine code for a GPU."""
    return any(build.cuda and _serves_gpu(build, gpu, book, machine_code=True) for build in book.framework(framework).builds)


def _serves_gpu(build: Build, gpu: Capability, book: Book, *, machine_code: bool) -> bool:
    targets = [target for target in build.targets if target.kind == "cubin" or not machine_code]
    if build.targets:
        return any(target.runs_on(gpu) for target in targets)
    first, last = build.capability_first, build.capability_last
    family = book.architecture(Capability(gpu.major, 0))
    if machine_code and last is None and family is not None and build.cuda and build.cuda.parts[:2] < family.cuda_first.parts[:2]:
        return False  # its compiler did not know such GPUs
    return first is not None and gpu >= first and (last is None or gpu <= last)


def _serves_python(build: Build, line: PythonLine, releases: Mapping[str, WheelRelease]) -> bool:
    if line < OLDEST_PYTHON:
        return False
    if build.pythons:
        return any(tag in (f"cp{line[0]}{line[1]}", "py3") for tag in build.pythons)
    release = releases.get(build.wheel_version.partition("+")[0] or build.version)
    return release is None or any(found == line for found, _ in python_tags(release.tags, release.requires_python))


def pythons_of(build: Build, book: Book) -> list[PythonLine]:
    """Pythons of a build's wheels, oldest first; empty if unknown."""
    releases = {release.version: release for release in book.releases(build.package)}
    release = releases.get(build.wheel_version.partition("+")[0] or build.version)
    if not build.pythons and release is None:
        return []
    return [line for minor in range(6, 20) if _serves_python(build, line := (3, minor), releases)]
