"""What is found of a set of packages, and how faults that several needs tell alike are told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.version import DriverVersion

NOT_THERE = ", which is not among the packages"
"""How the text of a fault ends that is about a missing package."""
UNNAMED = "what it does not name is not known"
"""Why nothing is said of what a list leaves out that need not name everything."""
FaultKind = Literal[
    "machine", "wheel", "missing", "library", "majors", "files", "companion", "bound", "declared", "cpu", "unknown", "advisory"
]


class Fault(Struct, frozen=True, kw_only=True):
    """One need that is not met, or one thing that is not known."""

    kind: FaultKind
    severity: Literal["error", "warning", "info"]
    text: str
    """What is wrong, in words."""
    because: str
    """Who needs it, and how that is known."""
    package: str = ""
    """The package that would have to change; empty where it is the machine."""
    frameworks: tuple[str, ...] = ()
    """Distributions of the frameworks that it concerns."""
    wants: str | None = None
    """Specifier of the versions of the package with which it would not be one, where that is one."""


class Judged(Struct, frozen=True, kw_only=True):
    """One framework of the set."""

    package: str
    version: str
    framework: str
    """Its name in the matrix."""
    build: Build | None
    """None for one without CUDA, and for one that the matrix does not know."""


class Judgement(Struct, frozen=True, kw_only=True):
    """What was found of the whole set."""

    frameworks: tuple[Judged, ...]
    faults: tuple[Fault, ...]
    driver: DriverVersion | None = None
    """The oldest that all frameworks take; None where none asks for one."""


def merged(faults: Iterable[Fault], frameworks: Iterable[str] = ()) -> tuple[Fault, ...]:
    """Errors first; what several needs say of one package and framework once, and what is missing in one line for each framework."""
    found: dict[tuple[object, ...], Fault] = {}
    missing: dict[tuple[str, ...], list[Fault]] = {}
    for one in faults:
        if one.kind == "missing" and one.severity == "error" and one.text.endswith(NOT_THERE):
            missing.setdefault(one.frameworks, []).append(one)
            continue
        about: tuple[object, ...] = (
            (one.frameworks, one.package) if one.package and one.kind in ("library", "bound", "declared") else (one.text, one.because)
        )
        known = found.setdefault(about, one)
        if known.severity == "warning" and one.severity == "error":
            found[about] = one
    older: dict[tuple[str, ...], list[tuple[object, ...]]] = {}
    for key, one in found.items():
        if one.kind == "library" and one.severity == "warning":
            older.setdefault(one.frameworks, []).append(key)
    for first_about, *more_about in older.values():
        for other in more_about:
            del found[other]
        if more_about:
            first = found[first_about]
            found[first_about] = replace(first, text=f"{first.text}, and {len(more_about)} more libraries of that CUDA")
    for group in missing.values():
        first = group[0]
        packages = dict.fromkeys(one.package for one in group)
        names = ", ".join(packages)
        several = f"{first.text.partition(' needs ')[0]} needs {names}{NOT_THERE.replace(' is ', ' are ')}"
        found[first.frameworks, names] = replace(first, text=several) if len(packages) > 1 else first
    return tuple(
        sorted(_alike(tuple(found.values()), frozenset(frameworks)), key=lambda one: ("error", "warning", "info").index(one.severity))
    )


def _alike(found: tuple[Fault, ...], frameworks: frozenset[str]) -> Iterator[Fault]:
    """What several say alike in one line, and of the GPU what a framework says first: libraries and further words only repeat it."""
    alike: dict[tuple[str, str], list[Fault]] = {}

    def alone(one: Fault) -> bool:
        return one.kind not in ("machine", "wheel") and (one.kind != "library" or bool(frameworks & set(one.frameworks)))

    for one in found:
        alike.setdefault((one.kind, "" if alone(one) else one.text.partition(" needs ")[2]), []).append(one)
    wrong = {one.package for one in found if one.kind == "library" and one.severity == "error"}
    no_gpu: set[str] = set()
    for one in found:
        about_gpu = one.kind == "machine" and "driver" not in one.text
        need = one.text.partition(" needs ")[2]
        group = [one] if alone(one) or not need else alike[one.kind, need]
        if one is not group[0] or (one.kind == "library" and one.severity == "warning" and one.package in wrong):
            continue
        names = tuple(dict.fromkeys(name for each in group for name in each.frameworks))
        if about_gpu and no_gpu and not (frameworks & set(names)) - no_gpu:
            continue
        if about_gpu:
            no_gpu |= frameworks & set(names)
        yield one if len(group) == 1 else _together(group, need, names)


def _together(group: list[Fault], need: str, names: tuple[str, ...]) -> Fault:
    """One fault for several that need the same."""
    who = [each.text.partition(" needs ")[0] for each in group]
    shown = f"{', '.join(who[:-1])} and {who[-1]}" if len(who) <= _NAMED else f"{who[0]} and {len(who) - 1} more"
    because = "; ".join(dict.fromkeys(each.because for each in group))
    return replace(group[0], text=f"{shown} need {need}", because=because, frameworks=names)


_NAMED = 6
