"""What the searches in one universe have learnt: what needs leave of packages, and which needs cannot be met together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from cudnn_resolve.resolution.candidate import Candidate, LazyList, Need
from cudnn_resolve.resolution.key import Key, LibrariesKey, SlotKey

DEEP = 100
"""Of so many needs in a row one is asked of every candidate at once: each of the others waits inside the one before it."""
Premise = Need | Candidate
"""What a search may rely on at some time: that a need holds, or that a candidate is chosen."""


class Left:
    """What some needs leave of a package, worked out as far as it is asked for."""

    def __init__(self, candidates: Iterator[Candidate], before: Left | None = None, need: Need | None = None) -> None:
        self.before = before
        self.need = need
        self._further: dict[int, Left] = {}
        self.depth: int = before.depth + 1 if before is not None else 0
        self.excludes = False
        self._candidates = LazyList(candidates)

    def with_need(
        self, need: Need, accepts: Callable[[Need, Candidate], bool], is_possible: Callable[[Candidate], bool] | None = None
    ) -> Left:
        """What one more need leaves of the candidates that are possible; which ones are is asked as late as can be, for it takes long."""
        found = self._further.get(id(need))
        if found is not None:
            return found
        if self.depth % DEEP == DEEP - 1:
            self._look_at_all()

        def accepted() -> Iterator[Candidate]:
            for candidate in self._candidates:
                if accepts(need, candidate):
                    if is_possible is None or is_possible(candidate):
                        yield candidate
                elif not after.excludes:
                    after.excludes = is_possible is None or is_possible(candidate)

        after = self._further[id(need)] = Left(accepted(), self, need)
        return after

    def is_empty(self) -> bool:
        """True where nothing is left."""
        return next(self.first(), None) is None

    def first(self) -> Iterator[Candidate]:
        """The first candidate that is left, if there is one."""
        return islice(self._candidates, 1)

    def excluding(self) -> set[Need]:
        """The needs that leave no more, each with the candidates that those before it leave."""
        self._look_at_all()
        out = set()
        node: Left | None = self
        while node is not None:
            if node.need is not None and node.excludes:
                out.add(node.need)
            node = node.before
        return out

    def _look_at_all(self) -> None:
        for _ in self._candidates:
            pass


class Lessons:
    """Premises that cannot hold together, and what needs said of candidates."""

    def __init__(self) -> None:
        self._first: dict[object, Need] = {}
        self._about: dict[Premise, list[frozenset[Premise]]] = {}
        self._answers: dict[int, dict[int, bool]] = {}
        self._every: dict[object, Left] = {}

    def named(self, need: Need) -> Need:
        """The first need that was met with of all those which accept the same candidates."""
        return need if need.alike is None else self._first.setdefault(need.alike, need)

    def accepts(self, need: Need, candidate: Candidate) -> bool:
        """True where a candidate is what a need wants; asked of the same two once."""
        answers = self._answers.get(id(need))
        if answers is None:
            answers = self._answers[id(need)] = {}
        answer = answers.get(id(candidate))
        if answer is None:
            answer = answers[id(candidate)] = need.test(candidate)
        return answer

    def left(self, need: Need, every: Callable[[], Iterator[Candidate]], is_possible: Callable[[Candidate], bool]) -> Left:
        """What the first need of a package leaves of `every` candidate that is possible."""
        key: object = (need.key, id(need)) if is_of_first(need.key) else need.key
        found = self._every.get(key)
        if found is None:
            found = self._every[key] = Left(every())
        return found.with_need(need, self.accepts, is_possible)

    def learn(self, premises: frozenset[Premise]) -> None:
        """Remember that the premises cannot hold together."""
        for one in premises:
            self._about.setdefault(one, []).append(premises)

    def violated(self, premise: Premise, held: Collection[Premise]) -> frozenset[Premise] | None:
        """Premises that cannot hold together, all of them held, and this one among them; None where there are none."""
        return next((one for one in self._about.get(premise, ()) if all(other in held for other in one)), None)


def is_of_first(key: Key) -> bool:
    """True for a package whose candidates are those that the first need of it names."""
    return isinstance(key, (SlotKey, LibrariesKey))
