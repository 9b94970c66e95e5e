"""What the libraries inside a wheel need of the frameworks and of the CUDA beside it, whatever its metadata declares.

An extension is loaded into the process of its framework and finds the CUDA libraries that the framework has loaded. Where it was built for
another major they are not there under the name that it asks for, and the import fails. Source: `DT_NEEDED` of the wheels
(matrices/evidence), and the checks that torchvision and torchaudio make of themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.matrix.evidence import cuda_majors, evidence_of, evidence_rows
from cudnn_resolve.matrix.library import library_of
from cudnn_resolve.resolution.candidate import Need, PipCandidate, WheelCandidate, shared_major
from cudnn_resolve.resolution.key import pip_key
from cudnn_resolve.version import Capability, CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.wheel_content import WheelEvidence
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.release import Release

_VARIANT = re.compile(r"\+cu(\d{2,3})$")


def evidence_needs(book: Book, arch: str, release: Release, who: str) -> Iterator[Need]:
    """The CUDA that the libraries of a wheel are linked to; nothing for a wheel that nobody has read."""
    if release.build is not None:
        return
    if release.index != "default":
        yield from _of_index(book, release, who)
        return
    row = evidence_of(book, release.package, release.text, arch)
    if row is None:
        yield from _of_framework(book, release, who)
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


def _of_framework(book: Book, release: Release, who: str) -> Iterator[Need]:
    """The CUDA of a framework that nobody asked for and another package requires (cuDF a CuPy), where it brings none itself."""
    framework = book.framework_of(release.package)
    builds = book.framework(framework).builds if framework is not None else ()
    same = [one for one in builds if (one.package, one.wheel_version) == (release.package, release.text) and one.delivery == "system"]
    outside = {one.cuda.major for one in same if one.cuda is not None}
    if len(outside) == 1:
        (major,) = outside
        yield shared_major("CUDA", major, f"{who} is built with CUDA {major}")


def _of_index(book: Book, release: Release, who: str) -> Iterator[Need]:
    """The need of a companion from another index for its framework's build of the same variant."""
    framework = book.companion_of(release.package)
    row = next((one for one in book.extra_releases(release.package) if one.version == release.text and one.index == release.index), None)
    if framework is None or row is None:
        return
    found = _VARIANT.search(release.text)
    line = row.cuda or (CudaVersion(f"{found[1][:-1]}.{found[1][-1]}") if found else None)
    if line is not None:
        yield _framework_need(framework, frozenset({line.major}), line, f"{who} is built with CUDA {line}")
    elif release.text.endswith("+cpu"):
        yield Need(pip_key(framework), _without_gpu, f"{framework} without GPU code", f"{who} is built without GPU code")


def _without_gpu(other: PipCandidate) -> bool:
    return not isinstance(other, WheelCandidate) or other.build.cuda is None


def fitting_majors(book: Book, row: WheelEvidence) -> frozenset[int]:
    """The CUDA majors with which every library that a wheel needs is there; empty where none is needed or none fits.

    Libraries that a wheel needs under names of several majors are alternatives, of which it loads one.
    """
    by_library: dict[str, set[int]] = {}
    for name in row.needs:
        library = library_of(name)
        if library is not None and cuda_majors(book, name):
            by_library.setdefault(library.stem, set()).update(cuda_majors(book, name))
    return frozenset(set.intersection(*by_library.values())) if by_library else frozenset()


def is_idle(book: Book, machine: Machine, release: Release) -> bool:
    """True for a wheel without GPU code for one of the machine's GPUs, where that of another release is known to have some for all."""
    gpus = [gpu.capability for gpu in machine.gpus if gpu.capability is not None]
    row = evidence_of(book, release.package, release.text, machine.arch) if gpus else None
    if row is None or not row.code or _runs(row, gpus):
        return False
    return any(arch in ("", machine.arch) and _runs(one, gpus) for (_, arch), one in evidence_rows(book, release.package).items())


def _runs(row: WheelEvidence, gpus: Iterable[Capability]) -> bool:
    return bool(row.code) and all(any(target.runs_on(gpu) for target in row.code) for gpu in gpus)


def _framework_need(framework: str, majors: frozenset[int], line: CudaVersion | None, because: str) -> Need:
    """The need for a build of the framework with the CUDA that an extension was built for: that very line, or one of the majors."""

    def test(other: PipCandidate) -> bool:
        if not isinstance(other, WheelCandidate):
            return True
        cuda = other.build.cuda
        return cuda is not None and (cuda.major in majors if line is None else cuda.line == line.line)

    wanted = line.line if line is not None else " or ".join(map(str, sorted(majors)))
    why = because if line is None else f"{because}, and refuses a {framework} of another CUDA on import"
    return Need(pip_key(framework), test, f"{framework} built with CUDA {wanted}", why)
