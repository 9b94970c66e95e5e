"""What the machine alone forbids, known before the search: a package of which no release has a file that could ever serve it.

Looked at are the candidates that the wishes at the root leave of each package, and what the wheel of a framework's build requires in
its turn. The first candidate that nothing forbids ends the look, so that a request that has an answer pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.resolution.model import Candidate, Failure, Rejection
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.release import Release

if TYPE_CHECKING:
    from cudnn_resolve.requirement.model import Need
    from cudnn_resolve.resolution.universe import Universe


def forbidden(universe: Universe, needs: Sequence[Need]) -> Failure | None:
    """The failure of a request of which the machine forbids some package in every release; None where it forbids none."""
    by_name: dict[str, list[Need]] = {}
    for need in needs:
        if need.name.partition(":")[0] in ("framework", "pip"):
            by_name.setdefault(need.name, []).append(need)
    for name, wanted in by_name.items():
        rejections = universe.look.at(name, wanted)
        if rejections:
            return Failure(rejections=tuple(rejections), causes=(), rounds=0)
    return None


class Look:
    """What the machine forbids, asked of each candidate once."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._met: dict[int, list[Rejection]] = {}
        self._split: dict[str, tuple[list[Candidate], list[Candidate]]] = {}

    def at(self, name: str, needs: Sequence[Need]) -> list[Rejection]:
        """What the candidates that the needs leave of a package meet; empty where one of them meets nothing, or there is none."""
        out: list[Rejection] = []
        for candidate in self._universe.unordered(name, needs):
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
                known = [Rejection(candidate=candidate, about=refusal.name, need=refusal.text, because=refusal.because, against=())]
            else:
                known = next(self._required(candidate), []) if candidate.kind == "framework" else []
            self._met[id(candidate)] = known
        return known

    def all_met(self) -> Iterator[Rejection]:
        """What every build of a framework met that was looked at."""
        for rejections in self._met.values():
            yield from rejections

    def _refusals(self, candidate: Candidate) -> Iterator[Need]:
        """The needs of a candidate that a fact does not meet."""
        if candidate.kind == "framework":
            needs = self._universe.needs(candidate)
        elif candidate.kind == "pip" and isinstance(candidate.payload, Release):
            needs = file_needs(self._universe, candidate.payload, f"{candidate.payload.package} {candidate.payload.text}")
        else:
            return
        for need in needs:
            fact = self._universe.fact(need.name)
            if fact is not None and not need.test(fact):
                yield need

    def _required(self, candidate: Candidate) -> Iterator[list[Rejection]]:
        """What each package meets that a build's wheel requires, and of which every release is forbidden."""
        wheel = self._universe.build_candidate(candidate.payload)
        for need in self._universe.needs(wheel) if wheel is not None else ():
            if need.name.startswith("pip:"):
                met = self._package(need)
                if met:
                    yield met

    def _package(self, need: Need) -> list[Rejection]:
        """What the releases of a package meet that a need leaves; empty where one of them meets nothing, or there is none."""
        if need.name not in self._split:
            allowed: list[Candidate] = []
            refused: list[Candidate] = []
            for candidate in self._universe.unordered(need.name, ()):
                if not self.met(candidate):
                    allowed.append(candidate)
                    break
                refused.append(candidate)
            self._split[need.name] = (allowed, refused)
        allowed, refused = self._split[need.name]
        if allowed:
            return [] if need.test(allowed[0]) else self.at(need.name, [need])
        return [rejection for candidate in refused for rejection in self.met(candidate)]
