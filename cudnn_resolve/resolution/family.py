"""Families: the CUDA and cuDNN majors that a set of frameworks could share.

Frameworks that load their libraries from outside share one CUDA major and one cuDNN major. There are only a handful of pairs, and
within one every target keeps few builds; a search that has to find the majors on the way tries each release of each framework
against each of every other. So each pair is solved by itself, and the answers are compared in the order of preference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cudnn_resolve.requirement.derive import accepts
from cudnn_resolve.requirement.model import Need
from cudnn_resolve.resolution import runtime
from cudnn_resolve.resolution.model import Candidate, Cause, Failure
from cudnn_resolve.resolution.solve import ROUNDS, Solved, solve

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.universe import Universe

FEW = 300
"""Steps of a search that is known to fail, and runs only to see what clashes."""


class Family(NamedTuple):
    """The majors that builds share; None = no build of it loads such a library from outside."""

    cuda: int | None
    cudnn: int | None


def search(universe: Universe, needs: Sequence[Need], rounds: int = ROUNDS) -> Solved | Failure:
    """The best consistent choice over all families, or what stood in the way."""
    alone = len(universe.request.targets) < 2 and _wheels_major(universe) is None
    if alone or universe.request.device == "cpu":
        return solve(universe, needs, rounds)
    found = _families(universe)
    if not found:
        return solve(universe, needs, min(rounds, FEW))
    best: tuple[tuple[int, ...], Solved] | None = None
    failures: list[Failure] = []
    for bound, _, family in sorted((_bound(universe, family), number, family) for number, family in enumerate(found)):
        if best is not None and best[0] <= bound:
            break  # nothing that follows can be better
        answer = solve(universe, [*needs, *_family_needs(universe, family)], rounds)
        if isinstance(answer, Failure):
            failures.append(answer)
            continue
        key = _preference(universe, answer)
        if best is None or key < best[0]:
            best = key, answer
    return best[1] if best is not None else _merged(failures)


def _families(universe: Universe) -> list[Family]:
    """The families in which every target has a build, the newest majors first."""
    each = [_of_target(universe, number) for number in range(len(universe.request.targets))]
    pairs = {family for families, _ in each for family in families}
    kept = {family for family in pairs if all(free or any(_agree(family, one) for one in families) for families, free in each)}
    if not kept and all(free for _, free in each):
        kept = {Family(None, None)}
    return sorted(_widest(kept), key=lambda family: (-(family.cuda or 0), -(family.cudnn or 0)))


def _of_target(universe: Universe, number: int) -> tuple[set[Family], bool]:
    """The families of one target's builds, and whether a build of it belongs to none."""
    target = universe.request.targets[number]
    families: set[Family] = set()
    free = False
    for candidate in universe.unordered(f"framework:{target.framework}", ()):
        build: Build = candidate.payload
        if not accepts(target, build, universe.book):
            continue
        if _is_free(universe, build):
            free = True
        elif build.cuda is not None:
            families.add(Family(build.cuda.major, build.cudnn.major if build.cudnn else None))
    return families, free


def apart(universe: Universe) -> list[Cause]:
    """The pairs of targets whose builds share no majors, in words."""
    out = []
    each = [(target, _of_target(universe, number)[0]) for number, target in enumerate(universe.request.targets)]
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


def _is_free(universe: Universe, build: Build) -> bool:
    """True for a build that shares nothing: its libraries are inside, or it is installed and may live on its own."""
    return build.delivery == "bundled" or build.cuda is None or runtime.is_installed(universe, build)


def _agree(one: Family, other: Family) -> bool:
    """True where builds of both could stand in one environment."""
    return one.cuda == other.cuda and (one.cudnn == other.cudnn or one.cudnn is None or other.cudnn is None)


def _widest(families: set[Family]) -> set[Family]:
    """The families without those that another one includes: CUDA 12 without cuDNN is part of CUDA 12 with any."""
    return {
        family
        for family in families
        if family.cudnn is not None or not any(other.cuda == family.cuda and other.cudnn is not None for other in families)
    }


def _family_needs(universe: Universe, family: Family) -> list[Need]:
    text = f"CUDA {family.cuda}" + (f" and cuDNN {family.cudnn}" if family.cudnn else "")

    def test(candidate: Candidate) -> bool:
        build: Build = candidate.payload
        if _is_free(universe, build):
            return True
        return _agree(_own(build), family)

    because = "the frameworks of one environment share them"
    return [
        Need(f"framework:{target.framework}", test, f"a build for {text}", because, requested_by="family")
        for target in universe.request.targets
    ]


def _preference(universe: Universe, answer: Solved) -> tuple[int, ...]:
    """How far an answer is from the best: smaller is better.

    Installed targets that would change; then library wheels of another CUDA major that would have to go, on which other installed
    packages live; then the place of each target's build in its order of preference, the first target counting most.
    """
    changed = 0
    places = []
    for target in universe.request.targets:
        name = f"framework:{target.framework}"
        chosen = answer.pins[name].candidate
        changed += universe.holds(target.framework) and not runtime.is_installed(universe, chosen.payload)
        places.append(next(number for number, candidate in enumerate(universe.unordered(name, ())) if candidate is chosen))
    major = _wheels_major(universe)
    cuda = answer.pins.get("cuda")
    replaced = major is not None and cuda is not None and cuda.candidate.channel == "pip" and cuda.candidate.payload.cuda.major != major
    return changed, int(replaced), *places


def _bound(universe: Universe, family: Family) -> tuple[int, ...]:
    """The best that `_preference` could say of an answer within a family: each target in the first build that it has there."""
    places = []
    for target in universe.request.targets:
        builds = (candidate.payload for candidate in universe.unordered(f"framework:{target.framework}", ()))
        fits = (accepts(target, build, universe.book) and (_is_free(universe, build) or _agree(_own(build), family)) for build in builds)
        places.append(next((number for number, fit in enumerate(fits) if fit), 0))
    major = _wheels_major(universe)
    return 0, int(major is not None and family.cuda not in (None, major)), *places


def _own(build: Build) -> Family:
    return Family(build.cuda.major if build.cuda else None, build.cudnn.major if build.cudnn else None)


def _wheels_major(universe: Universe) -> int | None:
    """CUDA major of the installed cuDNN wheel, where what is installed is preferred."""
    if universe.request.prefer != "installed":
        return None
    for major in (13, 12, 11):
        if runtime.component_package(universe, "cudnn", major) in universe.machine.pip:
            return major
    return None


def _merged(failures: Sequence[Failure]) -> Failure:
    return Failure(
        rejections=tuple(rejection for failure in failures for rejection in failure.rejections),
        causes=tuple(cause for failure in failures for cause in failure.causes),
        rounds=sum(failure.rounds for failure in failures),
        exhausted=any(failure.exhausted for failure in failures),
    )
