"""What may be chosen of each package of a universe, and which package is decided first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.requirement.target import is_exact
from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, PipCandidate
from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, Key, LibrariesKey, PipKey, SlotKey, pip_key
from cudnn_resolve.resolution.package import has_wheel
from cudnn_resolve.resolution.release import parse_requirement

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.candidate import Need
    from cudnn_resolve.resolution.release import Release
    from cudnn_resolve.resolution.universe import Universe

_STAGE: dict[type[Key], int] = {FrameworkKey: 1, LibrariesKey: 4, CudaKey: 5, SlotKey: 8}
"""When packages of a kind are decided; facts and what is installed at once."""
LAST = 9
"""The stage of packages that nothing is ordered by."""


class Choices:
    """The candidates that needs leave of each package, and the order in which packages are decided."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._stages: dict[Key, tuple[int, int, str]] = {}
        self._from_index = universe.request.source is not None
        targets = sorted(universe.request.targets, key=lambda target: not universe.context.holds(target.framework))
        self._pinned = frozenset(_pinned(universe.request))
        self._order = {target.framework: number for number, target in enumerate(targets)}

    def stage(self, key: Key) -> tuple[int, int, str]:
        """What is decided first.

        1. Facts, and packages that the user pins: one candidate each. 2. Frameworks, in the order in which the user named them, and
        their wheels. 3. Packages that frameworks and companions bring with code of their own. 4. The channel of the CUDA libraries,
        then CUDA.
        5. Library wheels, which know every wish by then, then cuDNN. 6. Everything else.
        """
        stage = self._stages.get(key)
        if stage is None:
            stage = self._stages[key] = self._stage(key)
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
            return (LAST if is_late(book, key.name) else 3), 0, text
        return (6 if key.name.startswith("nvidia-cudnn") else 7), 0, text

    def is_possible(self, candidate: Candidate) -> bool:
        """True for a candidate that the machine does not forbid."""
        return not isinstance(candidate, BuildCandidate) or not self._universe.look.met(candidate)

    def best_first(self, key: Key, needs: Sequence[Need]) -> Iterator[Candidate]:
        """The candidates that the needs leave, best first; source archives last."""
        accepts = self._universe.lessons.accepts
        accepted = (one for one in self._universe.candidates(key, needs) if all(accepts(need, one) for need in needs))
        found = filter(self.is_possible, accepted)
        return self._universe.packages.wheels_first(found) if self._from_index and isinstance(key, PipKey) else found

    def must_not_build(self, candidate: Candidate, others: Iterable[Candidate]) -> bool:
        """True for a source archive of compiled code, where some other candidate has a wheel for the machine, whatever came of that."""
        if not self._from_index or not isinstance(candidate, PipCandidate) or not self._universe.packages.must_not_build(candidate):
            return False
        return next(self._of_wheels(others), None) is not None

    def prefetch(self, candidates: Iterator[Candidate]) -> None:
        """Ask the indexes for the metadata of candidates ahead of need."""
        if self._from_index:
            for release in self._of_wheels(candidates):
                self._universe.context.metadata.prefetch_metadata(release)

    def _of_wheels(self, candidates: Iterable[Candidate]) -> Iterator[Release]:
        """The releases among candidates that have a wheel which the machine can use."""
        releases = (one.release for one in candidates if isinstance(one, PipCandidate))
        return (one for one in releases if one is not None and has_wheel(self._universe.context, one))


def is_late(book: Book, name: str) -> bool:
    """True for a package that is decided after the libraries: neither theirs, nor a framework's, nor built for one."""
    others = book.framework_of(name) or book.extra_releases(name) or name.startswith("jax") or book.component(name)
    return not others


def _pinned(request: Request) -> Iterator[Key]:
    """Packages that the user pins to one version: they are decided with the facts, since they leave no choice either."""
    for extra in request.requirements:
        requirement = None if extra.constraint else parse_requirement(extra.text)
        if requirement is not None and is_exact(requirement.specifier):
            yield pip_key(requirement.name, requirement.extras)
