"""One run of resolvelib over a universe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from resolvelib.resolvers import Resolution, ResolutionImpossible, ResolutionTooDeep

from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, PipCandidate
from cudnn_resolve.resolution.key import FrameworkKey, Key
from cudnn_resolve.resolution.model import Failure, Pin, Reason, Rejection
from cudnn_resolve.resolution.provider import Notes, Provider

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.candidate import Need
    from cudnn_resolve.resolution.universe import Universe

ROUNDS = 20000
"""Steps after which a search is given up; real requests take a few hundred."""


class Solved(Struct, frozen=True, kw_only=True):
    """Every package that was decided."""

    pins: dict[Key, Pin]
    rounds: int


class _Search(Resolution):  # type: ignore[type-arg]
    """A run that remembers what it has tested.

    `resolvelib` holds every pin against every requirement of it in each round, which for some hundred packages is most of its time.
    What is overridden is internal to it: under another name there, this would be as fast as without.
    """

    def __init__(self, provider: Provider, notes: Notes) -> None:
        super().__init__(provider, notes)
        self._tested: dict[Key, tuple[Any, Candidate, bool]] = {}

    def _is_current_pin_satisfying(self, name: Key, criterion: Any) -> bool:
        pin = self.state.mapping.get(name)
        if pin is None:
            return False
        known = self._tested.get(name)
        if known is not None and known[0] is criterion and known[1] is pin:
            return known[2]
        answer: bool = super()._is_current_pin_satisfying(name, criterion)
        self._tested[name] = (criterion, pin, answer)
        return answer


def build_of(pins: Mapping[Key, Pin], framework: str) -> Build:
    """Return the build that was chosen of a framework."""
    chosen = pins[FrameworkKey(framework)].candidate
    assert isinstance(chosen, BuildCandidate)
    return chosen.build


def solve(universe: Universe, needs: Sequence[Need], rounds: int = ROUNDS) -> Solved | Failure:
    """The first consistent choice in the order of preference, or what stood in the way."""
    notes = Notes(universe)
    universe.context.chosen.clear()
    most = rounds if universe.budget is None else min(rounds, universe.budget.left)
    if most <= 0:
        return Failure(rejections=(), causes=(), rounds=0, exhausted=True)
    try:
        return _solved(_Search(Provider(universe), notes).resolve(list(universe.with_held(needs)), max_rounds=most), notes)
    except ResolutionImpossible as error:
        return Failure(rejections=_rejections(universe, notes), causes=tuple(_reasons(error.causes, None)), rounds=notes.rounds)
    except ResolutionTooDeep:
        return Failure(rejections=_rejections(universe, notes), causes=(), rounds=notes.rounds, exhausted=True)
    finally:
        if universe.budget is not None:
            universe.budget.left -= notes.rounds


def _solved(state: Any, notes: Notes) -> Solved:
    wanted = _wanted(state)
    pins = {
        name: Pin(candidate=candidate, reasons=tuple(_reasons(state.criteria[name].information, candidate)))
        for name, candidate in state.mapping.items()
        if name in wanted
    }
    return Solved(pins=pins, rounds=notes.rounds)


def _wanted(state: Any) -> set[Key]:
    """The packages that the request needs, directly or not; a search also pins what later turns out to be needed by nothing.

    `resolvelib.Resolver` asks the same of each package by recursion, which does not end where packages that nothing needs require
    one another.
    """
    needed_by: dict[Key | None, set[Key]] = {}
    for name in state.mapping:
        for parent in state.criteria[name].iter_parent():
            if parent is None or state.mapping.get(parent.key) is parent:
                needed_by.setdefault(parent.key if parent is not None else None, set()).add(name)
    wanted: set[Key] = set()
    waiting: list[Key | None] = [None]
    while waiting:
        for name in needed_by.get(waiting.pop(), ()):
            if name not in wanted:
                wanted.add(name)
                waiting.append(name)
    return wanted


def _rejections(universe: Universe, notes: Notes) -> tuple[Rejection, ...]:
    """What was turned down, each clash once; what the machine forbids first."""
    out = {(id(one.candidate), one.about): one for one in universe.look.all_met()}
    for candidate, need, before in notes.rejections:
        out.setdefault(
            (id(candidate), need.key),
            Rejection(
                candidate=candidate,
                about=need.key,
                need=need.text,
                because=need.because,
                against=tuple(_reasons(before, None)),
            ),
        )
    return tuple(out.values())


def _reasons(information: Iterable[Any], chosen: Candidate | None) -> Iterator[Reason]:
    release = chosen.release if isinstance(chosen, PipCandidate) else None
    for need, parent in information:
        if need.divides:
            continue
        obeyed = need.declared is None or release is None or need.declared.contains(release.version, prereleases=True)
        yield Reason(
            text=need.text,
            because=need.because,
            parent=str(parent) if parent is not None else None,
            parent_key=parent.key if parent is not None else None,
            declared=str(need.declared) if need.declared is not None else None,
            requested_by=need.requested_by,
            binding=need.binding,
            obeyed=obeyed,
            key=need.key,
            floor=need.floor,
        )
