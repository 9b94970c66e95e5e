"""The search: a candidate for each package of a universe, so that everything holds that the chosen ones need.

Packages are decided one after the other, each by its best candidate that goes with what others need of it by then. A package that is
decided and of which something else is needed afterwards is decided once more; what its old candidate needed is forgotten.

Where nothing is left of a package, the needs that led there are learnt: whatever is chosen, they cannot be met together. The search goes
back to the last decision that did not yet ask for all of them, and never asks for all of them again. So a candidate that brings the same
needs as one before it is turned down at once, and a search that fails ends with the wishes of the request that exclude one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from cudnn_resolve.resolution.candidate import Candidate, LazyList, Need
from cudnn_resolve.resolution.choice import LAST, Choices
from cudnn_resolve.resolution.key import Key
from cudnn_resolve.resolution.lessons import Left, Premise, is_of_first

if TYPE_CHECKING:
    from cudnn_resolve.resolution.universe import Universe

STRIDES_FROM = 16
"""Candidates of a package that are tried one after the other where any answer will do, before others far apart are."""
MOVES = 16
"""How often a package is decided once more before a candidate that would move it again is turned down instead."""


class Wish(NamedTuple):
    """A need, and the candidate that has it; None for the request itself."""

    need: Need
    parent: Candidate | None


class ImpossibleError(Exception):
    """No choice meets all the needs of a request; `premises` are those that exclude one another."""

    def __init__(self, premises: frozenset[Premise]) -> None:
        super().__init__()
        self.premises = premises


class TooLongError(Exception):
    """The steps of a search are used up."""


class Trail:
    """Changes of mappings, each of which can be taken back."""

    def __init__(self) -> None:
        self._changes: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, mapping: dict[Any, Any], key: object, value: object) -> None:
        """Set a value; None removes it."""
        self._changes.append((mapping, key, mapping.get(key)))
        _put(mapping, key, value)

    def mark(self) -> int:
        """The present, to come back to."""
        return len(self._changes)

    def back_to(self, mark: int) -> None:
        """Take back what was changed since."""
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
        self._lessons = universe.lessons
        self._choices = Choices(universe)
        self._trail = Trail()
        self._open: dict[Key, bool] = {}
        """Packages that something is needed of and that are not decided."""
        self._moves: dict[Key, int] = {}
        """How often a package was decided once more on the way to where the search is."""
        self._held: dict[Premise, int] = {}
        """The premises that hold at the moment, and for how many reasons."""
        self._left: dict[Key, Left] = {}
        """What the needs of a package leave of it."""
        self._lost: dict[Key, int] = {}
        """How many candidates of a package were turned down, or taken back for one of another package."""
        self._waits: dict[Key, bool] = {}
        """Packages that are decided after all others, since what others need of them may leave only archives, which are built then."""
        self.pins: dict[Key, Candidate] = {}
        self.wishes: dict[Key, tuple[Wish, ...]] = {}
        self.rejections: dict[tuple[int, Key], tuple[Candidate, Need, tuple[Wish, ...]]] = {}
        """Each candidate that was turned down, with the need that was too much and what was wanted of the same package before."""
        self.torn: tuple[Wish, ...] = ()
        """What was wanted of the last package of which nothing was left."""
        self.rounds = 0

    def run(self, needs: Iterable[Need], rounds: int) -> None:
        """Decide every package; afterwards `pins` and `wishes` are the answer. ImpossibleError or TooLongError where there is none."""
        for need in needs:
            reason = self._want(need, None, [])
            if reason is not None:
                raise ImpossibleError(reason)
        tell = self._universe.request.tell
        marks: list[int] = []
        decided: list[Key] = []
        while self._open:
            if self.rounds == rounds:
                raise TooLongError
            self.rounds += 1
            if tell is not None:
                tell(self._at)
            marks.append(self._trail.mark())
            decided.append(min(self._open, key=self._order))
            reason = self._decide(decided[-1])
            while reason is not None and all(premise in self._held for premise in reason):
                if not marks:
                    raise ImpossibleError(reason)
                self._trail.back_to(marks.pop())
                self._lose(decided.pop())

    def _at(self) -> str:
        """What the search is torn between."""
        torn = ", ".join(dict.fromkeys(wish.need.text for wish in self.torn))
        return torn and f"torn between {torn}"

    def _order(self, key: Key) -> tuple[bool, int, int, int, str]:
        stage, *rest = self._choices.stage(key)
        lost = self._lost.get(key, 0) if stage == LAST else 0  # others go first after 16 losses, and again after 64, 256 …
        return key in self._waits, stage, max(lost.bit_length() - 3, 0) // 2, *rest  # type: ignore[return-value]

    def _decide(self, key: Key) -> frozenset[Premise] | None:
        """Choose the best candidate that goes with the rest; else the premises that leave none. None, too, where it is put off."""
        reasons: set[Premise] = set()
        passed_over = False
        candidates = LazyList(self._in_turn(key))
        for number, candidate in enumerate(candidates):
            if self._choices.must_not_build(candidate, candidates):
                reasons.update(self._lessons.named(wish.need) for wish in self.wishes[key])  # without them there are more wheels, not fewer
                passed_over = True
                continue
            if number & (number - 1) == 0:
                self._choices.prefetch(islice(candidates, number, number * 4))
            mark = self._trail.mark()
            reason = self._choose(candidate)
            if reason is None:
                return None
            self._trail.back_to(mark)
            reasons |= reason
            if self._lose(key) and min(self._open, key=self._order) != key:
                return None
        if passed_over and key not in self._waits and not self._waits.keys() >= self._open.keys() - {key}:
            self._trail.put(self._waits, key, True)
            return None
        reasons |= self._excluding(key, reasons)
        learnt = frozenset(reasons)
        self._lessons.learn(learnt)
        return learnt

    def _in_turn(self, key: Key) -> Iterator[Candidate]:
        """The candidates of a package as they are tried: best first; where any answer will do, the first few, and then far apart."""
        candidates = self._choices.best_first(key, [wish.need for wish in self.wishes[key]])
        if not self._universe.request.any_answer or self._choices.stage(key)[0] != LAST:
            yield from candidates
            return
        yield from islice(candidates, STRIDES_FROM)
        rest = list(candidates)
        for number in sorted(range(1, len(rest) + 1), key=lambda one: -(one & -one)):  # the multiples of the highest power of two first
            yield rest[number - 1]

    def _lose(self, key: Key) -> bool:
        """Count a candidate of a package that was turned down; True where that lets others go before it."""
        rank = self._order(key)
        self._lost[key] = self._lost.get(key, 0) + 1
        return self._order(key) != rank

    def _excluding(self, key: Key, others: Collection[Premise]) -> set[Need]:
        """The needs of a package that exclude all but what they leave; at least one, so that it comes of it that there is a choice."""
        out = self._left[key].excluding()
        first = self._lessons.named(self.wishes[key][0].need)
        if is_of_first(key) or not any(one.key == key for one in (*out, *others)):
            out.add(first)
        return out

    def _choose(self, candidate: Candidate) -> frozenset[Premise] | None:
        """Choose a candidate of a package that is not decided; else the premises that exclude it."""
        trail, key = self._trail, candidate.key
        trail.put(self._open, key, None)
        trail.put(self.pins, key, candidate)
        trail.put(self._held, candidate, 1)
        brought: set[Premise] = {candidate}
        moved: list[Key] = []
        reason = self._lessons.violated(candidate, self._held)
        if reason is not None:
            return reason - brought
        for need in self._universe.needs(candidate):
            brought.add(self._lessons.named(need))
            before = self.wishes.get(need.key, ())
            reason = self._want(need, candidate, moved)
            if reason is not None:
                self.rejections.setdefault((id(candidate), need.key), (candidate, need, before))
                return reason - brought
        self._move(moved)
        self._universe.context.chosen[key] = candidate
        return None

    def _want(self, need: Need, parent: Candidate | None, moved: list[Key]) -> frozenset[Premise] | None:
        """Ask for what a need wants; else the premises that cannot hold together then. `moved` takes the packages to be decided again."""
        trail, key, named = self._trail, need.key, self._lessons.named(need)
        is_new = named not in self._held
        trail.put(self.wishes, key, (*self.wishes.get(key, ()), Wish(need, parent)))
        trail.put(self._held, named, self._held.get(named, 0) + 1)
        if not is_new:
            return None
        reason = self._lessons.violated(named, self._held) or self._emptied(named)
        if reason is not None:
            return reason
        pin = self.pins.get(key)
        if pin is None:
            if key not in self._open:
                self._choices.prefetch(self._left[key].first())
            trail.put(self._open, key, True)
        elif not self._lessons.accepts(named, pin):
            if pin is parent or self._moves.get(key, 0) >= MOVES:
                return frozenset((named, pin))
            moved.append(key)
        return None

    def _emptied(self, named: Need) -> frozenset[Premise] | None:
        """The needs of a package that leave none of its candidates, with a new one; None where they leave one."""
        left = self._with(self._left.get(named.key), named)
        self._trail.put(self._left, named.key, left)
        if not left.is_empty():
            return None
        reason: frozenset[Premise] = frozenset(self._excluding(named.key, ()))
        self._lessons.learn(reason)
        self.torn = self.wishes[named.key]
        return reason

    def _with(self, left: Left | None, need: Need) -> Left:
        if left is None:
            return self._lessons.left(need, lambda: iter(self._universe.unordered(need.key, [need])), self._choices.is_possible)
        return left.with_need(need, self._lessons.accepts)

    def _move(self, keys: list[Key]) -> None:
        """Take back the choice of packages, with all that it needed; what nobody needs any more goes with them."""
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
            if self.wishes.get(key):
                trail.put(self._open, key, True)
            for need in self._universe.needs(pin):
                named = self._lessons.named(need)
                left = tuple(wish for wish in self.wishes.get(need.key, ()) if wish.need is not need or wish.parent is not pin)
                trail.put(self.wishes, need.key, left or None)
                trail.put(self._held, named, self._held[named] - 1 or None)
                changed[need.key] = None
                if not left:
                    trail.put(self._open, need.key, None)
                    keys.append(need.key)
        for key in changed:
            found: Left | None = None
            for named in dict.fromkeys(self._lessons.named(wish.need) for wish in self.wishes.get(key, ())):
                found = self._with(found, named)
            trail.put(self._left, key, found)
        built = [key for key in changed if key in self.pins and self._is_built_in_vain(key)]
        if built:
            self._move(built)

    def _is_built_in_vain(self, key: Key) -> bool:
        """True where an archive is chosen though a wheel is left by now."""
        return self._choices.must_not_build(self.pins[key], self._choices.best_first(key, [wish.need for wish in self.wishes[key]]))
