"""The verdict on a set of packages: a lock, a list or a requirements file that somebody has, or what is installed on a machine."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import SEVERITIES, CheckedFramework, Evidence, Finding, Verdict
from cudnn_resolve.operations.subject import LIVE, Subject, placed
from cudnn_resolve.resolution.fault import UNNAMED

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.fault import Fault, Judged, Judgement

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
"""The label of a finding by the kind of a fault, where its package does not tell more."""
_JUDGED = "driver, GPU code, CUDA and cuDNN libraries, NumPy and other bounds, companions, files that packages share"


def verdict_on(subject: Subject, book: Book, machine: Machine, where: str, facts: Facts | None = None) -> Verdict:
    """The verdict on the packages, for the machine that `where` names; `facts` are of the environment where they are installed."""
    from cudnn_resolve.operations.mend import mends

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
    )


def found_in(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> tuple[Judgement, tuple[Finding, ...]]:
    """The faults of the packages on a machine that is `placed`, and what is seen besides; each is told once."""
    from cudnn_resolve.resolution.verdict import judge

    found = judge(book, machine, subject.packages, subject.requires, live=subject.kind == LIVE, partial=subject.partial)
    faults = (_likely(one, subject) for one in found.faults if not _is_brought(one, subject))
    found = replace(found, faults=(*_of_list(subject, found, machine), *_without_file(subject, found, machine), *faults))
    return _with_seen(found, tuple(_seen(subject, book, machine, facts)))


def _seen(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> Iterator[Finding]:
    """What is wrong with an environment besides what its packages need: what it loads, its files; and packages beside one another."""
    from cudnn_resolve.diagnosis.diagnose import diagnose_installed
    from cudnn_resolve.facts.model import Facts, Packages, Platform, Python

    if facts is None:
        facts = Facts(
            platform=Platform(system="linux", arch=machine.arch),
            python=Python(version=machine.python_full),
            packages=Packages(pip=subject.packages, requires=subject.requires),
        )
        for one in diagnose_installed(facts, book, pairs_only=True):
            names = names_of(one)
            line = next((subject.lines[name] for name in names if name in subject.lines), None)
            first, *rest = one.evidence
            yield one if line is None else replace(one, evidence=(replace(first, source=f"{subject.name}:{line}", line=line), *rest))
    else:
        yield from diagnose_installed(facts, book)


def names_of(one: Finding) -> tuple[str, ...]:
    """The packages that a finding of a diagnosis speaks of: each piece of its evidence begins with one, or is of one."""
    return tuple(
        evidence.source.removeprefix("packages.pip.") if evidence.source.startswith("packages.pip.") else evidence.text.partition(" ")[0]
        for evidence in one.evidence
    )


def _with_seen(found: Judgement, seen: tuple[Finding, ...]) -> tuple[Judgement, tuple[Finding, ...]]:
    """The faults and what was seen besides, each told once: as a fault, but for one that only says that a framework is without its GPU."""
    faults = list(found.faults)
    kept = []
    for one in seen:
        names = set(names_of(one))
        hollow = [
            fault for fault in faults if fault.kind == "cpu" and one.cause == "framework_pkg_mismatch" and names & set(fault.frameworks)
        ]
        same = [fault for fault in faults if fault.severity != "info" and fault.package in names and _cause(fault) == one.cause]
        if any(SEVERITIES.index(fault.severity) <= SEVERITIES.index(one.severity) for fault in same):
            continue
        faults = [fault for fault in faults if fault not in same]
        if hollow and not any(fault.kind == "companion" and fault.package in names for fault in faults):
            faults = [fault for fault in faults if fault not in hollow]
            one = replace(one, severity=min((one.severity, *(fault.severity for fault in hollow)), key=SEVERITIES.index))  # noqa: PLW2901
        kept.append(one)
    return replace(found, faults=tuple(faults)), tuple(kept)


def _of_list(subject: Subject, found: Judgement, machine: Machine) -> Iterator[Fault]:
    """What is wrong with a list as a whole: it is for other Pythons, or asks for what excludes each other."""
    from packaging.specifiers import SpecifierSet

    from cudnn_resolve.resolution.fault import Fault

    frameworks = tuple(sorted({one.package for one in found.frameworks}))
    python = machine.python_full
    if subject.python is not None and python is not None:
        last = python if python.count(".") > 1 else f"{python}.99"  # of `3.11` any release may be meant
        if not any(SpecifierSet(subject.python).contains(one, prereleases=True) for one in (python, last)):
            text = f"it is for Python {subject.python}, and here is {python}"
            yield Fault(kind="wheel", severity="error", text=text, because="no installer takes it there", frameworks=frameworks)
    if subject.clash is not None:
        text = "pip and uv refuse to install it: its requirements exclude one another"
        yield Fault(kind="declared", severity="error", text=text, because=subject.clash, frameworks=frameworks)


def _is_brought(fault: Fault, subject: Subject) -> bool:
    """True for what a list need not name: conda brings what its builds load, and of what no installer can do nothing else is told."""
    if fault.because == UNNAMED and subject.clash is not None:
        return True
    return (
        bool(fault.frameworks)
        and subject.conda >= set(fault.frameworks)
        and (fault.kind in ("missing", "library") or fault.because == UNNAMED)
    )


def _likely(fault: Fault, subject: Subject) -> Fault:
    """The fault; of a build that is not the one of the tables, what is said of its GPU code is only likely."""
    if fault.kind == "machine" and "driver" not in fault.text and subject.foreign & set(fault.frameworks):
        return replace(fault, kind="unknown", severity="warning", text=f"{fault.text}; so it is for the wheel, this build may have more")
    return fault


def _without_file(subject: Subject, found: Judgement, machine: Machine) -> Iterator[Fault]:
    from cudnn_resolve.resolution.fault import Fault

    frameworks = {one.package for one in found.frameworks}
    for name in subject.unfit:
        where = f"Python {machine.python_full} on {machine.arch}" if machine.python_full else machine.arch
        yield Fault(
            kind="wheel",
            severity="error",
            text=f"{name} {subject.packages[name]} has no wheel for {where} in the lock",
            because="each of its files is for other machines",
            package=name,
            frameworks=(name,) if name in frameworks else tuple(sorted(frameworks)),
        )


def _unknown(machine: Machine, found: Judgement) -> Iterator[str]:
    """What nobody knows of the machine or the packages, and that the verdict would hang on."""
    if not found.frameworks:
        yield "no framework of the tables is among the packages"
    if machine.driver_absent:
        yield "a driver: this machine has none (--driver states one)"
    elif machine.driver is None:
        yield "whether the driver serves: none is known (--driver)"
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


def _checked(one: Judged, found: Judgement, seen: Iterable[Finding], *, known: bool) -> CheckedFramework:
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
    )
    version = subject.packages.get(fault.package)
    shown = f"{fault.package}=={version}" if version is not None else fault.package
    return Finding(
        cause=_cause(fault),
        severity=fault.severity,
        summary=fault.text,
        evidence=(Evidence(source=source, line=line, text=f"{shown}: {fault.because}" if shown else fault.because),),
        confidence=0.9,
    )


def _cause(fault: Fault) -> str:
    if fault.kind == "machine":
        return _machine_cause(fault)
    if fault.kind == "files" and "cudnn" in fault.package:
        return "cudnn_sublibrary_mix"
    if fault.kind == "library":
        return (
            "cudnn_too_old_for_framework"
            if "cudnn" in fault.package
            else "nvjitlink_mix"
            if "nvjitlink" in fault.package
            else "cublas_mismatch"
        )
    if fault.kind == "bound":
        return {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}.get(fault.package, "framework_pkg_mismatch")
    return "cudnn_missing" if fault.kind == "missing" and "cudnn" in fault.package else _CAUSES[fault.kind]


_TARGETS = re.compile(r"needs? one of (.{1,2000}); here is .{1,200}\(compute capability (\d{1,2})\.(\d)\)")


def _machine_cause(fault: Fault) -> str:
    """Whether the driver or the GPU does not serve, and on which side of the build the GPU is."""
    if "driver" in fault.text:
        return "ptx_too_new" if "has only PTX" in fault.because else "driver_too_old"
    targets = _TARGETS.search(fault.text)
    lowest = min((int(number) for number in re.findall(r"_(\d{2,3})", targets[1])), default=0) if targets else 0
    is_old = " still knows" in fault.text or (targets is not None and int(targets[2] + targets[3]) < lowest)
    return "gpu_arch_too_old_for_build" if is_old else "gpu_arch_too_new_for_build"


def machine_name(facts: Facts, path: str | None) -> str:
    """The machine in few words: the file that describes it, else its GPU and driver."""
    from cudnn_resolve.facts.model import or_none

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
