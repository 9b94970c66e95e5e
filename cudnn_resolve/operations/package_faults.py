"""Faults of a set of packages on a machine, and further findings of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.diagnosis.diagnose import diagnose_installed
from cudnn_resolve.diagnosis.model import SEVERITIES, Finding
from cudnn_resolve.facts.model import Facts, Packages, Platform, Python
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.package_set import LIVE, Subject
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.resolution.fault import UNNAMED, Fault, Judgement
from cudnn_resolve.resolution.judgement import judge

_CAUSES = {
    "wheel": "pip_wheel_unavailable_for_python",
    "missing": "cuda_runtime_missing",
    "majors": "cudnn_major_mismatch",
    "files": "framework_pkg_mismatch",
    "companion": "framework_pkg_mismatch",
    "declared": "framework_pkg_mismatch",
    "cpu": "cpu_only_build",
    "unknown": "harmless",
    "advisory": "other_bug",
}
"""Cause of a finding by the kind of a fault, unless the package is more specific."""


def judge_subject(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> tuple[Judgement, tuple[Finding, ...]]:
    """Judge the packages on a machine with their base applied; each problem is reported once, as a fault or as a finding."""
    judgement = judge(book, machine, subject.packages, subject.requires, live=subject.kind == LIVE, partial=subject.partial)
    own = (_softened(fault, subject) for fault in judgement.faults if not _is_expected(fault, subject))
    faults = (*_faults_of_list(subject, judgement, machine), *_without_wheel(subject, judgement, machine), *own)
    return _deduplicated(replace(judgement, faults=faults), tuple(_diagnosed(subject, book, machine, facts)))


def _diagnosed(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> Iterator[Finding]:
    """Findings of a diagnosis: about an environment, what it loads and its files; about a list, conflicting packages."""
    if facts is not None:
        yield from diagnose_installed(facts, book)
        return
    facts = Facts(
        platform=Platform(system="linux", arch=machine.arch),
        python=Python(version=machine.python_full),
        packages=Packages(pip=subject.packages, requires=subject.requires),
    )
    for finding in diagnose_installed(facts, book, pairs_only=True):
        line = next((subject.lines[name] for name in packages_in(finding) if name in subject.lines), None)
        if line is None:
            yield finding
            continue
        first, *rest = finding.evidence
        yield replace(finding, evidence=(replace(first, source=f"{subject.name}:{line}", line=line), *rest))


def packages_in(finding: Finding) -> tuple[str, ...]:
    """The packages that a finding is about: each piece of evidence names one in its source, or first in its text."""
    return tuple(
        evidence.source.removeprefix("packages.pip.") if evidence.source.startswith("packages.pip.") else evidence.text.partition(" ")[0]
        for evidence in finding.evidence
    )


def _deduplicated(judgement: Judgement, findings: tuple[Finding, ...]) -> tuple[Judgement, tuple[Finding, ...]]:
    """Drop the less severe of a fault and a finding about the same problem.

    A finding replaces the fault that a framework only lacks GPU support, and takes over its severity.
    """
    faults = list(judgement.faults)
    kept = []
    for finding in findings:
        names = set(packages_in(finding))
        cpu_only = [
            fault for fault in faults if fault.kind == "cpu" and finding.cause == "framework_pkg_mismatch" and names & set(fault.frameworks)
        ]
        same = [fault for fault in faults if fault.severity != "info" and fault.package in names and cause_of(fault) == finding.cause]
        if any(SEVERITIES.index(fault.severity) <= SEVERITIES.index(finding.severity) for fault in same):
            continue
        faults = [fault for fault in faults if fault not in same]
        severity = finding.severity
        if cpu_only and not any(fault.kind == "companion" and fault.package in names for fault in faults):
            faults = [fault for fault in faults if fault not in cpu_only]
            severity = min((severity, *(fault.severity for fault in cpu_only)), key=SEVERITIES.index)
        kept.append(replace(finding, severity=severity))
    return replace(judgement, faults=tuple(faults)), tuple(kept)


def _faults_of_list(subject: Subject, judgement: Judgement, machine: Machine) -> Iterator[Fault]:
    """Faults of a list as a whole: it is for other Pythons, or its requirements exclude each other."""
    frameworks = tuple(sorted({framework.package for framework in judgement.frameworks}))
    python = machine.python_full
    if subject.python is not None and python is not None:
        last = python if python.count(".") > 1 else f"{python}.99"  # `3.11` stands for any patch release
        if not any(SpecifierSet(subject.python).contains(version, prereleases=True) for version in (python, last)):
            text = f"it is for Python {subject.python}, and here is {python}"
            yield Fault(kind="wheel", severity="error", text=text, because="no installer accepts it there", frameworks=frameworks)
    if subject.clash is not None:
        text = "pip and uv refuse to install it: its requirements exclude each other"
        yield Fault(kind="declared", severity="error", text=text, because=subject.clash, frameworks=frameworks)


def _is_expected(fault: Fault, subject: Subject) -> bool:
    """True for a fault to ignore: libraries that conda builds bring, and unnamed packages of a list that cannot be installed anyway."""
    if fault.because == UNNAMED and subject.clash is not None:
        return True
    is_of_conda = bool(fault.frameworks) and subject.conda >= set(fault.frameworks)
    return is_of_conda and (fault.kind in ("missing", "library") or fault.because == UNNAMED)


def _softened(fault: Fault, subject: Subject) -> Fault:
    """Turn a fault in the GPU code of a build that is not in the tables into a warning."""
    if fault.kind == "machine" and fault.problem not in ("driver", "ptx") and subject.foreign & set(fault.frameworks):
        text = f"{fault.text}; this holds for the wheel, but this build may have more"
        return replace(fault, kind="unknown", severity="warning", text=text)
    return fault


def _without_wheel(subject: Subject, judgement: Judgement, machine: Machine) -> Iterator[Fault]:
    """Faults for packages of a lock without a file for the machine."""
    frameworks = {framework.package for framework in judgement.frameworks}
    where = f"Python {machine.python_full} on {machine.arch}" if machine.python_full else machine.arch
    for name in subject.unfit:
        yield Fault(
            kind="wheel",
            severity="error",
            text=f"{name} {subject.packages[name]} has no wheel for {where} in the lock",
            because="each of its files is for other machines",
            package=name,
            frameworks=(name,) if name in frameworks else tuple(sorted(frameworks)),
        )


def cause_of(fault: Fault) -> str:
    """Cause of the finding for a fault."""
    if fault.kind == "machine":
        return _MACHINE_CAUSES[fault.problem or "gpu-too-new"]
    is_cudnn = "cudnn" in fault.package
    if fault.kind == "files" and is_cudnn:
        return "cudnn_sublibrary_mix"
    if fault.kind == "library":
        if is_cudnn:
            return "cudnn_too_old_for_framework"
        return "nvjitlink_mix" if "nvjitlink" in fault.package else "cublas_mismatch"
    if fault.kind == "bound":
        return {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}.get(fault.package, "framework_pkg_mismatch")
    return "cudnn_missing" if fault.kind == "missing" and is_cudnn else _CAUSES[fault.kind]


_MACHINE_CAUSES = {
    "driver": "driver_too_old",
    "ptx": "ptx_too_new",
    "gpu-too-old": "gpu_arch_too_old_for_build",
    "gpu-too-new": "gpu_arch_too_new_for_build",
}
"""Cause of a finding, by what is wrong with the driver or the GPU."""
