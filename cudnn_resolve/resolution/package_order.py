"""Order of decisions: which package is decided next, and which of its candidates are left to try, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.target import is_exact
from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, Need, PipCandidate
from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, Key, LibrariesKey, PipKey, SlotKey, pip_key
from cudnn_resolve.resolution.package import has_wheel
from cudnn_resolve.resolution.release import Release
from cudnn_resolve.resolution.universe import Universe

_STAGE: dict[type[Key], int] = {FrameworkKey: 1, LibrariesKey: 4, CudaKey: 5, SlotKey: 8}
"""Stage of each kind of package; facts and installed frameworks come first."""
LAST = 9
"""Stage of all packages without a stage of their own."""


class Choices:
    """The order of decisions and of candidates in a universe."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._has_index = universe.request.source is not None
        targets = sorted(universe.request.targets, key=lambda target: not universe.context.is_present(target.framework))
        self._pinned = frozenset(_pinned(universe.request))
        self._order = {target.framework: number for number, target in enumerate(targets)}
        self.stage: Callable[[Key], tuple[int, int, str]] = cache(self._stage)
        """Sort key for the order of decisions."""

    def _stage(self, key: Key) -> tuple[int, int, str]:
        """Order of decisions.

        1. Facts, and packages that the user pins: they have one candidate each.
        2. Frameworks, in the order in which the user named them, and their wheels.
        3. Packages with framework code that frameworks and companions require.
        4. The channel of the CUDA libraries, then CUDA.
        5. cuDNN and library wheels, once all needs on them are known.
        6. Everything else.
        """
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
            return (LAST if is_decided_late(book, key.name) else 3), 0, text
        return (6 if key.name.startswith("nvidia-cudnn") else 7), 0, text

    def is_possible(self, candidate: Candidate) -> bool:
        """True for a candidate that the machine does not reject."""
        return not isinstance(candidate, BuildCandidate) or not self._universe.machine_filter.rejections(candidate)

    def best_first(self, key: Key, needs: Sequence[Need]) -> Iterator[Candidate]:
        """Candidates that the needs leave, best first; source archives last."""
        accepts = self._universe.memory.accepts
        candidates = self._universe.candidates(key, needs)
        accepted = (candidate for candidate in candidates if all(accepts(need, candidate) for need in needs))
        possible = filter(self.is_possible, accepted)
        return self._universe.packages.wheels_first(possible) if self._has_index and isinstance(key, PipKey) else possible

    def must_not_build(self, candidate: Candidate, others: Iterable[Candidate]) -> bool:
        """True for a source archive of compiled code, if another candidate, rejected or not, has a wheel for the machine."""
        if not self._has_index or not isinstance(candidate, PipCandidate) or not self._universe.packages.must_not_build(candidate):
            return False
        return next(self._with_wheel(others), None) is not None

    def prefetch(self, candidates: Iterator[Candidate]) -> None:
        """Start to request the metadata of candidates from the indexes."""
        if self._has_index:
            for release in self._with_wheel(candidates):
                self._universe.context.metadata.prefetch_metadata(release)

    def _with_wheel(self, candidates: Iterable[Candidate]) -> Iterator[Release]:
        """Releases of the candidates that have a wheel for the machine."""
        releases = (candidate.release for candidate in candidates if isinstance(candidate, PipCandidate))
        return (release for release in releases if release is not None and has_wheel(self._universe.context, release))


def is_decided_late(book: Book, name: str) -> bool:
    """True for a package decided after the libraries: neither one of them, nor of a framework, nor built for one."""
    is_early = book.framework_of(name) or book.extra_releases(name) or name.startswith("jax") or book.component(name)
    return not is_early


def _pinned(request: Request) -> Iterator[Key]:
    """Packages that the user pins to one version; like facts, they leave no choice."""
    for line in request.requirements:
        if not line.constraint and is_exact(line.requirement.specifier):
            yield pip_key(line.name, line.requirement.extras)
