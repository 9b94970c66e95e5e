"""Pins on NVIDIA's libraries by packages that are decided after them: seen in one answer, kept in the next where they can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from cudnn_resolve.resolution.family import search
from cudnn_resolve.resolution.provider import is_late
from cudnn_resolve.resolution.solve import Solved
from cudnn_resolve.resolution.universe import Universe

if TYPE_CHECKING:
    from cudnn_resolve.resolution.model import Reason


def with_wishes(universe: Universe, found: Solved, companions: Sequence[str], rounds: int) -> tuple[Universe, Solved]:
    """The answer, or another one with the same frameworks that leaves fewer of the wheels' own pins; and the universe that it is of.

    A release of a library is chosen before the packages around the stack are, so that a pin of theirs may be left although the
    library could have been that release.
    """
    wishes: dict[str, list[SpecifierSet]] = {}
    for package, reason in _left(found):
        kind, _, rest = (reason.parent_name or "").partition(":")
        if kind == "pip" and is_late(universe.book, rest.partition("[")[0]):
            wishes.setdefault(package, []).append(SpecifierSet(reason.declared or ""))
    if not wishes:
        return universe, found
    other = Universe(universe.book, universe.machine, universe.request, near=universe.near, wishes=wishes, closed=universe.closed)
    other.budget = universe.budget
    answer = search(other, other.root_needs(companions), rounds)
    better = isinstance(answer, Solved) and _frameworks(answer) == _frameworks(found) and _count(answer) < _count(found)
    return (other, answer) if better and isinstance(answer, Solved) else (universe, found)


def _left(found: Solved) -> Iterator[tuple[str, Reason]]:
    """Pins that an answer leaves, each with the package that it is about."""
    for name, pin in found.pins.items():
        for reason in pin.reasons:
            if not reason.obeyed:
                yield name.partition(":")[2].partition("[")[0], reason


def _count(found: Solved) -> int:
    return len({(package, reason.declared, reason.parent) for package, reason in _left(found)})


def _frameworks(found: Solved) -> dict[str, str]:
    return {name: pin.candidate.version for name, pin in found.pins.items() if name.startswith("framework:")}
