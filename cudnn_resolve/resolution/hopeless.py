"""What the machine alone forbids, known before the search: a package of which no release has a file that could ever serve it.

Looked at are the candidates that the wishes at the root leave of each package, and what the wheel of a framework's build requires in
its turn. The first candidate that nothing forbids ends the look, so that a request that has an answer pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from cudnn_resolve.resolution.candidate import BuildCandidate, Candidate, Need, PipCandidate
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import FrameworkKey, Key, PipKey
from cudnn_resolve.resolution.model import Failure, Rejection
from cudnn_resolve.resolution.package import PipPackages, file_needs


class Candidates(Protocol):
    """The part of a universe that is looked at."""

    context: Context
    packages: PipPackages

    def unordered(self, key: Key, needs: Sequence[Need] = ()) -> Iterable[Any]:
        """Return the candidates of a package."""

    def needs(self, candidate: Candidate) -> Iterator[Need]:
        """What a candidate needs."""

    def fact(self, key: Key) -> Candidate | None:
        """The one candidate of a fact; None for any other package."""


def forbidden(look: Look, needs: Sequence[Need]) -> Failure | None:
    """The failure of a request of which the machine forbids some package in every release; None where it forbids none."""
    by_key: dict[Key, list[Need]] = {}
    for need in needs:
        if isinstance(need.key, (FrameworkKey, PipKey)):
            by_key.setdefault(need.key, []).append(need)
    for key, wanted in by_key.items():
        rejections = look.at(key, wanted)
        if rejections:
            once = {(id(one.candidate), one.about): one for one in rejections}  # builds share what their wheels require
            return Failure(rejections=tuple(once.values()), causes=(), rounds=0)
    return None


class Look:
    """What the machine forbids, asked of each candidate once."""

    def __init__(self, universe: Candidates) -> None:
        self._universe = universe
        self._met: dict[int, list[Rejection]] = {}
        self._split: dict[Key, tuple[Candidate | None, list[Rejection]]] = {}
        """Package to the first release that nothing forbids, and what those before it meet."""
        self._of_need: dict[object, list[Rejection]] = {}
        """What is met under needs of packages, by what makes needs alike: hundreds of builds require the same."""

    def at(self, key: Key, needs: Sequence[Need]) -> list[Rejection]:
        """What the candidates that the needs leave of a package meet; empty where one of them meets nothing, or there is none."""
        out: list[Rejection] = []
        for candidate in self._universe.unordered(key, needs):
            if all(need.test(candidate) for need in needs):
                met = self.met(candidate)
                if not met:
                    return []
                out += met
        return out

    def met(self, candidate: Candidate) -> list[Rejection]:
        """What a candidate meets: facts that refuse it, or for a framework's build a package that it requires; empty where nothing."""
        known = self._met.get(id(candidate))
        if known is None:
            refusal = next(self._refusals(candidate), None)
            if refusal is not None:
                known = [Rejection(candidate=candidate, about=refusal.key, need=refusal.text, because=refusal.because, against=())]
            else:
                known = next(self._required(candidate), []) if isinstance(candidate, BuildCandidate) else []
            self._met[id(candidate)] = known
        return known

    def all_met(self) -> Iterator[Rejection]:
        """What every build of a framework met that was looked at."""
        for rejections in self._met.values():
            yield from rejections

    def _refusals(self, candidate: Candidate) -> Iterator[Need]:
        """The needs of a candidate that a fact does not meet."""
        if isinstance(candidate, BuildCandidate):
            needs = self._universe.needs(candidate)
        elif isinstance(candidate, PipCandidate) and candidate.release is not None:
            needs = file_needs(self._universe.context, candidate.release, f"{candidate.release.package} {candidate.release.text}")
        else:
            return
        for need in needs:
            fact = self._universe.fact(need.key)
            if fact is not None and not need.test(fact):
                yield need

    def _required(self, candidate: BuildCandidate) -> Iterator[list[Rejection]]:
        """What each package meets that a build's wheel requires, and of which every release is forbidden."""
        wheel = self._universe.packages.wheel_of(candidate.build)
        for need in self._universe.needs(wheel) if wheel is not None else ():
            if isinstance(need.key, PipKey):
                met = self._package(need)
                if met:
                    yield met

    def _package(self, need: Need) -> list[Rejection]:
        """What the releases of a package meet that a need leaves; empty where one of them meets nothing, or there is none."""
        if need.key not in self._split:
            allowed = None
            met: list[Rejection] = []
            for candidate in self._universe.unordered(need.key):
                if not self.met(candidate):
                    allowed = candidate
                    break
                met += self.met(candidate)
            self._split[need.key] = (allowed, met)
        allowed, met = self._split[need.key]
        if allowed is None:
            return met
        found = self._of_need.get(need.alike)
        if found is None:
            found = [] if need.test(allowed) else self.at(need.key, [need])
            if need.alike is not None:
                self._of_need[need.alike] = found
        return found
