"""One try of a request on a machine: the forms and Pythons in which it is tried, each by a search of its own.

`docs/architecture.md` names these runs of the solver with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.errors import UsageError
from cudnn_resolve.resolution.assemble import assemble
from cudnn_resolve.resolution.choice import is_late
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import solve_families
from cudnn_resolve.resolution.key import FrameworkKey, PipKey
from cudnn_resolve.resolution.marker import settle
from cudnn_resolve.resolution.model import Failure, Resolution
from cudnn_resolve.resolution.open_request import Budget, OpenRequest, opened
from cudnn_resolve.resolution.solve import ROUNDS, Solved
from cudnn_resolve.resolution.universe import Universe

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Reason

PYTHONS = ((3, 12), (3, 11), (3, 13), (3, 10), (3, 14), (3, 9), (3, 8), (3, 7), (3, 6))
"""Pythons to try where nobody says which one is meant: those with most wheels first."""

CLOSED_ROUNDS = 2000
"""Steps of the first search offline, which takes only what the cache knows whole; one that finds an answer takes a few hundred."""
CLOSED_ROUNDS_OF_A_WAY_OUT = 200
"""The same where several searches share their steps: the second search, which finds an answer in most cases, must have some left."""


def attempt(
    book: Book,
    machine: Machine,
    request: Request,
    near: dict[str, str] | None = None,
    rounds: int = ROUNDS,
    *,
    budget: Budget | None = None,
) -> Resolution | Failure:
    """The resolution, or the failure without its explanation.

    Installed packages that are built for one version of a framework move along; one for which no release fits is left behind
    and named. Where the Python is unknown, each one is tried. `rounds` bounds each search for it, `budget` all of them together.

    An answer that leaves every installed framework as it is comes first; then one that leaves pins of theirs which they can do without;
    and only then one that breaks those which the user gives up.
    """
    request = opened(request)
    budget = budget or request.budget
    *first, last = _by_care(book, machine, request)
    for one in first:
        found = _attempt_once(book, machine, one, near, min(rounds, CLOSED_ROUNDS), budget)
        if isinstance(found, Resolution):
            return found
    return _attempt_once(book, machine, last, near, rounds, budget)


def _by_care(book: Book, machine: Machine, request: OpenRequest) -> Iterator[OpenRequest]:
    """The request as it is to be tried, the most careful form first."""
    packages = {name for one in book.frameworks() for name in book.distributions(one)}
    asked = {name for target in request.targets for name in book.distributions(target.framework)}
    if any(name in machine.pip for name in packages - asked):
        for allowed in dict.fromkeys((frozenset[str](), request.allow_break)):
            yield replace(request, allow_break=allowed, strict_installed=True)
            yield replace(request, allow_break=allowed)
    else:
        yield request


def _attempt_once(
    book: Book, machine: Machine, request: OpenRequest, near: dict[str, str] | None, rounds: int, budget: Budget | None
) -> Resolution | Failure:
    """One search; offline two, where what the cache knows in part could stand in the way of an answer that the tables give.

    The first takes only what the cache knows whole; its answer counts where it is as good as that of the second, which may leave
    packages to the installer.
    """
    made: list[Universe] = []

    def make(machine: Machine, request: OpenRequest, *, closed: bool) -> Universe:
        universe = Universe(Context(book, machine, request, near=near, closed=closed), budget)
        made.append(universe)
        return universe

    if request.source is None or not request.source.offline:
        return _on_some_python(machine, request, rounds, partial(make, closed=False))
    first = min(rounds, CLOSED_ROUNDS if budget is None else CLOSED_ROUNDS_OF_A_WAY_OUT)
    found = _on_some_python(machine, request, first, partial(make, closed=True))
    is_whole = not any(one.context.is_cut for one in made) and not (isinstance(found, Failure) and found.exhausted)
    if is_whole or (isinstance(found, Resolution) and _is_best(made[-1], found)):
        return found
    other = _on_some_python(machine, request, rounds, partial(make, closed=False))
    if isinstance(other, Failure):
        return found if isinstance(found, Resolution) else other
    if other.dropped and isinstance(found, Failure):
        found = _on_some_python(machine, request, first, partial(make, closed=True), other.dropped)
    return found if isinstance(found, Resolution) and found.builds == other.builds else other


def _is_best(universe: Universe, found: Resolution) -> bool:
    """True where every target has the first build that it accepts and the machine allows."""
    return all(universe.newest(target) is build for target, build in zip(found.request.targets, found.builds, strict=True))


def _on_some_python(
    machine: Machine, request: OpenRequest, rounds: int, make: Callable[[Machine, OpenRequest], Universe], dropped: Sequence[str] = ()
) -> Resolution | Failure:
    """The answer on the machine's Python, or on the first that has one where that is unknown."""
    failure: Failure | None = None
    for one, settled in on_each_python(machine, request):
        found = _attempt(make(one, settled), rounds, dropped)
        if isinstance(found, Resolution):
            return found
        failure = failure or found
    assert failure is not None
    return failure


def on_each_python(machine: Machine, request: OpenRequest) -> Iterator[tuple[Machine, OpenRequest]]:
    """The machine and what is asked on it, for each Python on which anything is where that is unknown; errors as of `settle`."""
    if machine.python is not None:
        yield machine, settle(request, machine)
        return
    refusals: list[UsageError] = []
    for python in PYTHONS:
        one = with_python(machine, python)
        try:
            settled = settle(request, one)
        except UsageError as error:
            refusals.append(error)
        else:
            yield one, settled
    if len(refusals) == len(PYTHONS):
        raise refusals[0]


def with_python(machine: Machine, python: tuple[int, int]) -> Machine:
    """The machine with another Python."""
    return replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")


def _attempt(universe: Universe, rounds: int, dropped: Sequence[str]) -> Resolution | Failure:
    book, machine, request = universe.book, universe.machine, universe.request
    companions = [name for name in installed_companions(book, machine, request) if name not in dropped]
    found = solve_families(universe, universe.root_needs(companions), rounds)
    if isinstance(found, Solved):
        return assemble(*with_late_pins(universe, found, companions, rounds), dropped)
    if not companions or universe.context.closed:
        return found
    alone = solve_families(universe, universe.root_needs(()), rounds)
    if isinstance(alone, Failure):
        return alone
    kept: list[str] = []
    best = alone
    for name in companions:
        with_ = solve_families(universe, universe.root_needs([*kept, name]), rounds)
        if isinstance(with_, Solved):
            kept.append(name)
            best = with_
    return assemble(*with_late_pins(universe, best, kept, rounds), tuple(name for name in companions if name not in kept))


def installed_companions(book: Book, machine: Machine, request: Request) -> tuple[str, ...]:
    """Installed packages that must move with one of the targets."""
    out: list[str] = []
    for target in request.targets:
        for name in book.framework(target.framework).companions:
            if name in machine.pip and name not in out and book.package(name) is not None:
                out.append(name)
    return tuple(out)


def with_late_pins(universe: Universe, found: Solved, companions: Sequence[str], rounds: int) -> tuple[Universe, Solved]:
    """The answer, or another one with the same frameworks that leaves fewer of the wheels' own pins; and the universe that it is of.

    A release of a library is chosen before the packages around the stack are, so that a pin of theirs may be left although the
    library could have been that release.
    """
    late: dict[str, list[SpecifierSet]] = {}
    for package, reason in _left(found):
        if isinstance(reason.parent_key, PipKey) and is_late(universe.book, reason.parent_key.name):
            late.setdefault(package, []).append(SpecifierSet(reason.declared or ""))
    if not late:
        return universe, found
    old = universe.context
    context = Context(old.book, old.machine, old.request, near=old.near, late_pins=late, closed=old.closed)
    other = Universe(context, universe.budget)
    answer = solve_families(other, other.root_needs(companions), rounds)
    better = isinstance(answer, Solved) and _frameworks(answer) == _frameworks(found) and _count(answer) < _count(found)
    return (other, answer) if better and isinstance(answer, Solved) else (universe, found)


def _left(found: Solved) -> Iterator[tuple[str, Reason]]:
    """Pins that an answer leaves, each with the package that it is about."""
    for key, pin in found.pins.items():
        if isinstance(key, PipKey):
            yield from ((key.name, reason) for reason in pin.reasons if not reason.obeyed)


def _count(found: Solved) -> int:
    return len({(package, reason.declared, reason.parent) for package, reason in _left(found)})


def _frameworks(found: Solved) -> dict[str, str]:
    return {key.name: pin.candidate.version for key, pin in found.pins.items() if isinstance(key, FrameworkKey)}
