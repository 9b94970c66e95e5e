"""Families: the CUDA and cuDNN majors that a set of frameworks could share.

Frameworks of one process share one CUDA major and one cuDNN major wherever that can be had, whether their libraries come from outside
or inside their wheels. There are only a handful of pairs, and within one every target keeps few builds; a search that has to find the
majors on the way tries each release of each framework against each of every other. So each pair is solved by itself, and the answers are
compared in the order of preference.

Two cuDNN majors are taken where one cannot be had: their files have names of their own, and images run so (one cuDNN inside a wheel or of
what is installed, the other beside it). Two CUDA majors are not: `libcurand.so.10` and `libcusolver.so.11` have one name in both, and
nobody has seen that it works.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.candidate import BuildCandidate, Need
from cudnn_resolve.resolution.channel import MAJORS, component_package, is_installed
from cudnn_resolve.resolution.framework import is_vague
from cudnn_resolve.resolution.hopeless import forbidden
from cudnn_resolve.resolution.key import CUDA, FrameworkKey
from cudnn_resolve.resolution.model import Cause, Failure
from cudnn_resolve.resolution.solve import ROUNDS, Solved, build_of, cuda_of, solve

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Target
    from cudnn_resolve.resolution.universe import Universe

FEW = 300
"""Steps of a search that is known to fail, and runs only to see what clashes."""


class Family(NamedTuple):
    """The majors that builds share; None = any, as for a build without GPU, which stands in every family."""

    cuda: int | None
    cudnn: int | None


class Choice(NamedTuple):
    """A build that a target accepts."""

    build: Build
    place: int
    """Its place in the order of preference of the framework's builds."""
    own: Family
    """Majors of its libraries."""
    installed: bool
    release: int
    """The place of the first build of its release: where several of one release are apart by their index and their CUDA alone."""

    @property
    def is_elsewhere(self) -> bool:
        """True where it comes from an index that the user has not configured."""
        return self.build.index != "default" and not self.installed

    def belongs(self, family: Family, *, mixed: bool) -> bool:
        """True where the build could stand in an environment of the family; `mixed`: one with a cuDNN of its own could, too."""
        separate = mixed and (self.installed or self.build.delivery == "bundled")
        return _agree(Family(self.own.cuda, None) if separate else self.own, family)


class Group(NamedTuple):
    """One search: a family, and whether builds with a cuDNN of another major may join; no family = only what is installed."""

    family: Family | None
    mixed: bool

    def takes(self, choice: Choice) -> bool:
        """True where a build may be chosen in this search."""
        if self.family is None:
            return choice.installed or choice.own.cuda is None
        return choice.belongs(self.family, mixed=self.mixed)


def solve_families(universe: Universe, needs: Sequence[Need], rounds: int = ROUNDS) -> Solved | Failure:
    """The best consistent choice over all families, or what stood in the way."""
    failure = forbidden(universe.look, needs)
    if failure is not None:
        return failure
    targets = universe.request.targets
    alone = not targets or (len(targets) == 1 and _wheels_major(universe) is None)
    if alone or universe.request.device == "cpu":
        return solve(universe, needs, rounds)
    each = [_choices(universe, target) for target in targets]
    found = _groups(each)
    if not found:
        answer = solve(universe, needs, min(rounds, FEW))
        return answer if isinstance(answer, Failure) else Failure(rejections=(), causes=(), rounds=answer.rounds)
    best: tuple[tuple[int, ...], Solved] | None = None
    failures: list[Failure] = []
    for bound, _, group in sorted((_bound(universe, group, each), number, group) for number, group in enumerate(found)):
        if best is not None and best[0] <= bound:
            break  # nothing that follows can be better
        answer = solve(universe, [*needs, *_group_needs(universe, group, each)], rounds)
        if isinstance(answer, Failure):
            failures.append(answer)
            continue
        key = _preference(universe, answer, each)
        if best is None or key < best[0]:
            best = key, answer
    return best[1] if best is not None else _merged(failures)


def _choices(universe: Universe, target: Target) -> list[Choice]:
    """The builds that a target accepts, best first."""
    first: dict[tuple[object, ...], int] = {}
    out = []
    for place, build in enumerate(one.build for one in universe.unordered(FrameworkKey(target.framework))):
        installed = is_installed(universe.context, build)
        locked = universe.request.preferences.get(build.package) == build.wheel_version
        release = first.setdefault((build.version, is_vague(build), installed, locked), place)
        if accepts(target, build, universe.book):
            out.append(Choice(build, place, _own(build), installed, release))
    return out


def _groups(each: Sequence[Sequence[Choice]]) -> list[Group]:
    """The searches in which every target has a build: one major of each first, the newest majors first."""
    owns = {choice.own for choices in each for choice in choices}
    families = sorted({own for own in owns if own.cuda is not None} or owns, key=lambda one: (-(one.cuda or 0), -(one.cudnn or 0)))
    out = [Group(family, mixed=False) for family in families]
    if len(each) > 1:
        out += [group for family in families if (group := Group(family, mixed=True)).family and _gains(group, each)]
        out.append(Group(None, mixed=True))
    kept = [group for group in out if all(any(map(group.takes, choices)) for choices in each)]
    strict = {group.family for group in kept if not group.mixed}
    return [group for group in kept if group.mixed or group.family is None or group.family not in _narrow(strict)]


def _gains(group: Group, each: Sequence[Sequence[Choice]]) -> bool:
    """True where a mixed search may take a build that the one with one major of each may not."""
    assert group.family is not None
    family = group.family
    return any(group.takes(choice) and not choice.belongs(family, mixed=False) for choices in each for choice in choices)


def _narrow(families: Iterable[Family | None]) -> set[Family]:
    """The families that another one includes: CUDA 12 without cuDNN is part of CUDA 12 with any."""
    known = [family for family in families if family is not None]
    wide = {family.cuda for family in known if family.cudnn is not None}
    return {family for family in known if family.cudnn is None and family.cuda in wide}


def apart(universe: Universe) -> list[Cause]:
    """The pairs of targets whose builds share no majors, in words."""
    out = []
    each = [(target, {choice.own for choice in _choices(universe, target)}) for target in universe.request.targets]
    for number, (target, own) in enumerate(each):
        for other, others in each[number + 1 :]:
            if own and others and not any(_agree(one, two) for one in own for two in others):
                because = f"{other.text} needs {_words(others)}, and frameworks of one environment share both majors"
                out.append(Cause(what=f"{target.text} needs {_words(own)}", because=because))
    return out


def _words(families: set[Family]) -> str:
    """`CUDA 12 with cuDNN 9 or CUDA 11 with cuDNN 9`."""
    ordered = sorted(families, key=lambda family: (family.cuda or 0, family.cudnn or 0), reverse=True)
    return " or ".join(f"CUDA {one.cuda}" + (f" with cuDNN {one.cudnn}" if one.cudnn else "") for one in ordered)


def _agree(one: Family, other: Family) -> bool:
    """True where builds of both could stand in one environment."""
    if one.cuda is None or other.cuda is None:
        return True
    return one.cuda == other.cuda and (one.cudnn == other.cudnn or one.cudnn is None or other.cudnn is None)


def _group_needs(universe: Universe, group: Group, each: Sequence[Sequence[Choice]]) -> list[Need]:
    family = group.family
    if family is None:
        text = "an installed build"
    else:
        text = f"a build for CUDA {family.cuda}" + (f" and cuDNN {family.cudnn}" if family.cudnn else "")
    because = "the frameworks of one environment share them"
    out = []
    for target, choices in zip(universe.request.targets, each, strict=True):
        taken = {id(choice.build) for choice in choices if group.takes(choice)}

        def test(candidate: BuildCandidate, taken: set[int] = taken) -> bool:
            return id(candidate.build) in taken

        out.append(Need(FrameworkKey(target.framework), test, text, because, divides=True))
    return out


def _preference(universe: Universe, answer: Solved, each: Sequence[Sequence[Choice]]) -> tuple[int, ...]:
    """How far an answer is from the best: smaller is better.

    Installed targets that would change; then majors of CUDA and cuDNN beyond one of each; then library wheels of another CUDA major that
    would have to go, on which other installed packages live; then the place of each target's release in its order of preference, the first
    target counting most; then how many of them come from an index that the user has not configured; then the places of the builds.
    """
    chosen = []
    for target, choices in zip(universe.request.targets, each, strict=True):
        build = build_of(answer.pins, target.framework)
        chosen.append(next(choice for choice in choices if choice.build is build))
    builds = [choice.build for choice in chosen]
    changed = sum(universe.context.holds(one.build.framework) and not one.installed for one in chosen)
    return changed, _beyond_one([one.own for one in chosen]), int(_replaces(universe, answer, builds)), *_places(chosen)


def _places(chosen: Sequence[Choice]) -> tuple[int, ...]:
    """The places of releases, the number of further indexes, and the places of builds."""
    return *(one.release for one in chosen), sum(one.is_elsewhere for one in chosen), *(one.place for one in chosen)


def _replaces(universe: Universe, answer: Solved, builds: Sequence[Build]) -> bool:
    """True where an answer leaves the CUDA major of the installed library wheels for another one that pip brings."""
    major = _wheels_major(universe)
    if major is None:
        return False
    cuda = cuda_of(answer.pins, CUDA)
    if cuda is not None and cuda.channel == "pip" and cuda.cuda.major != major:
        return True
    new = (build for build in builds if build.delivery == "bundled" and not is_installed(universe.context, build))
    return any(build.cuda is not None and build.cuda.major != major for build in new)


def _beyond_one(builds: Sequence[Family]) -> int:
    """How many majors of CUDA and of cuDNN there are beyond one of each."""
    cuda, cudnn = {one.cuda for one in builds} - {None}, {one.cudnn for one in builds} - {None}
    return max(len(cuda) - 1, 0) + max(len(cudnn) - 1, 0)


def _bound(universe: Universe, group: Group, each: Sequence[Sequence[Choice]]) -> tuple[int, ...]:
    """The best that `_preference` could say of an answer of a search: each target in the first release, and of that build, it has there."""
    chosen = []
    for choices in each:
        taken = [choice for choice in choices if group.takes(choice)]
        chosen.append(min(taken, key=lambda one: (one.release, one.is_elsewhere, one.place)))
    major = _wheels_major(universe)
    family = group.family
    return 0, 0, int(major is not None and family is not None and family.cuda not in (None, major)), *_places(chosen)


def _own(build: Build) -> Family:
    return Family(build.cuda.major if build.cuda else None, build.cudnn.major if build.cudnn else None)


def _wheels_major(universe: Universe) -> int | None:
    """CUDA major of the installed cuDNN wheel, where what is installed is preferred."""
    if universe.request.prefer != "installed":
        return None
    for major in MAJORS:
        if component_package(universe.book, "cudnn", major) in universe.machine.pip:
            return major
    return None


def _merged(failures: Sequence[Failure]) -> Failure:
    return Failure(
        rejections=tuple(rejection for failure in failures for rejection in failure.rejections),
        causes=tuple(cause for failure in failures for cause in failure.causes),
        rounds=sum(failure.rounds for failure in failures),
        core=frozenset().union(*(failure.core for failure in failures)) if all(failure.core for failure in failures) else frozenset(),
        exhausted=any(failure.exhausted for failure in failures),
    )
