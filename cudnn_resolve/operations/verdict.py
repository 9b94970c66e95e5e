"""Verdict on a set of packages: of a lock, a list or a requirements file, or installed on a machine."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec.structs import replace

from cudnn_resolve.diagnosis.judged import finding_of, packages_in
from cudnn_resolve.diagnosis.model import SEVERITIES, CheckedFramework, Finding, Verdict
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.listed_versions import on_base
from cudnn_resolve.operations.package_faults import judge_subject
from cudnn_resolve.operations.package_set import LIVE, Subject, subject_of_facts
from cudnn_resolve.operations.smallest_change import remedies
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.resolution.fault import Fault, JudgedFramework, Judgement
from cudnn_resolve.resolution.key import CUDA, CUDNN, Key
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.resolution.party_ranges import ranges_of_builds
from cudnn_resolve.resolution.unmet import unmet

_CHECKED = "driver, GPU code, CUDA and cuDNN libraries, NumPy and other bounds, companions, files shared by packages"


def verdict_on(
    subject: Subject, book: Book, machine: Machine, machine_label: str, facts: Facts | None = None, *, ranges: bool = False
) -> Verdict:
    """Verdict on the packages for a machine; `facts` are given if they describe the environment where the packages are installed.

    With `ranges`, include the versions that each framework allows.
    """
    original, machine = machine, on_base(machine, subject.base)
    if machine.python != original.python:
        machine_label = machine_label.replace(f"Python {original.python_full}", f"Python {machine.python_full} of the file")
    judgement, seen = judge_subject(subject, book, machine, facts)
    findings = (*(_finding(fault, subject) for fault in judgement.faults), *seen)
    unknown = (*_unknown(machine, judgement), *subject.gaps)
    status = _status(judgement.faults, known=not unknown and bool(judgement.frameworks))
    is_live = subject.kind == LIVE
    return Verdict(
        what=subject.name if is_live or subject.kind in subject.name.split("/") else f"{subject.name} ({subject.kind})",
        machine=machine_label,
        status="breaks" if any(finding.severity == "error" for finding in seen) else status,
        frameworks=tuple(_checked(framework, judgement, seen, known=not unknown) for framework in judgement.frameworks),
        findings=tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
        remedy=tuple(remedies(subject, book, machine, judgement, seen)),
        judged=(f"{len(subject.packages)} packages: {_CHECKED}",),
        not_judged=(*unknown, *subject.notes, "what is in the files (`validate` on a GPU proves it)"),
        complaints=tuple(_complaints(subject, machine, judgement)) if is_live else (),
        ranges=_ranges(subject, book, machine, judgement.frameworks) if ranges else (),
    )


def ranges_of_facts(facts: Facts, book: Book) -> tuple[Range, ...]:
    """Versions of driver, CUDA and cuDNN that the frameworks of an environment allow, with the installed ones."""
    subject, machine = subject_of_facts(facts, None), machine_of(facts, book)
    judgement, _ = judge_subject(subject, book, machine, facts)
    return _ranges(subject, book, machine, judgement.frameworks)


_CUDNN_WHEEL, _CUDA_WHEEL = re.compile(r"nvidia-cudnn-cu\d+"), re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


def _ranges(subject: Subject, book: Book, machine: Machine, frameworks: Iterable[JudgedFramework]) -> tuple[Range, ...]:
    chosen: dict[Key, str] = {}
    for name, version in subject.packages.items():
        if _CUDNN_WHEEL.fullmatch(name):
            chosen[CUDNN] = version
        elif _CUDA_WHEEL.fullmatch(name):
            chosen[CUDA] = ".".join(version.split(".")[:2])
    builds = (framework.build for framework in frameworks if framework.build is not None)
    return ranges_of_builds(book, machine, builds, chosen)


def _complaints(subject: Subject, machine: Machine, judgement: Judgement) -> Iterator[str]:
    """Unmet requirements of installed packages that no fault covers."""
    covered = {(name, fault.package) for fault in judgement.faults for name in fault.frameworks}
    for requirement in unmet(subject.requires, subject.packages, machine):
        if (requirement.by, requirement.name) not in covered:
            installed = f"{requirement.name} {requirement.found} is installed" if requirement.found is not None else "it is not installed"
            yield f"{requirement.text}; {installed}"


def _unknown(machine: Machine, judgement: Judgement) -> Iterator[str]:
    """Unknown facts of the machine or the packages that the verdict depends on."""
    if not judgement.frameworks:
        yield "no framework of the tables is among the packages"
    if machine.driver_absent:
        yield "a driver: this machine has none (--driver states one)"
    elif machine.driver is None:
        needed = f", and {judgement.driver} or newer is needed" if judgement.driver else ""
        yield f"whether the driver is new enough: its version is unknown{needed} (--driver)"
    if not machine.gpus:
        yield "GPU code: no GPU is known (--gpu)"
    for gpu in machine.gpus:
        if gpu.capability is None:
            yield f"GPU code for {gpu.label}: its compute capability is unknown (--gpu)"
    if machine.python is None:
        yield "the Python: its version is unknown, and markers are evaluated for 3.11 (--python-version)"


def _status(faults: Iterable[Fault], *, known: bool) -> Literal["runs", "breaks", "unknown"]:
    faults = tuple(faults)
    if any(fault.severity == "error" for fault in faults):
        return "breaks"
    is_open = any(fault.kind in ("unknown", "missing", "cpu") and fault.severity != "info" for fault in faults)
    return "runs" if known and not is_open else "unknown"


def _checked(framework: JudgedFramework, judgement: Judgement, seen: Iterable[Finding], *, known: bool) -> CheckedFramework:
    """Verdict on one framework; an error in libraries that belong to no framework affects each framework that loads them."""
    names = {other.package for other in judgement.frameworks}
    loads_libraries = framework.build is not None and framework.build.delivery != "bundled"
    affected = [set(fault.frameworks) for fault in judgement.faults if fault.severity == "error" and fault.kind in ("library", "files")]
    affected += [set(packages_in(finding)) for finding in seen if finding.severity == "error"]
    is_broken = any(framework.package in packages if packages & names else loads_libraries for packages in affected)
    own_faults = (fault for fault in judgement.faults if framework.package in fault.frameworks)
    status = "breaks" if is_broken else _status(own_faults, known=known)
    return CheckedFramework(name=framework.package, version=framework.version, status=status)


def _finding(fault: Fault, subject: Subject) -> Finding:
    """The finding for a fault, with the line of a file that pins the package."""
    finding = finding_of(fault, subject.packages)
    package = next((name for name in (fault.package, *fault.frameworks) if name in subject.lines), "")
    line = subject.lines.get(package)
    if line is not None:
        source = f"{subject.files.get(package, subject.name)}:{line}"
    elif fault.package or fault.kind == "machine":
        return finding
    else:
        source = subject.name
    return replace(finding, evidence=tuple(replace(evidence, source=source, line=line) for evidence in finding.evidence))


def machine_name(facts: Facts, path: str | None) -> str:
    """Short description of a machine: the file with its facts, its GPUs, driver and Python."""
    gpus = dict.fromkeys(gpu.name or f"sm_{(gpu.compute_capability or '?').replace('.', '')}" for gpu in or_none(facts.gpus) or ())
    driver = or_none(facts.driver)
    parts = [
        ", ".join(gpus),
        f"driver {driver.version}" if driver and driver.version else "",
        f"Python {facts.python.version}" if facts.python.version else "",
    ]
    summary = ", ".join(part for part in parts if part)
    return f"{os.path.basename(path)}: {summary}" if path and path != "-" and summary else path or summary or "an unknown machine"
