"""Needs of the libraries inside a wheel, on frameworks and CUDA, whatever its metadata declares.

An extension is loaded into the process of its framework and uses the CUDA libraries that the framework has loaded. If it was built for
another major, its import fails because these have other sonames. Source: `DT_NEEDED` of the wheels (matrices/evidence), and the checks in
torchvision and torchaudio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.evidence import cuda_majors, evidence_of, evidence_rows
from cudnn_resolve.matrix.library_name import library_of
from cudnn_resolve.matrix.wheel_content import WheelEvidence
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.resolution.candidate import Need, PipCandidate, WheelCandidate, shared_major
from cudnn_resolve.resolution.key import pip_key
from cudnn_resolve.resolution.release import Release
from cudnn_resolve.version import Capability, CudaVersion

_VARIANT = re.compile(r"\+cu(\d{2,3})$")


def evidence_needs(book: Book, arch: str, release: Release, who: str) -> Iterator[Need]:
    """Needs for the CUDA that the libraries of a wheel are linked to; none for a wheel without evidence."""
    if release.index != "default":
        yield from _variant_needs(book, release, who)
        return
    row = evidence_of(book, release.package, release.text, arch)
    if row is None:
        yield from _framework_cuda_needs(book, release, who)
        return
    majors = fitting_majors(book, row)
    if not majors:
        return
    needed = ", ".join(name for name in row.needs if cuda_majors(book, name) == majors) or ", ".join(row.needs)
    if not row.frameworks:
        if len(majors) == 1:
            (major,) = majors
            yield shared_major("CUDA", major, f"{who} needs {needed}")
        return
    line = row.cuda if row.same_line else None
    for framework in row.frameworks:
        yield _framework_need(framework, majors, line, f"{who} needs {needed}")


def _framework_cuda_needs(book: Book, release: Release, who: str) -> Iterator[Need]:
    """Need for the CUDA of an unrequested framework that another package requires (cuDF and CuPy) and that contains none."""
    of_release = [build for build in book.builds_of(release.package) if build.wheel_version == release.text]
    majors = {build.cuda.major for build in of_release if build.delivery == "system" and build.cuda is not None}
    if len(majors) == 1:
        (major,) = majors
        yield shared_major("CUDA", major, f"{who} is built with CUDA {major}")


def _variant_needs(book: Book, release: Release, who: str) -> Iterator[Need]:
    """Need of a companion from another index for its framework's build of the same variant."""
    framework = book.companion_of(release.package)
    rows = (row for row in book.extra_releases(release.package) if row.version == release.text and row.index == release.index)
    row = next(rows, None)
    if framework is None or row is None:
        return
    variant = _VARIANT.search(release.text)
    line = row.cuda or (CudaVersion(f"{variant[1][:-1]}.{variant[1][-1]}") if variant else None)
    if line is not None:
        yield _framework_need(framework, frozenset({line.major}), line, f"{who} is built with CUDA {line}")
    elif release.text.endswith("+cpu"):

        def is_for_cpu(other: PipCandidate) -> bool:
            return not isinstance(other, WheelCandidate) or other.build.cuda is None

        yield Need(pip_key(framework), is_for_cpu, f"a CPU build of {framework}", f"{who} is a CPU build")


def fitting_majors(book: Book, row: WheelEvidence) -> frozenset[int]:
    """CUDA majors that have every library a wheel needs; empty if it needs none or no major has all.

    A library needed under the sonames of several majors is an alternative, of which the wheel loads one.
    """
    by_library: dict[str, set[int]] = {}
    for name in row.needs:
        library = library_of(name)
        if library is not None and cuda_majors(book, name):
            by_library.setdefault(library.stem, set()).update(cuda_majors(book, name))
    return frozenset(set.intersection(*by_library.values())) if by_library else frozenset()


def is_idle(book: Book, machine: Machine, release: Release) -> bool:
    """True for a wheel without GPU code for one of the machine's GPUs, if another release is known to have code for all."""
    gpus = machine.capabilities
    row = evidence_of(book, release.package, release.text, machine.arch) if gpus else None
    if row is None or not row.code or _runs(row, gpus):
        return False
    return any(arch in ("", machine.arch) and _runs(other, gpus) for (_, arch), other in evidence_rows(book, release.package).items())


def _runs(row: WheelEvidence, gpus: Iterable[Capability]) -> bool:
    return bool(row.code) and all(any(target.runs_on(gpu) for target in row.code) for gpu in gpus)


def _framework_need(framework: str, majors: frozenset[int], line: CudaVersion | None, because: str) -> Need:
    """Need for a build of the framework with the CUDA that an extension was built for: exactly that line, or one of the majors."""

    def test(other: PipCandidate) -> bool:
        if not isinstance(other, WheelCandidate):
            return True
        cuda = other.build.cuda
        return cuda is not None and (cuda.major in majors if line is None else cuda.line == line.line)

    wanted = line.line if line is not None else " or ".join(map(str, sorted(majors)))
    if line is not None:
        because = f"{because}, and its import fails with a {framework} of another CUDA"
    return Need(pip_key(framework), test, f"{framework} built with CUDA {wanted}", because)
