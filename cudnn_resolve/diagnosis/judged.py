"""Findings from the judgement of an environment: what its packages need of each other and of the machine, by the rules of plans."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.facts.model import UNKNOWN, Facts, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import has_tegra, machine_of
from cudnn_resolve.resolution.fault import Fault, Judgement
from cudnn_resolve.resolution.judgement import judge
from cudnn_resolve.version import CudaVersion

_CAUSES = {
    "wheel": "pip_wheel_unavailable_for_python",
    "missing": "cuda_runtime_missing",
    "majors": "cudnn_major_mismatch",
    "cpu": "cpu_only_build",
    "unknown": "harmless",
    "advisory": "other_bug",
}
"""Cause of a finding by the kind of a fault, unless the package is more specific."""
_MACHINE_CAUSES = {
    "driver": "driver_too_old",
    "ptx": "ptx_too_new",
    "gpu-too-old": "gpu_arch_too_old_for_build",
    "gpu-too-new": "gpu_arch_too_new_for_build",
}
"""Cause of a finding, by what is wrong with the driver or the GPU."""
_PAIR = "framework_pkg_mismatch"
_ABI = {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}
_CONFIDENCE = {"advisory": 0.6, "declared": 0.6, "files": 0.8}
_SURE = 0.9
_OUTSIDE = 0.8
"""Of a package outside the GPU stack, which is no reason for what fails in it."""
_REPORTED = frozenset({"bound", "companion", "advisory"})
"""Kinds of faults that a diagnosis always reports.

Of CUDA libraries it reports what the frameworks load and what lies where (`machine_cudnn`, `machine_wheel`); requirements that are only
declared are those of `pip check`.
"""


def cause_of(fault: Fault) -> str:
    """Cause of the finding for a fault."""
    if fault.kind == "machine":
        return _MACHINE_CAUSES[fault.problem or "gpu-too-new"]
    is_cudnn = "cudnn" in fault.package
    if is_cudnn and fault.kind in ("files", "library", "missing"):
        return {"files": "cudnn_sublibrary_mix", "library": "cudnn_too_old_for_framework", "missing": "cudnn_missing"}[fault.kind]
    if fault.kind == "library" and fault.package.startswith("nvidia-"):
        return "nvjitlink_mix" if "nvjitlink" in fault.package else "cublas_mismatch"
    if fault.kind in ("bound", "declared"):
        return _ABI.get(fault.package, _PAIR)
    return _CAUSES.get(fault.kind, _PAIR)


def finding_of(fault: Fault, packages: Mapping[str, str]) -> Finding:
    """The finding for a fault of some packages."""
    version = packages.get(fault.package)
    pin = f"{fault.package}=={version}" if version is not None else fault.package
    source = f"packages.pip.{fault.package}" if fault.package else "machine"
    return Finding(
        cause=cause_of(fault),
        severity=fault.severity,
        summary=fault.text,
        evidence=(Evidence(source=source, line=None, text=f"{pin}: {fault.because}" if pin else fault.because),),
        remedy=(Remedy(text=f"use {fault.package} {fault.remedy}" if fault.remedy[0].isdigit() else fault.remedy),) if fault.remedy else (),
        confidence=_OUTSIDE if fault.kind == "bound" and fault.package not in _ABI else _CONFIDENCE.get(fault.kind, _SURE),
    )


def judgement_of(facts: Facts, book: Book) -> Judgement:
    """Judgement of the environment of the facts, with frameworks that were seen but are not in its list of packages."""
    pip = or_none(facts.packages.pip) or {}
    listed = {book.framework_named(name) for name in pip}
    seen = {one.name: one.version for one in or_none(facts.frameworks) or () if book.framework_named(one.name) not in listed}
    return judge(book, machine_of(facts, book), {**seen, **pip}, facts.packages.requires, live=True)


def judged_findings(facts: Facts, book: Book) -> Iterator[Finding]:
    """What a diagnosis reports of the judgement, with the frameworks concerned as evidence."""
    judgement, pip = judgement_of(facts, book), or_none(facts.packages.pip) or {}
    names = {framework.package: framework.who for framework in judgement.frameworks}
    has_cuda = any(framework.build is not None for framework in judgement.frameworks)
    for fault in judgement.faults:
        if not _is_reported(fault, facts, book):
            continue
        finding = finding_of(fault, pip)
        who = {name: names.get(name) or f"{name} {pip[name]}" for name in fault.frameworks if name in names or name in pip}
        evidence = (Evidence(source="packages.pip", line=None, text=text) for text in who.values())
        finding = replace(finding, evidence=(*finding.evidence, *evidence))
        if fault.kind == "cpu" and has_cuda:
            finding = replace(finding, severity="info")
        elif fault.kind in ("cpu", "files") and fault.severity == "error":
            finding = replace(finding, severity="warning")  # not an error until something asks for a GPU, or the files are seen
        elif fault.kind == "library":
            finding = replace(finding, remedy=tuple(_newer_linker(fault, facts, book)))
        yield finding


def _is_reported(fault: Fault, facts: Facts, book: Book) -> bool:
    """False for what the checks of the machine see themselves, and for what no diagnosis is about."""
    if fault.kind == "machine":  # what no one has looked at may be NVIDIA's build for a Jetson
        return not (facts.frameworks is UNKNOWN and has_tegra(machine_of(facts, book).gpus, book))
    if fault.kind == "cpu":
        return facts.driver is not None and bool(or_none(facts.gpus))
    if fault.kind == "files":
        overwritten = {problem.what.removeprefix("packages.pip.") for problem in facts.problems if "overwritten" in problem.why}
        return not overwritten & {fault.package, *fault.frameworks}
    if fault.kind == "library":
        return "nvjitlink" in fault.package
    return fault.kind in _REPORTED or (fault.kind == "declared" and fault.package in _ABI)


def _newer_linker(fault: Fault, facts: Facts, book: Book) -> Iterator[Remedy]:
    """Install the newest nvJitLink of the CUDA of the libraries, which also works for older ones of its major."""
    pip = or_none(facts.packages.pip) or {}
    users = [cuda for name in fault.frameworks if name in pip and (cuda := book.cuda_of(name, pip[name])) is not None]
    releases = [release.version for release in book.releases(fault.package) if not release.yanked] if users else []
    same = [release for release in releases if (own := book.cuda_of(fault.package, release)) is not None and own.line == max(users).line]
    if same:
        command = f"{shlex.quote(facts.python.path or 'python')} -m pip install --no-deps {fault.package}=={max(same, key=CudaVersion)}"
        yield Remedy(text=f"install the {fault.package} of CUDA {max(users).line}; only that package changes", command=command)


def packages_in(finding: Finding) -> tuple[str, ...]:
    """The packages that a finding is about: each piece of evidence names one in its source, or first in its text."""
    return tuple(
        evidence.source.removeprefix("packages.pip.") if evidence.source.startswith("packages.pip.") else evidence.text.partition(" ")[0]
        for evidence in finding.evidence
    )
