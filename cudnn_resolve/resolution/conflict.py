"""Explanation of a conflict: the smallest set of conditions that cannot hold together, and what each side needs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.extra import has_extras
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, RequirementLine, Target
from cudnn_resolve.requirement.target import accepted_builds, is_exact, packages_of
from cudnn_resolve.resolution.causes import clash_causes, missing_release_causes, yanked_text
from cudnn_resolve.resolution.condition import Condition, Subject, conditions
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import disjoint_targets, solve_families
from cudnn_resolve.resolution.key import ARCH, UPLOAD_LIMIT, InstalledKey
from cudnn_resolve.resolution.model import Cause, Conflict, Failure
from cudnn_resolve.resolution.open_request import OpenRequest, open_request, plain_request
from cudnn_resolve.resolution.relaxation import contradicts, is_cpu_only, relaxations
from cudnn_resolve.resolution.relaxation_trials import Trials
from cudnn_resolve.resolution.release import row_version
from cudnn_resolve.resolution.strategies import on_each_python
from cudnn_resolve.resolution.universe import Universe

ROUNDS = 3000
"""Steps of each search for the relevant conditions."""
_ONE_BY_ONE = 4
"""Up to so many conditions are dropped one by one: of a few, some are relevant."""
_OTHER_ACCELERATORS = {"rocm": "AMD GPUs (ROCm)", "xpu": "Intel GPUs"}
"""Local versions of builds for unsupported accelerators."""
_USUAL_ARCH = "x86_64"


def explain(book: Book, machine: Machine, request: Request, found: Failure | None = None) -> Conflict:
    """The conflict of a request without a resolution; `found` is the failure of its search."""
    machine, opened = next(on_each_python(machine, replace(open_request(request), any_answer=True)))
    core, core_machine, core_request, failure = _minimize(book, machine, opened, found)
    failure = failure or _failure(book, core_machine, core_request)
    causes = [Cause(what=condition.what, because=condition.because) for condition in core]
    universe = Universe(Context(book, core_machine, core_request))
    causes += disjoint_targets(universe)
    about: set[Subject] = {condition.about for condition in core}
    if failure is not None:
        causes += missing_release_causes(universe, failure)
        causes += clash_causes(universe, failure, core)
        if any(rejection.about == UPLOAD_LIMIT for rejection in failure.rejections):
            about.add(UPLOAD_LIMIT)
    is_given_up = failure is not None and failure.exhausted
    return Conflict(
        request=plain_request(opened),
        machine=machine,
        message=_unknown_target(book, opened) or _message(core, is_given_up=is_given_up, is_upload_limited=UPLOAD_LIMIT in about),
        causes=tuple(causes),
        relaxations=relaxations(Trials(book, machine, opened, frozenset(about), (core_machine, core_request))),
    )


def _minimize(
    book: Book, machine: Machine, request: OpenRequest, found: Failure | None
) -> tuple[list[Condition], Machine, OpenRequest, Failure | None]:
    """Conditions none of which can be dropped, found by dropping others and solving again, and the last failure.

    Many are first dropped together: if the conflict remains, none of them is relevant, so sixty requirements cost a few searches and not
    sixty. Lines without a part in the original failure come first.
    """
    core: list[Condition] = []
    is_proven = found is not None and not found.exhausted and found.rounds < ROUNDS
    limits = tuple(line for line in request.requirements if line.constraint)  # a line that moves a framework may be dropped
    protected = Universe(Context(book, machine, replace(request, requirements=limits))).installed.protected
    every = list(conditions(machine, request, protected))
    involved = [condition for condition in every if found is None or _is_involved(condition, found)]
    others = [condition for condition in every if condition not in involved]
    failure: Failure | None = None
    waiting = [group for group in (involved, others) if group]
    while waiting:
        group = waiting.pop()
        other_machine, other_request = machine, request
        for condition in group:
            other_machine, other_request = condition.without(other_machine, other_request)
        has_wish = other_request.targets or any(not line.constraint for line in other_request.requirements)
        remaining = _failure(book, other_machine, other_request) if has_wish else None
        # A search that was given up proves nothing about a request that was proven to have no answer.
        is_inconclusive = is_proven and remaining is not None and remaining.exhausted
        if remaining is not None and not is_inconclusive:
            machine, request, failure = other_machine, other_request, remaining
        elif len(group) == 1:
            core += group
        else:
            half = len(group) // 2 if len(group) > _ONE_BY_ONE else 1
            waiting += [group[half:], group[:half]]
    core.sort(key=lambda condition: not isinstance(condition.about, Target))
    return core, machine, request, failure


def _is_involved(condition: Condition, found: Failure) -> bool:
    """False for a requirement line without a part in a failure; a failure names only the first fact that rejects a candidate."""
    about = condition.about
    if isinstance(about, RequirementLine) and not about.constraint and found.core:
        return about.text in found.core
    return True


def _failure(book: Book, machine: Machine, request: OpenRequest) -> Failure | None:
    universe = Universe(Context(book, machine, request))
    found = solve_families(universe, universe.root_needs(()), ROUNDS)
    return found if isinstance(found, Failure) else None


def _unknown_target(book: Book, request: OpenRequest) -> str | None:
    """Message about a target that no known release matches, or only a CPU build if one for GPUs is wanted; None without one."""
    for target in request.targets:
        if request.device == "gpu" and is_cpu_only(book, target):
            return f"{target.text} is a CPU build, which is used with --device cpu only"
        other = next((name for name in _OTHER_ACCELERATORS if f"+{name}" in str(target.specifier)), None)
        if other is not None:
            return f"{target.text} is a build for {_OTHER_ACCELERATORS[other]}; only NVIDIA GPUs and CPUs are supported"
        if accepted_builds(target, book):
            continue
        if target.extras and accepted_builds(replace(target, extras=()), book):
            return f"there is no release of {target.framework} that matches {target.text}: {_releases_with_extras(book, target)}"
        if contradicts(book, target):
            return f"{_list_parts(target.parts)} contradict each other: no release of {target.framework} meets both"
        yanked = _yanked_versions(book, target)
        if yanked:
            return f"only withdrawn releases match {target.text}: {yanked_text(target.framework, yanked)}"
        return _without_known_build(book, target) or _not_released(book, request, target)
    return None


def _not_released(book: Book, request: OpenRequest, target: Target) -> str:
    """No such release exists; or, if no index was queried for exactly that version, the tables have none."""
    versions = [row_version(build.version) for build in book.framework(target.framework).builds]
    is_offline = request.source is None or request.source.offline
    if is_offline or not is_exact(target.specifier):
        span = f", only {min(versions)} to {max(versions)}" if versions else ""
        offline = ", and no index is queried offline" if is_offline else ""
        return f"the tables have no release of {target.framework} that matches {target.text}{span}{offline}"
    newest = f"; the newest in the tables is {max(versions)}" if versions else ""
    return f"there is no release of {target.framework} that matches {target.text}{newest}"


def _without_known_build(book: Book, target: Target) -> str | None:
    """Message about a release that exists but whose GPU builds are unknown; None without one."""
    for name in dict.fromkeys((*packages_of(target, book), target.framework)):
        versions = (row.version for row in reversed(book.releases(name)))
        found = next((version for version in versions if target.specifier.contains(version, prereleases=True)), None)
        if found is not None:
            return (
                f"the tables have no GPU build that matches {target.text}: {name} {found} exists, but its GPU wheels are not "
                "in the tables, so their CUDA and cuDNN are unknown"
            )
    return None


def _yanked_versions(book: Book, target: Target) -> list[Version]:
    """Yanked versions that a target matches."""
    versions = {row_version(build.version) for build in book.framework(target.framework).builds if build.yanked}
    return sorted(version for version in versions if target.specifier.contains(version, prereleases=True))


def _list_parts(parts: Sequence[Target]) -> str:
    """`torch==2.6.0 and torch==2.5.0 (requirements.txt:3)`, each once."""
    texts = (part.text if part.origin is None else f"{part.text} ({part.origin})" for part in parts)
    return " and ".join(dict.fromkeys(texts))


def _releases_with_extras(book: Book, target: Target) -> str:
    builds = (build for build in book.framework(target.framework).builds if has_extras(book, target, build))
    versions = sorted({Version(build.version) for build in builds})
    extras = ", ".join(target.extras)
    return f"those with {extras} are {versions[0]} to {versions[-1]}" if versions else f"none has {extras} together"


def _message(core: Sequence[Condition], *, is_given_up: bool, is_upload_limited: bool) -> str:
    if is_upload_limited and all(isinstance(condition.about, Target) for condition in core):
        text = f"{' and '.join(condition.what for condition in core)} cannot be satisfied with --exclude-newer"
    else:
        text = _core_message(core)
    return f"no answer was found within {ROUNDS} steps, although there may be one: {text}" if is_given_up else text


def _core_message(core: Sequence[Condition]) -> str:
    targets = [condition.what for condition in core if isinstance(condition.about, Target)]
    rest = [condition for condition in core if not isinstance(condition.about, Target)]
    # Another architecture might have other builds, but the usual one explains nothing next to other conditions.
    rest = [condition for condition in rest if condition.about != ARCH or condition.what != _USUAL_ARCH or len(rest) == 1]
    others = [condition.what for condition in rest]
    wishes = " and ".join(targets)
    if others and not targets:
        return f"{' and '.join(others)} cannot share one environment" if len(others) > 1 else f"{others[0]} cannot be satisfied"
    if others:
        are_installed = all(isinstance(condition.about, InstalledKey) for condition in rest)
        return f"{wishes} cannot be satisfied {'alongside' if are_installed else 'with'} {', '.join(others)}"
    if len(targets) > 1:
        return f"{wishes} cannot share one environment"
    return f"{wishes} cannot be satisfied on any machine in the tables" if targets else "the request cannot be satisfied"
