"""What is found of a set of packages, and how faults that several needs tell alike are told once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build

NOT_THERE = ", which is not among the packages"
"""How the text of a fault ends that is about a missing package."""
Kind = Literal["machine", "wheel", "missing", "library", "majors", "files", "companion", "bound", "declared", "cpu", "unknown", "advisory"]


class Fault(Struct, frozen=True, kw_only=True):
    """One need that is not met, or one thing that is not known."""

    kind: Kind
    severity: Literal["error", "warning", "info"]
    text: str
    """What is wrong, in words."""
    because: str
    """Who needs it, and how that is known."""
    package: str = ""
    """The package that would have to change; empty where it is the machine."""
    frameworks: tuple[str, ...] = ()
    """Distributions of the frameworks that it concerns."""


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


def merged(faults: Iterable[Fault]) -> tuple[Fault, ...]:
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
        first, *more = group
        names = ", ".join(one.package for one in group)
        found[first.frameworks, names] = (
            first if not more else replace(first, text=f"{first.text.partition(' needs ')[0]} needs {names}{NOT_THERE}")
        )
    return tuple(sorted(found.values(), key=lambda one: ("error", "warning", "info").index(one.severity)))
