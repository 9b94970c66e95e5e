"""The six answers that resolvelib asks for, and the notes taken on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resolvelib import AbstractProvider, BaseReporter

from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, PipCandidate
from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, Key, LibrariesKey, PipKey, SlotKey, pip_key
from cudnn_resolve.resolution.package import has_wheel
from cudnn_resolve.resolution.reading import is_exact
from cudnn_resolve.resolution.release import parse_requirement

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.candidate import Need
    from cudnn_resolve.resolution.universe import Universe

_LONG = 400
"""Steps after which a search takes long."""
_OFTEN = 50
_STAGE: dict[type[Key], int] = {FrameworkKey: 1, LibrariesKey: 4, CudaKey: 5, SlotKey: 8}
"""When packages of a kind are decided; facts and what is installed at once."""


class Provider(AbstractProvider):  # type: ignore[type-arg]
    """Answers resolvelib from a universe."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._answers: dict[tuple[int, int], bool] = {}
        self.some: dict[tuple[object, ...], bool] = {}
        """Whether anything is left of a package under certain needs, as far as that was asked."""
        self.wheels: dict[tuple[object, ...], bool] = {}
        """Whether a wheel is among what is left of a package under certain needs, as far as that was asked."""
        self._stages: dict[Key, tuple[int, int, str]] = {}
        targets = sorted(universe.request.targets, key=lambda target: not universe.context.holds(target.framework))
        self._pinned = frozenset(_pinned(universe.request))
        self._order = {target.framework: number for number, target in enumerate(targets)}

    def identify(self, requirement_or_candidate: Need | Candidate) -> Key:
        """The package of the universe that a need or a candidate is about."""
        return requirement_or_candidate.key

    def get_preference(
        self,
        identifier: Key,
        resolutions: Mapping[Key, Candidate],
        candidates: Mapping[Key, Iterator[Candidate]],
        information: Mapping[Key, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> tuple[int, int, str]:
        """What is decided first.

        1. Facts, and packages that the user pins: one candidate each. 2. Frameworks, in the order in which the user named them, and
        their wheels. 3. Packages that frameworks and companions bring with code of their own. 4. The channel of the CUDA libraries,
        then CUDA.
        5. Library wheels, which know every wish by then, then cuDNN. 6. Everything else.
        """
        stage = self._stages.get(identifier)
        if stage is None:
            stage = self._stages[identifier] = self._stage(identifier)
        return stage

    def _stage(self, key: Key) -> tuple[int, int, str]:
        book, text = self._universe.book, str(key)
        if key in self._pinned:
            return 0, 1, text
        if isinstance(key, FrameworkKey):
            return 1, self._order.get(key.name, 99), text
        if isinstance(key, CudnnKey):
            return 6, 1, text
        if not isinstance(key, PipKey):
            return _STAGE.get(type(key), 0), 99, text
        framework = book.framework_of(key.name)
        if framework in self._order:
            return 1, self._order[framework], text
        if book.component(key.name) is None:
            return (9 if is_late(book, key.name) else 3), 0, text
        return (6 if key.name.startswith("nvidia-cudnn") else 7), 0, text

    def find_matches(
        self, identifier: Key, requirements: Mapping[Key, Iterator[Need]], incompatibilities: Mapping[Key, Iterator[Candidate]]
    ) -> Any:
        """Candidates that every need accepts, best first, tested one by one as they are asked for."""
        return Matches(self, identifier, tuple(requirements[identifier]), frozenset(map(id, incompatibilities[identifier])))

    def universe(self) -> Universe:
        """What the answers are about."""
        return self._universe

    def is_satisfied_by(self, requirement: Need, candidate: Candidate) -> bool:
        """True where the candidate is what the need wants; asked of the same two once."""
        key = (id(requirement), id(candidate))
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = requirement.test(candidate)
        return answer

    def get_dependencies(self, candidate: Candidate) -> Iterable[Need]:
        """What the candidate needs, facts first."""
        return self._universe.needs(candidate)


def is_late(book: Book, name: str) -> bool:
    """True for a package that is decided after the libraries: neither theirs, nor a framework's, nor built for one."""
    others = book.framework_of(name) or book.extra_releases(name) or name.startswith("jax") or book.component(name)
    return not others


def _pinned(request: Request) -> Iterator[Key]:
    """Packages that the user pins to one version: they are decided with the facts, since they leave no choice either."""
    for extra in request.extras:
        requirement = None if extra.constraint else parse_requirement(extra.text)
        if requirement is not None and is_exact(requirement.specifier):
            yield pip_key(requirement.name, requirement.extras)


class Matches(Sequence[Candidate]):
    """Candidates that every need accepts, in the order that is best when they are asked for.

    The order of library wheels depends on the CUDA that is chosen meanwhile, so it is worked out at each look, not when a need is added.
    """

    def __init__(self, provider: Provider, key: Key, needs: tuple[Need, ...], bad: frozenset[int]) -> None:
        self._provider = provider
        self._key = key
        self._needs = needs
        self._bad = bad
        self._from_index = isinstance(key, PipKey) and provider.universe().request.source is not None

    def _fits(self, candidate: Candidate) -> bool:
        if id(candidate) in self._bad or not self._accepts(candidate):
            return False
        universe = self._provider.universe()
        if isinstance(candidate, BuildCandidate):
            return not universe.look.met(candidate)
        if not self._from_index or not isinstance(candidate, PipCandidate):
            return True
        return not (universe.packages.must_not_build(candidate) and self._has_wheel())

    def _accepts(self, candidate: Candidate) -> bool:
        accepts = self._provider.is_satisfied_by
        return all(accepts(need, candidate) for need in self._needs)

    def _has_wheel(self) -> bool:
        """True where some release that every need accepts has a wheel for the machine, whatever else came of it."""
        key = (self._key, *map(id, self._needs))
        answer = self._provider.wheels.get(key)
        if answer is None:
            universe = self._provider.universe()
            found: Iterable[PipCandidate] = universe.unordered(self._key, self._needs)
            accepted = (one.release for one in found if one.release is not None and self._accepts(one))
            answer = self._provider.wheels[key] = any(has_wheel(universe.context, release) for release in accepted)
        return answer

    def __iter__(self) -> Iterator[Candidate]:
        universe = self._provider.universe()
        found = filter(self._fits, universe.candidates(self._key, self._needs))
        return universe.packages.wheels_first(found) if self._from_index else found

    def __bool__(self) -> bool:
        key = (self._key, self._bad, *map(id, self._needs))
        answer = self._provider.some.get(key)
        if answer is None:
            answer = any(map(self._fits, self._provider.universe().unordered(self._key, self._needs)))
            self._provider.some[key] = answer
        return answer

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]


class Notes(BaseReporter):  # type: ignore[type-arg]
    """Keeps what a solve turned down, and what it has chosen so far."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self.rejections: list[tuple[Candidate, Need, tuple[Any, ...]]] = []
        self.rounds = 0
        self._causes: list[Any] = []

    def starting_round(self, index: int) -> None:
        """Counts, and says now and then what a long search is torn between."""
        self.rounds = index + 1
        tell = self._universe.request.tell
        if tell is not None and index >= _LONG and index % _OFTEN == 0:
            torn = ", ".join(dict.fromkeys(need.text for need, _ in self._causes))
            tell(f"step {index}" + (f", torn between {torn}" if torn else ""))

    def resolving_conflicts(self, causes: Collection[Any]) -> None:
        """Remembers what cannot hold together at the moment."""
        self._causes = list(causes)

    def pinning(self, candidate: Candidate) -> None:
        """Remembers the choice, by which later candidates are ordered."""
        self._universe.context.chosen[candidate.key] = candidate

    def rejecting_candidate(self, criterion: Any, candidate: Candidate) -> None:
        """Remembers what a candidate met: the newest need of the criterion, which left nothing to choose, and those before it."""
        information = list(criterion.information)
        if not information:
            return
        need = information[-1].requirement
        self.rejections.append((candidate, need, tuple(information[:-1])))
