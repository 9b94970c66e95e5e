"""Why a request has no answer: the smallest set of wishes and facts that cannot hold together, and what each side met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.requirement.extra import has_extras
from cudnn_resolve.requirement.model import RequirementLine, Target
from cudnn_resolve.requirement.target import is_exact, packages_of
from cudnn_resolve.resolution.attempt import on_each_python
from cudnn_resolve.resolution.condition import Condition, conditions
from cudnn_resolve.resolution.conflict_lines import clashes, not_there, withdrawn
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import apart, solve_families
from cudnn_resolve.resolution.key import InstalledKey
from cudnn_resolve.resolution.model import Cause, Conflict, Failure
from cudnn_resolve.resolution.open_request import OpenRequest, closed, opened
from cudnn_resolve.resolution.relaxation import contradicts, has_build, is_cpu_only, relaxations
from cudnn_resolve.resolution.release import LATE, parse_version
from cudnn_resolve.resolution.trials import Trials
from cudnn_resolve.resolution.universe import Universe

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request

ROUNDS = 3000
"""Steps of each search for the conditions that matter."""


def explain(book: Book, machine: Machine, request: Request, found: Failure | None = None) -> Conflict:
    """The conflict of a request that has no resolution; `found` says what the search met."""
    machine, request = next(on_each_python(machine, replace(opened(request), any_answer=True)))
    core, core_machine, core_request, failure = minimum(book, machine, request, found)
    failure = failure or _failure(book, core_machine, core_request)
    given_up = failure is not None and failure.exhausted
    causes = [Cause(what=condition.what, because=condition.because) for condition in core]
    universe = Universe(Context(book, core_machine, core_request))
    causes += apart(universe)
    if failure is not None:
        causes += not_there(universe, failure)
        causes += clashes(universe, failure, core)
    late = failure is not None and any(LATE in rejection.because for rejection in failure.rejections)
    about = frozenset((*(condition.about for condition in core), *(("exclude-newer",) if late else ())))
    return Conflict(
        request=closed(request),
        machine=machine,
        message=_unknown(book, request) or _message(core, given_up=given_up, late=late),
        causes=tuple(causes),
        relaxations=relaxations(Trials(book, machine, request, about, (core_machine, core_request))),
    )


def minimum(
    book: Book, machine: Machine, request: OpenRequest, found: Failure | None = None
) -> tuple[list[Condition], Machine, OpenRequest, Failure | None]:
    """The conditions none of which can be left out, found by leaving out one after the other and solving again, and what the last one met.

    Many are first left out together: if that changes nothing, none of them matters, and sixty requirements cost a few solves, not sixty.
    Lines that the failed search did not meet with come first.
    """
    core: list[Condition] = []
    is_shown = found is not None and not found.exhausted and found.rounds < ROUNDS
    limits = tuple(extra for extra in request.requirements if extra.constraint)  # a line that moves a framework may be left out
    protected = Universe(Context(book, machine, replace(request, requirements=limits))).installed.protected
    every = list(conditions(machine, request, protected))
    met = [condition for condition in every if found is None or _was_met(condition, found)]
    failure: Failure | None = None
    waiting = [group for group in (met, [condition for condition in every if condition not in met]) if group]
    while waiting:
        group = waiting.pop()
        other_machine, other_request = machine, request
        for condition in group:
            other_machine, other_request = condition.without(other_machine, other_request)
        is_asked = other_request.targets or any(not extra.constraint for extra in other_request.requirements)
        less = _failure(book, other_machine, other_request) if is_asked else None
        is_given_up = is_shown and less is not None and less.exhausted  # it shows nothing where the whole was shown to have no answer
        if less is not None and not is_given_up:
            machine, request, failure = other_machine, other_request, less
        elif len(group) == 1:
            core += group
        else:
            half = len(group) // 2 if len(group) > _TOGETHER else 1
            waiting += [group[half:], group[:half]]
    core.sort(key=lambda condition: not isinstance(condition.about, Target))
    return core, machine, request, failure


def _was_met(condition: Condition, found: Failure) -> bool:
    """False for a line of the request that had no part in a failure; of facts, candidates tell only the first that they met."""
    about = condition.about
    if isinstance(about, RequirementLine) and not about.constraint and found.core:
        return any(text == about.text for _, text in found.core)
    return True


_TOGETHER = 4
"""Up to so many conditions are tried one by one: of few, some matter."""


def _failure(book: Book, machine: Machine, request: OpenRequest) -> Failure | None:
    universe = Universe(Context(book, machine, request))
    found = solve_families(universe, universe.root_needs(()), ROUNDS)
    return found if isinstance(found, Failure) else None


_OTHER_ACCELERATORS = {"rocm": "AMD GPUs (ROCm)", "xpu": "Intel GPUs"}
"""Local parts of versions that are built for what this program knows nothing of."""


def _unknown(book: Book, request: OpenRequest) -> str | None:
    """That a target names a release which nobody made, or one without GPU while one for GPUs is wanted, where one does."""
    for target in request.targets:
        if request.device == "gpu" and is_cpu_only(book, target):
            return f"{target.text} is a build without GPU, which is taken with --device cpu alone"
        other = next((one for one in _OTHER_ACCELERATORS if f"+{one}" in str(target.specifier)), None)
        if other is not None:
            return f"{target.text} is a build for {_OTHER_ACCELERATORS[other]}, and plans are for NVIDIA GPUs and for CPUs alone"
        if has_build(book, target):
            continue
        if target.extras and has_build(book, replace(target, extras=())):
            return f"there is no release of {target.framework} that is {target.text}: {_without_extra(book, target)}"
        if contradicts(book, target):
            return f"{_listed(target.parts)} contradict each other: no release of {target.framework} meets both"
        withdrawn = _withdrawn(book, target)
        if withdrawn is not None:
            return f"no release that its authors stand by is {target.text}: {withdrawn}"
        return _made_elsewhere(book, target) or _denied(book, request, target)
    return None


def _denied(book: Book, request: OpenRequest, target: Target) -> str:
    """That there is no such release; where no index was asked for it by name, that the tables know none."""
    known = [version for build in book.framework(target.framework).builds if (version := parse_version(build.version)) is not None]
    offline = request.source is None or request.source.offline
    if offline or not is_exact(target.specifier):
        span = f", only {min(known)} to {max(known)}" if known else ""
        asked = ", and offline no index is asked" if offline else ""
        return f"the tables know no release of {target.framework} that is {target.text}{span}{asked}"
    newest = f"; the newest that the tables know is {max(known)}" if known else ""
    return f"there is no release of {target.framework} that is {target.text}{newest}"


def _made_elsewhere(book: Book, target: Target) -> str | None:
    """That the release a target means is there, and its GPU builds are not known; None where it is not."""
    for name in dict.fromkeys((*packages_of(target, book), target.framework)):
        releases = reversed(book.releases(name))
        found = next((one.version for one in releases if target.specifier.contains(one.version, prereleases=True)), None)
        if found is not None:
            return (
                f"the tables know no GPU build that is {target.text}: there is a release {name} {found}, "
                f"but its GPU wheels are not in the tables, so that what they are built with is not known"
            )
    return None


def _withdrawn(book: Book, target: Target) -> str | None:
    """That the releases which a target means were withdrawn by their authors; None where there are none."""
    versions = {
        version
        for build in book.framework(target.framework).builds
        if build.yanked and (version := parse_version(build.version)) is not None and target.specifier.contains(version, prereleases=True)
    }
    return withdrawn(target.framework, sorted(versions)) if versions else None


def _listed(parts: Sequence[Target]) -> str:
    """`torch==2.6.0 and torch==2.5.0 (requirements.txt:3)`, each once."""
    words = (part.text if part.origin is None else f"{part.text} ({part.origin})" for part in parts)
    return " and ".join(dict.fromkeys(words))


def _without_extra(book: Book, target: Target) -> str:
    """Where the extras of a target are, in words."""
    have = sorted({Version(build.version) for build in book.framework(target.framework).builds if has_extras(book, target, build)})
    extras = ", ".join(target.extras)
    return f"those with {extras} are {have[0]} to {have[-1]}" if have else f"none has {extras} together"


def _message(core: list[Condition], *, given_up: bool, late: bool) -> str:
    text = _plain_message(core)
    if late and all(isinstance(condition.about, Target) for condition in core):
        text = f"{' and '.join(condition.what for condition in core)} cannot be had with --exclude-newer"
    return f"no answer was found for this in {ROUNDS} steps, though there may be one: {text}" if given_up else text


_USUAL_ARCH = "x86_64"


def _plain_message(core: list[Condition]) -> str:
    targets = [condition.what for condition in core if isinstance(condition.about, Target)]
    rest = [condition for condition in core if not isinstance(condition.about, Target)]
    # What most machines are says nothing beside what else stands in the way, though another architecture might have other builds.
    rest = [condition for condition in rest if condition.what != _USUAL_ARCH or len(rest) == 1]
    others = [condition.what for condition in rest]
    wish = " and ".join(targets) or "the request"
    if others and not targets:
        return f"{' and '.join(others)} cannot share one environment" if len(others) > 1 else f"{others[0]} cannot be had"
    if others:
        beside = all(isinstance(condition.about, InstalledKey) for condition in rest)
        return f"{wish} cannot be had {'beside' if beside else 'with'} {', '.join(others)}"
    if len(targets) > 1:
        return f"{wish} cannot share one environment"
    return f"{wish} cannot be had for any machine that the tables know" if targets else f"{wish} cannot be met"
