"""Faults of a set of packages, and how similar ones are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.candidate import MachineProblem, Need
    from cudnn_resolve.version import DriverVersion

UNNAMED = "what it does not name is not known"
"""Reason of a fault about packages that a list, which need not be complete, leaves out."""
FaultKind = Literal[
    "machine", "wheel", "missing", "library", "majors", "files", "companion", "bound", "declared", "cpu", "unknown", "advisory"
]
Severity = Literal["error", "warning", "info"]
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_NAMED = 6
"""Largest number of owners named in a merged fault."""


class Fault(Struct, frozen=True, kw_only=True):
    """An unmet need, or something unknown."""

    kind: FaultKind
    severity: Severity
    text: str
    because: str
    """Who needs it, and the source of the rule."""
    package: str = ""
    """The package that would have to change; empty if it is the machine."""
    frameworks: tuple[str, ...] = ()
    """Distributions of the affected frameworks."""
    wants: str | None = None
    """Specifier of the versions of the package without the fault, if known."""
    who: str = ""
    need: str = ""
    """Set if the text is `{who} needs {need}`."""
    problem: MachineProblem | None = None
    """For a fault of the machine."""
    remedy: str = ""
    """What mends it, where the matrix says so."""


class JudgedFramework(Struct, frozen=True, kw_only=True):
    """A framework of the set."""

    package: str
    version: str
    framework: str
    """Its name in the matrix."""
    build: Build | None
    """None for a build without CUDA, and for a version that the matrix does not have."""

    @property
    def who(self) -> str:
        """`torch 2.6.0`."""
        return f"{self.package} {self.version}"


class Judgement(Struct, frozen=True, kw_only=True):
    """The faults of a whole set."""

    frameworks: tuple[JudgedFramework, ...]
    faults: tuple[Fault, ...]
    driver: DriverVersion | None = None
    """Oldest driver that all frameworks accept; None if none needs one."""


def framework_fault(framework: JudgedFramework, kind: FaultKind, severity: Severity, text: str, because: str, package: str = "") -> Fault:
    """A fault of one framework; `package` would have to change."""
    frameworks = (framework.package,)
    return Fault(kind=kind, severity=severity, text=text, because=because, package=package, frameworks=frameworks)


def unmet_need_fault(need: Need, who: str, frameworks: tuple[str, ...], kind: FaultKind, found: str, package: str = "") -> Fault:
    """The error of an unmet need; `found` tells what is there instead."""
    text = f"{need.text}; {found}"
    return Fault(
        kind=kind,
        severity="error",
        text=f"{who} needs {text}",
        because=need.because,
        package=package,
        frameworks=frameworks,
        who=who,
        need=text,
        problem=need.problem,
    )


def merge_faults(faults: Iterable[Fault], frameworks: Iterable[str]) -> tuple[Fault, ...]:
    """Merge similar faults and sort them, errors first.

    One fault is kept for each package and framework; a framework's missing packages are listed together.
    """
    found: dict[tuple[object, ...], Fault] = {}
    missing: list[Fault] = []
    for fault in faults:
        if fault.kind == "missing" and fault.severity == "error" and fault.need:
            missing.append(fault)
            continue
        is_about_package = fault.package and fault.kind in ("library", "bound", "declared", "companion")
        key: tuple[object, ...] = (fault.frameworks, fault.package) if is_about_package else (fault.text, fault.because)
        known = found.setdefault(key, fault)
        if known.severity == "warning" and fault.severity == "error":
            found[key] = fault
    merged = (*_merge_old_libraries(found.values()), *map(_merge_missing, _groups(missing, lambda fault: (fault.frameworks,))))
    return tuple(sorted(_merge_alike(merged, frozenset(frameworks)), key=lambda fault: _SEVERITIES.index(fault.severity)))


def _groups(faults: Iterable[Fault], key: Callable[[Fault], tuple[object, ...] | None]) -> list[list[Fault]]:
    """Faults with the same key together, in the order of the first of each group; a fault without a key is alone."""
    found: dict[object, list[Fault]] = {}
    for fault in faults:
        found.setdefault(key(fault) or id(fault), []).append(fault)
    return list(found.values())


def _is_old_library(fault: Fault) -> bool:
    return fault.kind == "library" and fault.severity == "warning"


def _merge_old_libraries(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Merge the warnings about older CUDA libraries of each framework into its first one."""
    for first, *more in _groups(faults, lambda fault: (fault.frameworks,) if _is_old_library(fault) else None):
        yield replace(first, text=f"{first.text}, and {len(more)} more libraries of that CUDA") if more else first


def _merge_missing(faults: list[Fault]) -> Fault:
    """List the missing packages of a framework in its first fault."""
    names = list(dict.fromkeys(fault.package for fault in faults))
    first = faults[0]
    if len(names) == 1:
        return first
    return replace(first, text=f"{first.who} needs {', '.join(names)}, which are not among the packages")


def _merge_alike(faults: tuple[Fault, ...], frameworks: frozenset[str]) -> Iterator[Fault]:
    """Merge equal needs of several owners, and drop faults about the GPU that only repeat the first one of a framework."""

    def shared_need(fault: Fault) -> tuple[str, str] | None:
        is_of_library = fault.kind == "library" and not frameworks & set(fault.frameworks)
        return (fault.kind, fault.need) if fault.need and (is_of_library or fault.kind in ("machine", "wheel")) else None

    wrong = {fault.package for fault in faults if fault.kind == "library" and fault.severity == "error"}
    without_gpu: set[str] = set()
    for group in _groups(faults, shared_need):
        fault = group[0]
        if _is_old_library(fault) and fault.package in wrong:
            continue
        names = tuple(dict.fromkeys(name for other in group for name in other.frameworks))
        if fault.kind == "machine" and fault.problem not in ("driver", "ptx"):
            affected = frameworks & set(names)
            if without_gpu and not affected - without_gpu:
                continue
            without_gpu |= affected
        yield fault if len(group) == 1 else _merge_group(group, names)


def _merge_group(group: list[Fault], frameworks: tuple[str, ...]) -> Fault:
    """Merge faults with the same need."""
    owners = list(dict.fromkeys(fault.who for fault in group))
    because = "; ".join(dict.fromkeys(fault.because for fault in group))
    if len(owners) == 1:
        return replace(group[0], because=because)
    shown = f"{', '.join(owners[:-1])} and {owners[-1]}" if len(owners) <= _NAMED else f"{owners[0]} and {len(owners) - 1} more"
    return replace(group[0], text=f"{shown} need {group[0].need}", because=because, frameworks=frameworks)
