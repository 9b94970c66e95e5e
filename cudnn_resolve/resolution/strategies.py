"""Attempts to resolve a request on a machine, each a search of its own.

`docs/architecture.md` lists these runs of the solver and their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.errors import UsageError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.resolution.assemble import assemble
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import solve_families
from cudnn_resolve.resolution.key import FrameworkKey, PipKey
from cudnn_resolve.resolution.marker import apply_markers
from cudnn_resolve.resolution.model import Failure, Reason, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest, open_request
from cudnn_resolve.resolution.package_order import is_decided_late
from cudnn_resolve.resolution.solve import ROUNDS, Solved
from cudnn_resolve.resolution.universe import Universe

PYTHONS = ((3, 12), (3, 11), (3, 13), (3, 10), (3, 14), (3, 9), (3, 8), (3, 7), (3, 6))
"""Pythons to try if none is given, those with most wheels first."""

CACHED_ROUNDS = 2000
"""Steps of the first search offline, limited to cached metadata; one with an answer takes a few hundred."""
CACHED_ROUNDS_OF_RELAXATION = 200
"""The same if searches share their steps, to leave some for the second search, which usually has the answer."""


def attempt(
    book: Book, machine: Machine, request: Request, nearest_to: dict[str, str] | None = None, rounds: int = ROUNDS
) -> Resolution | Failure:
    """The resolution, or an unexplained failure.

    Installed packages that are built for one version of a framework move along; one without a matching release is left behind and named. If
    the Python is unknown, each one is tried. `rounds` limits each search, a budget of the request all of them together.

    An answer that honours everything an installed framework declares comes first; then one that overrides pins that it can do without; and
    last one that breaks the frameworks that the user gives up.
    """
    *stricter, last = _by_strictness(book, machine, open_request(request))
    for variant in stricter:
        found = _attempt_cached_first(book, machine, variant, nearest_to, min(rounds, CACHED_ROUNDS))
        if isinstance(found, Resolution):
            return found
    return _attempt_cached_first(book, machine, last, nearest_to, rounds)


def _by_strictness(book: Book, machine: Machine, request: OpenRequest) -> Iterator[OpenRequest]:
    """Variants of the request by how they treat unrequested installed frameworks, the strictest first."""
    packages = {name for framework in book.frameworks() for name in book.distributions(framework)}
    requested = {name for target in request.targets for name in book.distributions(target.framework)}
    if any(name in machine.pip for name in packages - requested):
        for allow_break in dict.fromkeys((frozenset[str](), request.allow_break)):
            yield replace(request, allow_break=allow_break, strict_installed=True)
            yield replace(request, allow_break=allow_break)
    else:
        yield request


def _attempt_cached_first(
    book: Book, machine: Machine, request: OpenRequest, nearest_to: dict[str, str] | None, rounds: int
) -> Resolution | Failure:
    """One search; offline two, because a partly filled cache must not hide an answer that the tables have.

    The first accepts only releases with cached metadata. Its answer counts if it is as good as that of the second, which may leave
    packages to the installer.
    """
    universes: list[Universe] = []

    def search(rounds: int, dropped: Sequence[str] = (), *, only_cached: bool) -> Resolution | Failure:
        """The answer on the machine's Python; if that is unknown, on the first Python with an answer."""
        failures: list[Failure] = []
        for candidate, evaluated in on_each_python(machine, request):
            universes.append(Universe(Context(book, candidate, evaluated, nearest_to=nearest_to, only_cached=only_cached)))
            found = _attempt_once(universes[-1], rounds, dropped)
            if isinstance(found, Resolution):
                return found
            failures.append(found)
        return failures[0]

    if request.source is None or not request.source.offline:
        return search(rounds, only_cached=False)
    cached_rounds = min(rounds, CACHED_ROUNDS if request.budget is None else CACHED_ROUNDS_OF_RELAXATION)
    cached = search(cached_rounds, only_cached=True)
    is_restricted = any(universe.context.is_restricted for universe in universes)
    is_complete = not is_restricted and not (isinstance(cached, Failure) and cached.exhausted)
    if is_complete or (isinstance(cached, Resolution) and _is_best(universes[-1], cached)):
        return cached
    found = search(rounds, only_cached=False)
    if isinstance(found, Failure):
        return cached if isinstance(cached, Resolution) else found
    if found.dropped and isinstance(cached, Failure):
        cached = search(cached_rounds, found.dropped, only_cached=True)
    return cached if isinstance(cached, Resolution) and cached.builds == found.builds else found


def _is_best(universe: Universe, found: Resolution) -> bool:
    """True if every target has the first build that it accepts and the machine allows."""
    return all(universe.newest(target) is build for target, build in zip(found.request.targets, found.builds, strict=True))


def on_each_python(machine: Machine, request: OpenRequest) -> Iterator[tuple[Machine, OpenRequest]]:
    """The machine and its request with markers applied; for every Python with targets if the Python is unknown.

    Errors as of `apply_markers`.
    """
    if machine.python is not None:
        yield machine, apply_markers(request, machine)
        return
    errors: list[UsageError] = []
    for python in PYTHONS:
        candidate = with_python(machine, python)
        try:
            evaluated = apply_markers(request, candidate)
        except UsageError as error:
            errors.append(error)
        else:
            yield candidate, evaluated
    if len(errors) == len(PYTHONS):
        raise errors[0]


def with_python(machine: Machine, python: tuple[int, int]) -> Machine:
    """The machine with another Python."""
    return replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")


def _attempt_once(universe: Universe, rounds: int, dropped: Sequence[str]) -> Resolution | Failure:
    """Search with all installed companions, and if that fails without those that cannot move along."""
    companions = [name for name in _installed_companions(universe) if name not in dropped]
    found = solve_families(universe, universe.root_needs(companions), rounds)
    if isinstance(found, Solved):
        return assemble(*_with_late_pins(universe, found, companions, rounds), dropped)
    if not companions or universe.context.is_restricted:  # a search with the whole index may move them all
        return found
    best = solve_families(universe, universe.root_needs(()), rounds)
    if isinstance(best, Failure):
        return best
    moved: list[str] = []
    for name in companions:
        found = solve_families(universe, universe.root_needs([*moved, name]), rounds)
        if isinstance(found, Solved):
            moved.append(name)
            best = found
    return assemble(*_with_late_pins(universe, best, moved, rounds), tuple(name for name in companions if name not in moved))


def _installed_companions(universe: Universe) -> tuple[str, ...]:
    """Installed packages that must move with one of the targets."""
    book, installed = universe.book, universe.machine.pip
    names = (name for target in universe.request.targets for name in book.framework(target.framework).companions)
    return tuple(dict.fromkeys(name for name in names if name in installed and book.is_harvested(name)))


def _with_late_pins(universe: Universe, found: Solved, companions: Sequence[str], rounds: int) -> tuple[Universe, Solved]:
    """An answer with the same frameworks and fewer overridden pins, if a second search finds one; and its universe.

    Libraries are decided before the packages around the stack, whose pins may be overridden although the library could have met them.
    """
    late_pins: dict[str, list[SpecifierSet]] = {}
    for package, reason in _overridden(found):
        if isinstance(reason.parent_key, PipKey) and is_decided_late(universe.book, reason.parent_key.name):
            late_pins.setdefault(package, []).append(SpecifierSet(reason.declared or ""))
    if not late_pins:
        return universe, found
    old = universe.context
    context = Context(old.book, old.machine, old.request, nearest_to=old.nearest_to, late_pins=late_pins, only_cached=old.only_cached)
    other = Universe(context)
    answer = solve_families(other, other.root_needs(companions), rounds)
    if isinstance(answer, Failure) or _frameworks(answer) != _frameworks(found) or _count_overridden(answer) >= _count_overridden(found):
        return universe, found
    return other, answer


def _overridden(found: Solved) -> Iterator[tuple[str, Reason]]:
    """Overridden pins of an answer, each with its package."""
    for key, pin in found.pins.items():
        if isinstance(key, PipKey):
            yield from ((key.name, reason) for reason in pin.reasons if not reason.obeyed)


def _count_overridden(found: Solved) -> int:
    return len({(package, reason.declared, reason.parent) for package, reason in _overridden(found)})


def _frameworks(found: Solved) -> dict[str, str]:
    return {key.name: pin.candidate.version for key, pin in found.pins.items() if isinstance(key, FrameworkKey)}
