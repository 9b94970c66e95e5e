"""Memory shared by all searches in one universe: test results, remaining candidates, and learned conflicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache, cached_property
from itertools import islice

from cudnn_resolve.resolution.candidate import Candidate, LazyList, Need
from cudnn_resolve.resolution.key import Key, LibrariesKey, SlotKey

EAGER_EVERY = 100
"""Every so many needs in a chain, all candidates are tested at once: lazy evaluation nests one generator per need."""
Premise = Need | Candidate
"""Something that can hold during a search: a need that applies, or a candidate that is chosen."""


class Remaining:
    """Candidates of a package that a chain of needs leaves, evaluated lazily."""

    def __init__(
        self,
        candidates: Iterator[Candidate],
        previous: Remaining | None = None,
        need: Need | None = None,
        is_possible: Callable[[Candidate], bool] | None = None,
    ) -> None:
        self.previous = previous
        self.need = need
        self.depth: int = previous.depth + 1 if previous is not None else 0
        self._is_possible = is_possible
        self._rejected: list[Candidate] = []
        """Candidates that the need rejects, as far as they were tested."""
        self._next: dict[int, Remaining] = {}
        self._candidates = LazyList(candidates)

    def with_need(
        self, need: Need, accepts: Callable[[Need, Candidate], bool], is_possible: Callable[[Candidate], bool] | None = None
    ) -> Remaining:
        """Append a need to the chain; the slower `is_possible` is checked as late as possible."""
        known = self._next.get(id(need))
        if known is not None:
            return known
        if self.depth % EAGER_EVERY == EAGER_EVERY - 1:
            self._evaluate()

        def accepted() -> Iterator[Candidate]:
            for candidate in self._candidates:
                if not accepts(need, candidate):
                    rejected.append(candidate)
                elif is_possible is None or is_possible(candidate):
                    yield candidate

        result = self._next[id(need)] = Remaining(accepted(), self, need, is_possible)
        rejected = result._rejected
        return result

    def is_empty(self) -> bool:
        """True if no candidate is left."""
        return next(self.first(), None) is None

    def first(self) -> Iterator[Candidate]:
        """The first remaining candidate, if any."""
        return islice(self._candidates, 1)

    def excluding(self) -> set[Need]:
        """Needs of the chain that exclude a candidate which the earlier ones leave."""
        self._evaluate()
        found = set()
        remaining: Remaining | None = self
        while remaining is not None:
            if remaining.need is not None and remaining.excludes:
                found.add(remaining.need)
            remaining = remaining.previous
        return found

    @cached_property
    def excludes(self) -> bool:
        """True if the need excludes a possible candidate; only asked once all were tested."""
        return bool(self._rejected) if self._is_possible is None else any(map(self._is_possible, self._rejected))

    def _evaluate(self) -> None:
        for _ in self._candidates:
            pass


class SearchMemory:
    """Learned conflicts (sets of premises that cannot hold together), and cached tests of candidates."""

    def __init__(self) -> None:
        self._first: dict[object, Need] = {}
        self._conflicts: dict[Premise, list[frozenset[Premise]]] = {}
        self._all: dict[object, Remaining] = {}
        self.accepts: Callable[[Need, Candidate], bool] = cache(lambda need, candidate: need.test(candidate))
        """True if a need accepts a candidate; tested once for each pair."""

    def representative(self, need: Need) -> Need:
        """The first need seen of all those that accept the same candidates."""
        return need if need.test_key is None else self._first.setdefault(need.test_key, need)

    def remaining(self, need: Need, candidates: Callable[[], Iterator[Candidate]], is_possible: Callable[[Candidate], bool]) -> Remaining:
        """The possible candidates that the first need of a package leaves."""
        key: object = (need.key, id(need)) if follows_first_need(need.key) else need.key
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = Remaining(candidates())
        return found.with_need(need, self.accepts, is_possible)

    def learn(self, conflict: frozenset[Premise]) -> None:
        """Remember premises that cannot hold together."""
        for premise in conflict:
            self._conflicts.setdefault(premise, []).append(conflict)

    def violated(self, premise: Premise, held: Collection[Premise]) -> frozenset[Premise] | None:
        """A learned conflict that contains the premise and of which every premise holds; None if there is none."""
        return next((conflict for conflict in self._conflicts.get(premise, ()) if all(other in held for other in conflict)), None)


def follows_first_need(key: Key) -> bool:
    """True for a package whose candidates are defined by its first need."""
    return isinstance(key, (SlotKey, LibrariesKey))
