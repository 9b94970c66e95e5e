"""What is wrong with a set of packages on a machine: its own faults, those of the list, and what a diagnosis sees besides."""

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
"""The label of a finding by the kind of a fault, where its package does not tell more."""


def found_in(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> tuple[Judgement, tuple[Finding, ...]]:
    """The faults of the packages on a machine that is `placed`, and what is seen besides; each is told once."""
    found = judge(book, machine, subject.packages, subject.requires, live=subject.kind == LIVE, partial=subject.partial)
    faults = (_likely(one, subject) for one in found.faults if not _is_brought(one, subject))
    found = replace(found, faults=(*_of_list(subject, found, machine), *_without_file(subject, found, machine), *faults))
    return _with_seen(found, tuple(_seen(subject, book, machine, facts)))


def _seen(subject: Subject, book: Book, machine: Machine, facts: Facts | None) -> Iterator[Finding]:
    """What is wrong with an environment besides what its packages need: what it loads, its files; and packages beside one another."""
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
        same = [fault for fault in faults if fault.severity != "info" and fault.package in names and cause_of(fault) == one.cause]
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
    if fault.kind == "machine" and fault.problem not in ("driver", "ptx") and subject.foreign & set(fault.frameworks):
        return replace(fault, kind="unknown", severity="warning", text=f"{fault.text}; so it is for the wheel, this build may have more")
    return fault


def _without_file(subject: Subject, found: Judgement, machine: Machine) -> Iterator[Fault]:
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


def cause_of(fault: Fault) -> str:
    """The label of a finding for a fault."""
    if fault.kind == "machine":
        return _MACHINE_CAUSES[fault.problem or "gpu-too-new"]
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


_MACHINE_CAUSES = {
    "driver": "driver_too_old",
    "ptx": "ptx_too_new",
    "gpu-too-old": "gpu_arch_too_old_for_build",
    "gpu-too-new": "gpu_arch_too_new_for_build",
}
"""The label of a finding by what is wrong with the driver or the GPU."""
