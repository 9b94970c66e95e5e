"""Families: the pairs of CUDA and cuDNN majors that a set of frameworks can share.

Frameworks of one process share a CUDA major and a cuDNN major if possible, whether their libraries come from outside or inside their
wheels. There are only a handful of pairs, and each leaves few builds of every target; a search that had to find the majors itself
would try each release of each framework against each of every other. So each pair is searched separately, and the answers are compared
in the order of preference.

Two cuDNN majors are accepted as a fallback: their files have different names, and images run so (one cuDNN inside a wheel or of an
installed framework, the other next to it). Two CUDA majors are not: `libcurand.so.10` and `libcusolver.so.11` have the same name in
both, and no such environment is known to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.model import Target
from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.candidate import BuildCandidate, Need
from cudnn_resolve.resolution.channel import CUDA_MAJORS, component_package, is_installed
from cudnn_resolve.resolution.framework import is_vague
from cudnn_resolve.resolution.key import CUDA, FrameworkKey
from cudnn_resolve.resolution.model import Cause, Failure
from cudnn_resolve.resolution.solve import Solved, build_of, cuda_of, solve
from cudnn_resolve.resolution.universe import Universe

_FAILING_ROUNDS = 300
"""Steps of a search that must fail and runs only to collect clashes."""


class Family(NamedTuple):
    """The majors that builds share; None = any, as for a CPU build, which fits every family."""

    cuda: int | None
    cudnn: int | None

    @classmethod
    def of(cls, build: Build) -> Family:
        """The majors of a build's libraries."""
        return cls(build.cuda.major if build.cuda else None, build.cudnn.major if build.cudnn else None)

    def agrees(self, other: Family) -> bool:
        """True if builds of both families can share an environment."""
        if self.cuda is None or other.cuda is None:
            return True
        return self.cuda == other.cuda and (self.cudnn == other.cudnn or self.cudnn is None or other.cudnn is None)


class Choice(NamedTuple):
    """A build that a target accepts."""

    build: Build
    place: int
    """Its rank among the framework's builds."""
    family: Family
    installed: bool
    release: int
    """The rank of the first build of its release, of which several may differ in their index and their CUDA."""

    @property
    def is_elsewhere(self) -> bool:
        """True if it comes from an index that the user has not configured."""
        return self.build.index != "default" and not self.installed

    def belongs(self, family: Family, *, mixed: bool) -> bool:
        """True if the build fits an environment of the family; with `mixed` it may have its own cuDNN."""
        has_own_cudnn = mixed and (self.installed or self.build.delivery == "bundled")
        return (Family(self.family.cuda, None) if has_own_cudnn else self.family).agrees(family)


TargetChoices = Sequence[Sequence[Choice]]
"""For each target its choices, best first."""


class Group(NamedTuple):
    """A search: a family, and whether builds with a cuDNN of another major may join; no family = only installed builds."""

    family: Family | None
    mixed: bool

    def takes(self, choice: Choice) -> bool:
        """True if a build may be chosen in this search."""
        if self.family is None:
            return choice.installed or choice.family.cuda is None
        return choice.belongs(self.family, mixed=self.mixed)


def solve_families(universe: Universe, needs: Sequence[Need], rounds: int) -> Solved | Failure:
    """The best consistent choice over all families, or why there is none."""
    failure = universe.machine_filter.failure(needs)
    if failure is not None:
        return failure
    targets = universe.request.targets
    has_one_family = not targets or (len(targets) == 1 and _installed_major(universe) is None)
    if has_one_family or universe.request.device == "cpu":
        return solve(universe, needs, rounds)
    choices = [_choices_of(universe, target) for target in targets]
    groups = _groups(choices)
    if not groups:
        answer = solve(universe, needs, min(rounds, _FAILING_ROUNDS))
        return answer if isinstance(answer, Failure) else Failure(rejections=(), causes=(), rounds=answer.rounds)
    best: tuple[tuple[int, ...], Solved] | None = None
    failures: list[Failure] = []
    for bound, _, group in sorted((_bound(universe, group, choices), number, group) for number, group in enumerate(groups)):
        if best is not None and best[0] <= bound:
            break  # no later group can be better
        answer = solve(universe, [*needs, *_group_needs(universe, group, choices)], rounds)
        if isinstance(answer, Failure):
            failures.append(answer)
            continue
        cost = _cost(universe, answer, choices)
        if best is None or cost < best[0]:
            best = cost, answer
    return best[1] if best is not None else _merge(failures)


def _choices_of(universe: Universe, target: Target) -> list[Choice]:
    """Builds that a target accepts, best first."""
    first: dict[tuple[object, ...], int] = {}
    choices = []
    for place, build in enumerate(candidate.build for candidate in universe.unordered(FrameworkKey(target.framework))):
        installed = is_installed(universe.context, build)
        locked = universe.request.preferences.get(build.package) == build.wheel_version
        release = first.setdefault((build.version, is_vague(build), installed, locked), place)
        if accepts(target, build, universe.book):
            choices.append(Choice(build, place, Family.of(build), installed, release))
    return choices


def _groups(choices: TargetChoices) -> list[Group]:
    """Searches in which every target has a build: those with one major of each first, newest majors first."""
    every = {choice.family for of_target in choices for choice in of_target}
    with_cuda = {family for family in every if family.cuda is not None}
    families = sorted(with_cuda or every, key=lambda family: (-(family.cuda or 0), -(family.cudnn or 0)))
    groups = [Group(family, mixed=False) for family in families]
    if len(choices) > 1:
        groups += [Group(family, mixed=True) for family in families if _gains_from_mixing(family, choices)]
        groups.append(Group(None, mixed=True))
    groups = [group for group in groups if all(any(map(group.takes, of_target)) for of_target in choices)]
    redundant = _included({group.family for group in groups if not group.mixed})
    return [group for group in groups if group.mixed or group.family not in redundant]


def _gains_from_mixing(family: Family, choices: TargetChoices) -> bool:
    """True if a mixed search accepts a build that the unmixed one does not."""
    return any(
        choice.belongs(family, mixed=True) and not choice.belongs(family, mixed=False) for of_target in choices for choice in of_target
    )


def _included(families: Iterable[Family | None]) -> set[Family]:
    """Families that another one includes: CUDA 12 without cuDNN is part of CUDA 12 with any."""
    known = [family for family in families if family is not None]
    with_cudnn = {family.cuda for family in known if family.cudnn is not None}
    return {family for family in known if family.cudnn is None and family.cuda in with_cudnn}


def disjoint_targets(universe: Universe) -> list[Cause]:
    """Causes for each pair of targets whose builds share no majors."""
    causes = []
    families = [(target, {choice.family for choice in _choices_of(universe, target)}) for target in universe.request.targets]
    for (target, own), (other, others) in combinations(families, 2):
        if own and others and not any(left.agrees(right) for left in own for right in others):
            because = f"{other.text} needs {_describe(others)}, and frameworks of one environment share both majors"
            causes.append(Cause(what=f"{target.text} needs {_describe(own)}", because=because))
    return causes


def _describe(families: set[Family]) -> str:
    """`CUDA 12 with cuDNN 9 or CUDA 11 with cuDNN 9`."""
    ordered = sorted(families, key=lambda family: (family.cuda or 0, family.cudnn or 0), reverse=True)
    return " or ".join(f"CUDA {family.cuda}" + (f" with cuDNN {family.cudnn}" if family.cudnn else "") for family in ordered)


def _group_needs(universe: Universe, group: Group, choices: TargetChoices) -> list[Need]:
    family = group.family
    if family is None:
        text = "an installed build"
    else:
        text = f"a build for CUDA {family.cuda}" + (f" and cuDNN {family.cudnn}" if family.cudnn else "")
    needs = []
    for target, of_target in zip(universe.request.targets, choices, strict=True):
        taken = {id(choice.build) for choice in of_target if group.takes(choice)}

        def test(candidate: BuildCandidate, taken: set[int] = taken) -> bool:
            return id(candidate.build) in taken

        needs.append(Need(FrameworkKey(target.framework), test, text, "frameworks of one environment share both majors", divides=True))
    return needs


def _cost(universe: Universe, answer: Solved, choices: TargetChoices) -> tuple[int, ...]:
    """Sort key of an answer, smaller is better.

    Installed targets that change; then majors of CUDA and cuDNN beyond one of each; then whether library wheels of another CUDA major are
    replaced, which other installed packages may use; then the rank of each target's release, the first target counting most; then how many
    come from an index that the user has not configured; then the ranks of the builds.
    """
    chosen = []
    for target, of_target in zip(universe.request.targets, choices, strict=True):
        build = build_of(answer.pins, target.framework)
        chosen.append(next(choice for choice in of_target if choice.build is build))
    changed = sum(universe.context.is_present(choice.build.framework) and not choice.installed for choice in chosen)
    extra_majors = _extra_majors([choice.family for choice in chosen])
    return changed, extra_majors, int(_replaces_wheels(universe, answer, chosen)), *_ranks(chosen)


def _bound(universe: Universe, group: Group, choices: TargetChoices) -> tuple[int, ...]:
    """Lower bound of `_cost` in a group: each target in its best release there, and the best build of that."""
    chosen = []
    for of_target in choices:
        taken = [choice for choice in of_target if group.takes(choice)]
        chosen.append(min(taken, key=lambda choice: (choice.release, choice.is_elsewhere, choice.place)))
    installed = _installed_major(universe)
    family = group.family
    return 0, 0, int(installed is not None and family is not None and family.cuda not in (None, installed)), *_ranks(chosen)


def _ranks(chosen: Sequence[Choice]) -> tuple[int, ...]:
    """Ranks of the releases, number of additional indexes, and ranks of the builds."""
    releases = (choice.release for choice in chosen)
    return *releases, sum(choice.is_elsewhere for choice in chosen), *(choice.place for choice in chosen)


def _replaces_wheels(universe: Universe, answer: Solved, chosen: Sequence[Choice]) -> bool:
    """True if an answer replaces the CUDA major of the installed library wheels by another from pip."""
    installed = _installed_major(universe)
    if installed is None:
        return False
    cuda = cuda_of(answer.pins, CUDA)
    if cuda is not None and cuda.channel == "pip" and cuda.cuda.major != installed:
        return True
    bundled = (choice.build.cuda for choice in chosen if choice.build.delivery == "bundled" and not choice.installed)
    return any(version is not None and version.major != installed for version in bundled)


def _extra_majors(families: Sequence[Family]) -> int:
    """Number of majors of CUDA and of cuDNN beyond one of each."""
    cuda, cudnn = {family.cuda for family in families} - {None}, {family.cudnn for family in families} - {None}
    return max(len(cuda) - 1, 0) + max(len(cudnn) - 1, 0)


def _installed_major(universe: Universe) -> int | None:
    """CUDA major of the installed cuDNN wheel, if installed versions are preferred."""
    if universe.request.prefer != "installed":
        return None
    for major in CUDA_MAJORS:
        if component_package(universe.book, "cudnn", major) in universe.machine.pip:
            return major
    return None


def _merge(failures: Sequence[Failure]) -> Failure:
    return Failure(
        rejections=tuple(rejection for failure in failures for rejection in failure.rejections),
        causes=tuple(cause for failure in failures for cause in failure.causes),
        rounds=sum(failure.rounds for failure in failures),
        core=frozenset().union(*(failure.core for failure in failures)) if all(failure.core for failure in failures) else frozenset(),
        exhausted=any(failure.exhausted for failure in failures),
    )
