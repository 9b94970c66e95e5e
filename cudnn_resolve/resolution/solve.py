"""Run a search in a universe and turn its outcome into values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.matrix.row import Build
from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, CudaCandidate, CudnnCandidate, Need, PipCandidate
from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, Key
from cudnn_resolve.resolution.model import Demand, Failure, Pin, Reason, Rejection
from cudnn_resolve.resolution.search import Search, StepLimitError, UnsatisfiableError
from cudnn_resolve.resolution.universe import Universe

ROUNDS = 20000
"""Steps after which a search is given up; real requests take a few hundred."""


class Solved(Struct, frozen=True, kw_only=True):
    """The pin of every needed package."""

    pins: dict[Key, Pin]
    rounds: int


def build_of(pins: Mapping[Key, Pin], framework: str) -> Build:
    """The chosen build of a framework."""
    chosen = pins[FrameworkKey(framework)].candidate
    assert isinstance(chosen, BuildCandidate)
    return chosen.build


def cuda_of(pins: Mapping[Key, Pin], key: CudaKey) -> CudaCandidate | None:
    """The chosen CUDA; None if there is none."""
    chosen = pins[key].candidate if key in pins else None
    return chosen if isinstance(chosen, CudaCandidate) else None


def cudnn_of(pins: Mapping[Key, Pin], key: CudnnKey) -> CudnnCandidate | None:
    """The chosen cuDNN; None if there is none."""
    chosen = pins[key].candidate if key in pins else None
    return chosen if isinstance(chosen, CudnnCandidate) else None


def solve(universe: Universe, needs: Sequence[Need], rounds: int = ROUNDS) -> Solved | Failure:
    """The first consistent choice in the order of preference, or why there is none."""
    universe.context.chosen.clear()
    budget = universe.request.budget
    limit = rounds if budget is None else min(rounds, budget.left)
    if limit <= 0:
        return Failure(rejections=(), causes=(), rounds=0, exhausted=True)
    search = Search(universe)
    try:
        search.run(universe.with_held(needs), limit)
    except UnsatisfiableError as error:
        core = frozenset(premise.text for premise in error.premises if isinstance(premise, Need))
        causes = _explaining(search.last_conflict)
        return Failure(rejections=_rejections(universe, search), causes=causes, rounds=search.rounds, core=core)
    except StepLimitError:
        return Failure(rejections=_rejections(universe, search), causes=(), rounds=search.rounds, exhausted=True)
    finally:
        if budget is not None:
            budget.left -= search.rounds
    needed = _needed(search)
    pins = {key: _pin(candidate, search.demands[key], needed) for key, candidate in search.pins.items() if key in needed}
    return Solved(pins=pins, rounds=search.rounds)


def _needed(search: Search) -> set[Key]:
    """Packages that the request needs, directly or not; without those that only need one another."""
    needed_by: dict[Key | None, set[Key]] = {}
    for key, demands in search.demands.items():
        for demand in demands:
            needed_by.setdefault(demand.parent.key if demand.parent is not None else None, set()).add(key)
    needed: set[Key] = set()
    waiting: list[Key | None] = [None]
    while waiting:
        for key in needed_by.get(waiting.pop(), ()):
            if key not in needed:
                needed.add(key)
                waiting.append(key)
    return needed


def _explaining(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Demands without those that only partition the search."""
    return tuple(demand for demand in demands if not demand.need.divides)


def _rejections(universe: Universe, search: Search) -> tuple[Rejection, ...]:
    """Rejected candidates, each clash once; those that the machine rejects come first."""
    found = {(id(rejection.candidate), rejection.about): rejection for rejection in universe.machine_filter.all_rejections()}
    for key, rejection in search.rejections.items():
        found.setdefault(key, replace(rejection, against=_explaining(rejection.against)))
    return tuple(found.values())


def _pin(candidate: Candidate, demands: Iterable[Demand], needed: Collection[Key]) -> Pin:
    """The pin of a chosen candidate, with the demands of the request and of needed packages as its reasons."""
    release = candidate.release if isinstance(candidate, PipCandidate) else None
    reasons = [
        Reason(
            text=need.text,
            because=need.because,
            parent=str(parent) if parent is not None else None,
            parent_key=parent.key if parent is not None else None,
            declared=str(need.declared) if need.declared is not None else None,
            requested_by=need.requested_by,
            binding=need.binding,
            obeyed=need.declared is None or release is None or need.declared.contains(release.version, prereleases=True),
            restates=need.restates,
            key=need.key,
            floor=need.floor,
        )
        for need, parent in _explaining(demands)
        if parent is None or parent.key in needed
    ]
    return Pin(candidate=candidate, reasons=tuple(reasons))
