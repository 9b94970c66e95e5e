"""One search in a universe, and its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, CudaCandidate, CudnnCandidate, Need, PipCandidate
from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, Key
from cudnn_resolve.resolution.model import Failure, Pin, Reason, Rejection
from cudnn_resolve.resolution.search import ImpossibleError, Search, TooLongError, Wish

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.universe import Universe

ROUNDS = 20000
"""Steps after which a search is given up; real requests take a few hundred."""


class Solved(Struct, frozen=True, kw_only=True):
    """Every package that was decided."""

    pins: dict[Key, Pin]
    rounds: int


def build_of(pins: Mapping[Key, Pin], framework: str) -> Build:
    """Return the build that was chosen of a framework."""
    chosen = pins[FrameworkKey(framework)].candidate
    assert isinstance(chosen, BuildCandidate)
    return chosen.build


def cuda_of(pins: Mapping[Key, Pin], key: CudaKey) -> CudaCandidate | None:
    """Return the CUDA that was chosen; None where none was."""
    found = pins[key].candidate if key in pins else None
    return found if isinstance(found, CudaCandidate) else None


def cudnn_of(pins: Mapping[Key, Pin], key: CudnnKey) -> CudnnCandidate | None:
    """Return the cuDNN that was chosen; None where none was."""
    found = pins[key].candidate if key in pins else None
    return found if isinstance(found, CudnnCandidate) else None


def solve(universe: Universe, needs: Sequence[Need], rounds: int = ROUNDS) -> Solved | Failure:
    """The first consistent choice in the order of preference, or what stood in the way."""
    universe.context.chosen.clear()
    most = rounds if universe.budget is None else min(rounds, universe.budget.left)
    if most <= 0:
        return Failure(rejections=(), causes=(), rounds=0, exhausted=True)
    search = Search(universe)
    try:
        search.run(universe.with_held(needs), most)
    except ImpossibleError as error:
        core = frozenset((one.key, one.text) for one in error.premises if isinstance(one, Need))
        causes = tuple(_reasons(search.torn, None))
        return Failure(rejections=_rejections(universe, search), causes=causes, rounds=search.rounds, core=core)
    except TooLongError:
        return Failure(rejections=_rejections(universe, search), causes=(), rounds=search.rounds, exhausted=True)
    finally:
        if universe.budget is not None:
            universe.budget.left -= search.rounds
    wanted = _wanted(search)
    pins = {
        key: Pin(candidate=candidate, reasons=tuple(_reasons(_wanted_by(wanted, search.wishes[key]), candidate)))
        for key, candidate in search.pins.items()
        if key in wanted
    }
    return Solved(pins=pins, rounds=search.rounds)


def _wanted(search: Search) -> set[Key]:
    """The packages that the request needs, directly or not; not those that nothing needs any more but one another."""
    needed_by: dict[Key | None, set[Key]] = {}
    for key, wishes in search.wishes.items():
        for _, parent in wishes:
            needed_by.setdefault(parent.key if parent is not None else None, set()).add(key)
    wanted: set[Key] = set()
    waiting: list[Key | None] = [None]
    while waiting:
        for name in needed_by.get(waiting.pop(), ()):
            if name not in wanted:
                wanted.add(name)
                waiting.append(name)
    return wanted


def _wanted_by(wanted: Collection[Key], wishes: Iterable[Wish]) -> Iterator[Wish]:
    """The wishes of the request and of packages that it needs."""
    return (wish for wish in wishes if wish.parent is None or wish.parent.key in wanted)


def _rejections(universe: Universe, search: Search) -> tuple[Rejection, ...]:
    """What was turned down, each clash once; what the machine forbids first."""
    out = {(id(one.candidate), one.about): one for one in universe.look.all_met()}
    for candidate, need, before in search.rejections.values():
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


def _reasons(wishes: Iterable[Wish], chosen: Candidate | None) -> Iterator[Reason]:
    release = chosen.release if isinstance(chosen, PipCandidate) else None
    for need, parent in wishes:
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
