"""Faults of a set of packages on a machine, and further findings of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.diagnosis.diagnose import diagnose_installed
from cudnn_resolve.diagnosis.judged import cause_of, packages_in
from cudnn_resolve.diagnosis.model import SEVERITIES, Finding
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.package_set import LIVE, Subject
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.resolution.fault import UNNAMED, Fault, Judgement
from cudnn_resolve.resolution.judgement import judge


def judge_subject(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> tuple[Judgement, tuple[Finding, ...]]:
    """Judge the packages on a machine with their base applied, and diagnose what the facts of their environment show of its files.

    Each problem is reported once, as a fault or as a finding.
    """
    judgement = judge(book, machine, subject.packages, subject.requires, live=subject.kind == LIVE, partial=subject.partial)
    own = (_softened(fault, subject) for fault in judgement.faults if not _is_expected(fault, subject))
    faults = (*_faults_of_list(subject, judgement, machine), *_without_wheel(subject, judgement, machine), *own)
    judgement = replace(judgement, faults=faults)
    return _deduplicated(judgement, tuple(diagnose_installed(facts, book))) if facts is not None else (judgement, ())


def _deduplicated(judgement: Judgement, findings: tuple[Finding, ...]) -> tuple[Judgement, tuple[Finding, ...]]:
    """Drop the less severe of a fault and a finding about the same files: those of two packages, or a wheel and what is loaded of it."""
    faults = list(judgement.faults)
    kept = []
    for finding in findings:
        names = packages_in(finding)
        same = [fault for fault in faults if fault.severity != "info" and fault.package in names and cause_of(fault) == finding.cause]
        if not any(SEVERITIES.index(fault.severity) <= SEVERITIES.index(finding.severity) for fault in same):
            faults = [fault for fault in faults if fault not in same]
            kept.append(finding)
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
