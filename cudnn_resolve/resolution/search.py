"""The search: chooses a candidate for each package of a universe so that all needs of the chosen candidates hold.

Packages are decided one at a time, each with its best candidate that agrees with the needs known so far. If a decided package gets a
further need that its candidate does not meet, it is decided again and the needs of the old candidate are retracted.

When no candidate of a package is left, the needs responsible are learned as a conflict: whatever is chosen, they cannot all be met. The
search backtracks to the last decision before all of them held, and never lets all of them hold again. So a candidate with the same needs as
an earlier one is rejected at once, and a failing search ends with the parts of the request that exclude one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from cudnn_resolve.resolution.candidate import Candidate, LazyList, Need
from cudnn_resolve.resolution.key import Key
from cudnn_resolve.resolution.model import Demand, Rejection
from cudnn_resolve.resolution.package_order import LAST, Choices
from cudnn_resolve.resolution.search_memory import Premise, Remaining, follows_first_need
from cudnn_resolve.resolution.universe import Universe

STRIDES_FROM = 16
"""If any answer will do, candidates tried in order before the search strides through the rest."""
MOVES = 16
"""How often a package is decided again before a candidate that would cause another time is rejected instead."""


class UnsatisfiableError(Exception):
    """No choice meets all needs of a request; `premises` exclude one another."""

    def __init__(self, premises: frozenset[Premise]) -> None:
        super().__init__()
        self.premises = premises


class StepLimitError(Exception):
    """A search exceeded its steps."""


class Trail:
    """Undo log for changes of mappings."""

    def __init__(self) -> None:
        self._changes: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, mapping: dict[Any, Any], key: object, value: object) -> None:
        """Set a value; None removes it."""
        self._changes.append((mapping, key, mapping.get(key)))
        _put(mapping, key, value)

    def mark(self) -> int:
        """The current position, for `back_to`."""
        return len(self._changes)

    def back_to(self, mark: int) -> None:
        """Undo all changes since a mark."""
        while len(self._changes) > mark:
            _put(*self._changes.pop())


def _put(mapping: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


class Search:
    """One search in a universe."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._memory = universe.memory
        self._choices = Choices(universe)
        self._trail = Trail()
        self._open: dict[Key, bool] = {}
        """Packages that are needed and not decided."""
        self._moves: dict[Key, int] = {}
        """How often a package was decided again in the current state."""
        self._held: dict[Premise, int] = {}
        """Premises that hold, with the number of reasons for each."""
        self._remaining: dict[Key, Remaining] = {}
        """What the needs of a package leave of its candidates."""
        self._losses: dict[Key, int] = {}
        """How many candidates of a package were rejected or undone; never taken back."""
        self._deferred: dict[Key, bool] = {}
        """Packages decided last: needs found later may leave only source archives, which are then built."""
        self.pins: dict[Key, Candidate] = {}
        self.demands: dict[Key, tuple[Demand, ...]] = {}
        self.rejections: dict[tuple[int, Key], Rejection] = {}
        """The first rejection of each candidate on each package."""
        self.last_conflict: tuple[Demand, ...] = ()
        """Demands on the last package that had no candidate left."""
        self.rounds = 0

    def run(self, needs: Iterable[Need], rounds: int) -> None:
        """Decide every package: `pins` and `demands` are the answer. UnsatisfiableError or StepLimitError without one."""
        for need in needs:
            conflict = self._demand(need, None, [])
            if conflict is not None:
                raise UnsatisfiableError(conflict)
        progress = self._universe.request.progress
        marks: list[int] = []
        decided: list[Key] = []
        while self._open:
            if self.rounds == rounds:
                raise StepLimitError
            self.rounds += 1
            if progress is not None:
                progress(self._describe)
            marks.append(self._trail.mark())
            decided.append(min(self._open, key=self._order))
            conflict = self._decide(decided[-1])
            while conflict is not None and all(premise in self._held for premise in conflict):
                if not marks:
                    raise UnsatisfiableError(conflict)
                self._trail.back_to(marks.pop())
                self._count_loss(decided.pop())

    def _describe(self) -> str:
        """Progress text: the last conflict."""
        texts = ", ".join(dict.fromkeys(demand.need.text for demand in self.last_conflict))
        return texts and f"conflict between {texts}"

    def _order(self, key: Key) -> tuple[bool, int, int, int, str]:
        stage, *rest = self._choices.stage(key)
        losses = self._losses.get(key, 0) if stage == LAST else 0  # others go first after 16 losses, and again after 64, 256 …
        return key in self._deferred, stage, max(losses.bit_length() - 3, 0) // 2, *rest  # type: ignore[return-value]

    def _decide(self, key: Key) -> frozenset[Premise] | None:
        """Choose the best candidate that agrees with the rest; else return the conflict. None also if the package is deferred."""
        reasons: set[Premise] = set()
        skipped_build = False
        candidates = LazyList(self._in_turn(key))
        for number, candidate in enumerate(candidates):
            if self._choices.must_not_build(candidate, candidates):
                # Without these needs there are more wheels, not fewer.
                reasons.update(self._memory.representative(demand.need) for demand in self.demands[key])
                skipped_build = True
                continue
            if number & (number - 1) == 0:  # at 0, 1, 2, 4, 8 …
                self._choices.prefetch(islice(candidates, number, number * 4))
            mark = self._trail.mark()
            conflict = self._choose(candidate)
            if conflict is None:
                return None
            self._trail.back_to(mark)
            reasons |= conflict
            if self._count_loss(key) and min(self._open, key=self._order) != key:
                return None
        if skipped_build and key not in self._deferred and not self._deferred.keys() >= self._open.keys() - {key}:
            self._trail.put(self._deferred, key, True)
            return None
        reasons |= self._excluding(key, reasons)
        learned = frozenset(reasons)
        self._memory.learn(learned)
        return learned

    def _in_turn(self, key: Key) -> Iterator[Candidate]:
        """Candidates of a package in the order they are tried: best first; if any answer will do, the first few and then in strides."""
        candidates = self._choices.best_first(key, self._needs_of(key))
        if not self._universe.request.any_answer or self._choices.stage(key)[0] != LAST:
            yield from candidates
            return
        yield from islice(candidates, STRIDES_FROM)
        rest = list(candidates)
        for number in sorted(range(1, len(rest) + 1), key=lambda place: -(place & -place)):  # multiples of the highest power of two first
            yield rest[number - 1]

    def _needs_of(self, key: Key) -> list[Need]:
        return [demand.need for demand in self.demands[key]]

    def _count_loss(self, key: Key) -> bool:
        """Count a lost candidate of a package; True if that lets other packages go first."""
        rank = self._order(key)
        self._losses[key] = self._losses.get(key, 0) + 1
        return self._order(key) != rank

    def _excluding(self, key: Key, others: Collection[Premise]) -> set[Need]:
        """Needs of a package that exclude candidates; at least one, so that the conflict mentions the package."""
        found = self._remaining[key].excluding()
        first = self._memory.representative(self.demands[key][0].need)
        if follows_first_need(key) or not any(premise.key == key for premise in (*found, *others)):
            found.add(first)
        return found

    def _choose(self, candidate: Candidate) -> frozenset[Premise] | None:
        """Choose a candidate of an open package; else return the premises that exclude it."""
        trail, key = self._trail, candidate.key
        trail.put(self._open, key, None)
        trail.put(self.pins, key, candidate)
        trail.put(self._held, candidate, 1)
        own: set[Premise] = {candidate}
        moved: list[Key] = []
        conflict = self._memory.violated(candidate, self._held)
        if conflict is not None:
            return conflict - own
        for need in self._universe.needs(candidate):
            own.add(self._memory.representative(need))
            before = self.demands.get(need.key, ())
            conflict = self._demand(need, candidate, moved)
            if conflict is not None:
                self.rejections.setdefault((id(candidate), need.key), Rejection(candidate, need, before))
                return conflict - own
        self._move(moved)
        self._universe.context.chosen[key] = candidate
        return None

    def _demand(self, need: Need, parent: Candidate | None, moved: list[Key]) -> frozenset[Premise] | None:
        """Add a need; else return the conflict. Packages that must be decided again are appended to `moved`."""
        trail, key, need_held = self._trail, need.key, self._memory.representative(need)
        is_new = need_held not in self._held
        trail.put(self.demands, key, (*self.demands.get(key, ()), Demand(need, parent)))
        trail.put(self._held, need_held, self._held.get(need_held, 0) + 1)
        if not is_new:
            return None
        conflict = self._memory.violated(need_held, self._held) or self._narrow(need_held)
        if conflict is not None:
            return conflict
        pin = self.pins.get(key)
        if pin is None:
            if key not in self._open:
                self._choices.prefetch(self._remaining[key].first())
            trail.put(self._open, key, True)
        elif not self._memory.accepts(need_held, pin):
            if pin is parent or self._moves.get(key, 0) >= MOVES:
                return frozenset((need_held, pin))
            moved.append(key)
        return None

    def _narrow(self, need: Need) -> frozenset[Premise] | None:
        """Apply a new need to the candidates of its package; return the conflict if none is left."""
        remaining = self._append(self._remaining.get(need.key), need)
        self._trail.put(self._remaining, need.key, remaining)
        if not remaining.is_empty():
            return None
        conflict: frozenset[Premise] = frozenset(self._excluding(need.key, ()))
        self._memory.learn(conflict)
        self.last_conflict = self.demands[need.key]
        return conflict

    def _append(self, remaining: Remaining | None, need: Need) -> Remaining:
        if remaining is None:
            return self._memory.remaining(need, lambda: iter(self._universe.unordered(need.key, [need])), self._choices.is_possible)
        return remaining.with_need(need, self._memory.accepts)

    def _move(self, keys: list[Key]) -> None:
        """Undo the choice of packages and retract its needs; packages that nothing needs any more are undone, too."""
        trail = self._trail
        changed: dict[Key, None] = {}
        while keys:
            key = keys.pop()
            pin = self.pins.get(key)
            if pin is None:
                continue
            trail.put(self.pins, key, None)
            trail.put(self._held, pin, None)
            trail.put(self._moves, key, self._moves.get(key, 0) + 1)
            if self.demands.get(key):
                trail.put(self._open, key, True)
            for need in self._universe.needs(pin):
                need_held = self._memory.representative(need)
                demands = self.demands.get(need.key, ())
                kept = tuple(demand for demand in demands if demand.need is not need or demand.parent is not pin)
                trail.put(self.demands, need.key, kept or None)
                trail.put(self._held, need_held, self._held[need_held] - 1 or None)
                changed[need.key] = None
                if not kept:
                    trail.put(self._open, need.key, None)
                    keys.append(need.key)
        for key in changed:
            remaining: Remaining | None = None
            for need in dict.fromkeys(self._memory.representative(demand.need) for demand in self.demands.get(key, ())):
                remaining = self._append(remaining, need)
            trail.put(self._remaining, key, remaining)
        avoidable_builds = [key for key in changed if key in self.pins and self._has_wheel_instead(key)]
        if avoidable_builds:
            self._move(avoidable_builds)

    def _has_wheel_instead(self, key: Key) -> bool:
        """True if a source archive is chosen and a wheel has become acceptable."""
        return self._choices.must_not_build(self.pins[key], self._choices.best_first(key, self._needs_of(key)))
