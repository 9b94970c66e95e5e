"""The verdict on a set of packages: a lock, a list or a requirements file that somebody has, or what is installed on a machine."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from cudnn_resolve.diagnosis.model import SEVERITIES, CheckedFramework, Evidence, Finding, Verdict
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.faults import cause_of, found_in, names_of
from cudnn_resolve.operations.listed_versions import placed
from cudnn_resolve.operations.mend import mends
from cudnn_resolve.operations.package_set import LIVE, Subject, subject_of_facts
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.resolution.fault import Fault, JudgedFramework, Judgement
from cudnn_resolve.resolution.key import CUDA, CUDNN, Key
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.resolution.party_ranges import ranges_of_builds
from cudnn_resolve.resolution.unmet import unmet

_JUDGED = "driver, GPU code, CUDA and cuDNN libraries, NumPy and other bounds, companions, files that packages share"


def verdict_on(subject: Subject, book: Book, machine: Machine, where: str, facts: Facts | None = None, *, ranges: bool = False) -> Verdict:
    """The verdict on the packages, for the machine that `where` names; `facts` are of the environment where they are installed.

    With `ranges` it has what each framework allows, for a picture.
    """
    here, machine = machine, placed(subject.base, machine)
    if machine.python != here.python:
        where = where.replace(f"Python {here.python_full}", f"Python {machine.python_full} of the file")
    found, seen = found_in(subject, book, machine, facts)
    findings = sorted((*(_finding(one, subject) for one in found.faults), *seen), key=lambda one: SEVERITIES.index(one.severity))
    unknown = (*_unknown(machine, found), *subject.gaps)
    return Verdict(
        what=subject.name if subject.kind in (*subject.name.split("/"), LIVE) else f"{subject.name} ({subject.kind})",
        machine=where,
        status="breaks"
        if any(one.severity == "error" for one in seen)
        else _status(found.faults, known=not unknown and bool(found.frameworks)),
        frameworks=tuple(_checked(one, found, seen, known=not unknown) for one in found.frameworks),
        findings=tuple(findings),
        remedy=tuple(mends(subject, book, machine, found, seen)),
        judged=(f"{len(subject.packages)} packages: {_JUDGED}",),
        not_judged=(*unknown, *subject.notes, "what is in the files (`validate` on a GPU proves it)"),
        complaints=tuple(_complaints(subject, machine, found)) if subject.kind == LIVE else (),
        ranges=_ranges(subject, book, machine, found.frameworks) if ranges else (),
    )


def ranges_of_facts(facts: Facts, book: Book) -> tuple[Range, ...]:
    """What the frameworks of an environment allow of driver, CUDA and cuDNN, with what is there."""
    subject, machine = subject_of_facts(facts, None), machine_of(facts, book)
    return _ranges(subject, book, machine, found_in(subject, book, machine, facts)[0].frameworks)


_CUDNN_WHEEL, _CUDA_WHEEL = re.compile(r"nvidia-cudnn-cu\d+"), re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


def _ranges(subject: Subject, book: Book, machine: Machine, frameworks: Iterable[JudgedFramework]) -> tuple[Range, ...]:
    chosen: dict[Key, str] = {}
    for name, version in subject.packages.items():
        if _CUDNN_WHEEL.fullmatch(name):
            chosen[CUDNN] = version
        elif _CUDA_WHEEL.fullmatch(name):
            chosen[CUDA] = ".".join(version.split(".")[:2])
    return ranges_of_builds(book, machine, (one.build for one in frameworks if one.build is not None), chosen)


def _complaints(subject: Subject, machine: Machine, found: Judgement) -> Iterator[str]:
    """What installed packages declare of one another and do not find, where no fault tells it."""
    told = {(name, fault.package) for fault in found.faults for name in fault.frameworks}
    for one in unmet(subject.requires, subject.packages, machine):
        if (one.by, one.name) not in told:
            yield f"{one.text}; there is {f'{one.name} {one.found}' if one.found is not None else 'none'}"


def _unknown(machine: Machine, found: Judgement) -> Iterator[str]:
    """What nobody knows of the machine or the packages, and that the verdict would hang on."""
    if not found.frameworks:
        yield "no framework of the tables is among the packages"
    if machine.driver_absent:
        yield "a driver: this machine has none (--driver states one)"
    elif machine.driver is None:
        yield f"whether the driver serves: none is known{f', and {found.driver} or newer is needed' if found.driver else ''} (--driver)"
    if not machine.gpus:
        yield "code for the GPU: none is known (--gpu)"
    for gpu in machine.gpus:
        if gpu.capability is None:
            yield f"code for {gpu.label}: its compute capability is not known (--gpu)"
    if machine.python is None:
        yield "the Python: none is known, and markers are read for 3.11 (--python-version)"


def _status(faults: Iterable[Fault], *, known: bool) -> Literal["runs", "breaks", "unknown"]:
    faults = tuple(faults)
    if any(one.severity == "error" for one in faults):
        return "breaks"
    open_ones = any(one.kind in ("unknown", "missing", "cpu") and one.severity != "info" for one in faults)
    return "runs" if known and not open_ones else "unknown"


def _checked(one: JudgedFramework, found: Judgement, seen: Iterable[Finding], *, known: bool) -> CheckedFramework:
    """The verdict on one framework; what is wrong with libraries of no framework's own is wrong for each that loads them."""
    names = {each.package for each in found.frameworks}
    loads = one.build is not None and one.build.delivery != "bundled"
    errors = [set(fault.frameworks) for fault in found.faults if fault.severity == "error" and fault.kind in ("library", "files")]
    errors += [set(names_of(finding)) for finding in seen if finding.severity == "error"]
    is_hit = any(one.package in about if about & names else loads for about in errors)
    status = _status((fault for fault in found.faults if one.package in fault.frameworks), known=known)
    status = "breaks" if is_hit else status
    return CheckedFramework(name=one.package, version=one.version, status=status)


def _finding(fault: Fault, subject: Subject) -> Finding:
    about = next((name for name in (fault.package, *fault.frameworks) if name in subject.lines), "")
    line = subject.lines.get(about)
    source = (
        f"{subject.files.get(about, subject.name)}:{line}"
        if line is not None
        else f"packages.pip.{fault.package}"
        if fault.package
        else "machine"
        if fault.kind == "machine"
        else subject.name
    )
    version = subject.packages.get(fault.package)
    shown = f"{fault.package}=={version}" if version is not None else fault.package
    return Finding(
        cause=cause_of(fault),
        severity=fault.severity,
        summary=fault.text,
        evidence=(Evidence(source=source, line=line, text=f"{shown}: {fault.because}" if shown else fault.because),),
        confidence=0.9,
    )


def machine_name(facts: Facts, path: str | None) -> str:
    """The machine in few words: the file that describes it, else its GPU and driver."""
    gpus = ", ".join(
        dict.fromkeys(gpu.name or f"sm_{(gpu.compute_capability or '?').replace('.', '')}" for gpu in or_none(facts.gpus) or ())
    )
    driver = or_none(facts.driver)
    parts = [
        gpus,
        f"driver {driver.version}" if driver and driver.version else "",
        f"Python {facts.python.version}" if facts.python.version else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f"{os.path.basename(path)}: {said}" if path and path != "-" and said else path or said or "a machine of which nothing is known"
