"""Why a request has no answer: the smallest set of wishes and facts that cannot hold together, and what each side met."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement.derive import accepts
from cudnn_resolve.requirement.extra import fits
from cudnn_resolve.requirement.model import Extra, Target
from cudnn_resolve.resolution.attempt import PYTHONS
from cudnn_resolve.resolution.candidate import (
    BuildCandidate,
    CudaCandidate,
    CudnnCandidate,
    LibrariesCandidate,
    PipCandidate,
    WheelCandidate,
)
from cudnn_resolve.resolution.condition import Condition, Subject, conditions
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import apart, search
from cudnn_resolve.resolution.key import (
    CUDNN,
    CudaKey,
    CudnnKey,
    DriverKey,
    FrameworkKey,
    GpuKey,
    IndexKey,
    InstalledKey,
    Key,
    LibrariesKey,
    LimitKey,
    PipKey,
    PlatformKey,
    PythonKey,
    RootKey,
    SlotKey,
)
from cudnn_resolve.resolution.marker import settle
from cudnn_resolve.resolution.model import Cause, Conflict, Failure, Rejection
from cudnn_resolve.resolution.opened import OpenRequest, closed, opened
from cudnn_resolve.resolution.relaxation import contradicts, is_cpu_only, relaxations
from cudnn_resolve.resolution.release import LATE, parse_requirement, parse_version
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.resolution.way_out import Trials

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request

ROUNDS = 3000
"""Steps of each search for the conditions that matter."""
CAUSES = 8
"""Lines of a conflict; more are not read."""


def explain(book: Book, machine: Machine, request: Request, found: Failure | None = None) -> Conflict:
    """The conflict of a request that has no resolution; `found` says what the search met."""
    machine, request = _settled(machine, replace(opened(request), any_answer=True))
    core, core_machine, core_request = minimum(book, machine, request, found)
    failure = _failure(book, core_machine, core_request)
    given_up = failure is not None and failure.exhausted
    causes = [Cause(what=condition.what, because=condition.because) for condition in core]
    causes += apart(Universe(Context(book, core_machine, core_request)))
    if failure is not None:
        universe = Universe(Context(book, core_machine, core_request))
        causes += _not_there(universe, failure)
        causes += _clashes(universe, failure, core)
    late = failure is not None and any(LATE in rejection.because for rejection in failure.rejections)
    about = frozenset((*(condition.about for condition in core), *(("exclude-newer",) if late else ())))
    return Conflict(
        request=closed(request),
        machine=machine,
        message=_unknown(book, request) or _message(core, given_up=given_up, late=late),
        causes=tuple(causes),
        relaxations=relaxations(Trials(book, machine, request, about, (core_machine, core_request))),
    )


def _settled(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
    """The machine and the request on it, on the first Python that is asked for anything where that is unknown; errors as of `settle`."""
    if machine.python is not None:
        return machine, settle(request, machine)
    refusal: UsageError | None = None
    for python in PYTHONS:
        one = replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")
        try:
            return one, settle(request, one)
        except UsageError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def minimum(
    book: Book, machine: Machine, request: OpenRequest, found: Failure | None = None
) -> tuple[list[Condition], Machine, OpenRequest]:
    """The conditions none of which can be left out, found by leaving out one after the other and solving again.

    Many are first left out together: if that changes nothing, none of them matters, and sixty requirements cost a few solves, not sixty.
    Those that the failed search did not meet with come first.
    """
    core: list[Condition] = []
    limits = tuple(extra for extra in request.extras if extra.constraint)  # a line that moves a framework may be left out
    protected = Universe(Context(book, machine, replace(request, extras=limits))).installed.protected
    every = list(conditions(machine, request, protected))
    met = [condition for condition in every if found is None or _was_met(condition, found)]
    waiting = [group for group in (met, [condition for condition in every if condition not in met]) if group]
    while waiting:
        group = waiting.pop()
        other_machine, other_request = machine, request
        for condition in group:
            other_machine, other_request = condition.without(other_machine, other_request)
        if (other_request.targets or _asks_for_packages(other_request)) and _failure(book, other_machine, other_request) is not None:
            machine, request = other_machine, other_request
        elif len(group) == 1:
            core += group
        else:
            half = len(group) // 2 if len(group) > _TOGETHER else 1
            waiting += [group[half:], group[:half]]
    core.sort(key=lambda condition: not isinstance(condition.about, Target))
    return core, machine, request


def _was_met(condition: Condition, found: Failure) -> bool:
    """False for a wish or a fact that had no part in a failure."""
    about = condition.about
    if isinstance(about, Extra) and not about.constraint and found.core:
        return any(text == about.text for _, text in found.core)
    if isinstance(about, Target) and found.core:
        return any(key == FrameworkKey(about.framework) for key, _ in found.core)
    if isinstance(about, Key) and not isinstance(about, InstalledKey) and not found.exhausted:
        return any(rejection.about == about for rejection in found.rejections)
    return True


def _asks_for_packages(request: Request) -> bool:
    return any(not extra.constraint for extra in request.extras)


_TOGETHER = 4
"""Up to so many conditions are tried one by one: of few, some matter."""


def _failure(book: Book, machine: Machine, request: OpenRequest) -> Failure | None:
    universe = Universe(Context(book, machine, request))
    found = search(universe, universe.root_needs(()), ROUNDS)
    return found if isinstance(found, Failure) else None


_OTHER_ACCELERATORS = {"rocm": "AMD GPUs (ROCm)", "xpu": "Intel GPUs"}
"""Local parts of versions that are built for what this program knows nothing of."""


def _unknown(book: Book, request: Request) -> str | None:
    """That a target names a release which nobody made, or one without GPU while one for GPUs is wanted, where one does."""
    for target in request.targets:
        if request.device == "gpu" and is_cpu_only(book, target):
            return f"{target.text} is a build without GPU, which is taken with --device cpu alone"
        other = next((one for one in _OTHER_ACCELERATORS if f"+{one}" in str(target.specifier)), None)
        if other is not None:
            return f"{target.text} is a build for {_OTHER_ACCELERATORS[other]}, and plans are for NVIDIA GPUs and for CPUs alone"
        if not any(accepts(target, build, book) for build in book.framework(target.framework).builds):
            if target.extras and any(accepts(replace(target, extras=()), build, book) for build in book.framework(target.framework).builds):
                return f"there is no release of {target.framework} that is {target.text}: {_without_extra(book, target)}"
            if contradicts(book, target):
                return f"{_listed(target.parts)} contradict each other: no release of {target.framework} meets both"
            withdrawn = _withdrawn(book, target)
            if withdrawn is not None:
                return f"no release that its authors stand by is {target.text}: {withdrawn}"
            known = [version for build in book.framework(target.framework).builds if (version := parse_version(build.version)) is not None]
            newest = f"; the newest that the tables know is {max(known)}" if known else ""
            return f"there is no release of {target.framework} that is {target.text}{newest}"
    return None


def _withdrawn(book: Book, target: Target) -> str | None:
    """That the releases which a target means were withdrawn by their authors; None where there are none."""
    versions = {
        version
        for build in book.framework(target.framework).builds
        if build.yanked and (version := parse_version(build.version)) is not None and target.specifier.contains(version, prereleases=True)
    }
    return _yanked(target.framework, sorted(versions)) if versions else None


def _yanked(name: str, versions: Sequence[Version]) -> str:
    """`cupy 13.5.0 was withdrawn (yanked), and is taken only where it is pinned: cupy==13.5.0`."""
    verb = "was" if len(versions) == 1 else "were"
    listed = ", ".join(map(str, versions))
    return f"{name} {listed} {verb} withdrawn (yanked), and is taken only where it is pinned: {name}=={versions[-1]}"


def _listed(parts: Sequence[Target]) -> str:
    """`torch==2.6.0 and torch==2.5.0 (requirements.txt:3)`, each once."""
    words = (part.text if part.origin is None else f"{part.text} ({part.origin})" for part in parts)
    return " and ".join(dict.fromkeys(words))


def _without_extra(book: Book, target: Target) -> str:
    """Where the extras of a target are, in words."""
    have = sorted({Version(build.version) for build in book.framework(target.framework).builds if fits(book, target, build)})
    extras = ", ".join(target.extras)
    return f"those with {extras} are {have[0]} to {have[-1]}" if have else f"none has {extras} together"


def _message(core: list[Condition], *, given_up: bool, late: bool) -> str:
    text = _plain_message(core)
    if late and all(isinstance(condition.about, Target) for condition in core):
        text = f"{' and '.join(condition.what for condition in core)} cannot be had with --exclude-newer"
    return f"no answer was found for this in {ROUNDS} steps, though there may be one: {text}" if given_up else text


def _plain_message(core: list[Condition]) -> str:
    targets = [condition.what for condition in core if isinstance(condition.about, Target)]
    others = [condition.what for condition in core if not isinstance(condition.about, Target)]
    wish = " and ".join(targets) or "the request"
    if others and not targets:
        return f"{' and '.join(others)} cannot share one environment" if len(others) > 1 else f"{others[0]} cannot be had"
    if others:
        return f"{wish} cannot be had with {', '.join(others)}"
    if len(targets) > 1:
        return f"{wish} cannot share one environment"
    return f"{wish} cannot be had for any machine that the tables know" if targets else f"{wish} cannot be met"


def _clashes(universe: Universe, failure: Failure, core: list[Condition]) -> list[Cause]:
    """What the candidates met, those that clash with a condition of the core first, alike ones in one line."""
    subjects = {condition.about for condition in core}
    merged: dict[tuple[str, Key, str], list[Rejection]] = {}
    telling = list(_telling(failure.rejections))
    forbidden: dict[Key, bool] = {}
    for rejection in [one for one in telling if _matters(universe, one, subjects, forbidden)] or telling:
        need = rejection.need if isinstance(rejection.about, (PipKey, CudnnKey, CudaKey, SlotKey)) else ""
        merged.setdefault((_subject(rejection), rejection.about, need), []).append(rejection)
    ordered = sorted(_as_frameworks(merged).items(), key=lambda item: item[0][1] not in subjects)
    out = [_clash(subject, rejections) for (subject, _, _), rejections in ordered[:CAUSES]]
    if not out:
        out = [Cause(what=f"{reason.parent or 'the request'} needs {reason.text}", because=reason.because) for reason in failure.causes]
    return list(dict.fromkeys(out))


def _as_frameworks(merged: dict[tuple[str, Key, str], list[Rejection]]) -> dict[tuple[str, Key, str], list[Rejection]]:
    """The same with one line for the packages of a framework that meet one thing, such as one GPU: there are 15 of CuPy."""
    out: dict[tuple[str, Key, str], list[Rejection]] = {}
    for (subject, about, need), rejections in merged.items():
        candidate, texts = rejections[0].candidate, {rejection.need for rejection in rejections}
        if isinstance(about, (GpuKey, PipKey)) and isinstance(candidate, (BuildCandidate, WheelCandidate)) and len(texts) == 1:
            subject, need = candidate.build.framework, texts.pop()  # noqa: PLW2901 - the name of the line
        out.setdefault((subject, about, need), []).extend(rejections)
    return out


def _matters(universe: Universe, rejection: Rejection, subjects: Collection[Subject], forbidden: dict[Key, bool]) -> bool:
    """False where a fact refused a candidate and is not to blame: there are others, or the clash is there without the fact, too.

    `forbidden`: whether the machine forbids a package in every release, as far as that was asked.
    """
    if universe.fact(rejection.about) is None or isinstance(rejection.about, (LimitKey, IndexKey)):
        return True
    if rejection.about not in subjects:
        return False
    candidate = rejection.candidate
    if not isinstance(candidate, PipCandidate) or isinstance(candidate, WheelCandidate) or candidate.release is None:
        return True
    if candidate.key not in forbidden:
        forbidden[candidate.key] = bool(universe.look.at(candidate.key, ()))
    return forbidden[candidate.key]


def _not_there(universe: Universe, failure: Failure) -> list[Cause]:
    """Packages that the indexes do not have, or not in the versions that are wanted."""
    wanted = [(rejection.about, rejection.need, rejection.because) for rejection in failure.rejections]
    wanted += [(reason.key, reason.text, reason.because) for reason in failure.causes if reason.key is not None]
    out: dict[str, Cause] = {}
    for about, text, because in wanted:
        context = universe.context
        if not isinstance(about, PipKey) or about.name in out:
            continue
        name = about.name
        requirement = parse_requirement(text)
        releases = context.releases.of(name)
        versions = [one.version for one in releases]
        fitting = [one for one in releases if requirement is None or requirement.specifier.contains(one.version, prereleases=True)]
        if fitting and all(one.yanked for one in fitting):
            out[name] = Cause(what=_yanked(name, sorted({one.version for one in fitting})), because=because)
            continue
        if fitting or universe.request.source is None or not context.offers.is_answered(name):
            continue
        left = "; ".join(context.offers.left_out(name))
        aside = f"; left out: {left}" if left else ""
        if versions:
            newest = f"the newest release of {name} on the configured indexes is {versions[0]}"
            out[name] = Cause(what=f"{text} is on none of them", because=f"{newest} ({because}){aside}")
        else:
            hashed = context.offers.accepts_by_hash(name)
            near = universe.book.nearest(name)
            meant = f" (did you mean {' or '.join(near)}?)" if near else ""
            what = (
                f"no file of {name} that an index has is one of those whose --hash is given"
                if hashed
                else f"no configured index has {name}{meant}"
            )
            out[name] = Cause(what=what, because=f"{because}{aside}")
    return list(out.values())


def _telling(rejections: Sequence[Rejection]) -> Iterator[Rejection]:
    """Rejections that say something: not those that only repeat another one a level higher, nor channels that nobody asked for."""
    told = {rejection.about for rejection in rejections if rejection.against}
    for rejection in rejections:
        candidate = rejection.candidate
        if isinstance(candidate, BuildCandidate) and isinstance(rejection.about, PipKey):
            continue
        if not rejection.against and rejection.about in told:
            continue  # the clash is told with both of its sides
        if isinstance(rejection.about, LibrariesKey) and len(rejections) > 1:
            continue  # the channels themselves say what they met
        beside = isinstance(candidate, LibrariesCandidate) and candidate.channel != "pip" and not isinstance(rejection.about, InstalledKey)
        if beside and len(rejections) > 1:
            continue
        if isinstance(candidate, PipCandidate) and candidate.key.name.startswith("nvidia-cudnn") and rejection.about == CUDNN:
            continue
        yield rejection


def _subject(rejection: Rejection) -> str:
    """What the rejected candidates of one line have in common."""
    candidate = rejection.candidate
    if isinstance(candidate, WheelCandidate):
        return candidate.build.package
    if isinstance(candidate, BuildCandidate):
        # What is installed stands in the way of every distribution of a framework alike.
        return candidate.build.framework if isinstance(rejection.about, InstalledKey) else candidate.build.package
    if isinstance(candidate, LibrariesCandidate):
        if candidate.channel == "pip":
            return candidate.build.package  # where else they could come from is not told
        return f"{candidate.build.package} with its CUDA libraries from {candidate.channel}"
    if isinstance(candidate, CudnnCandidate):
        return f"cuDNN {candidate.build.version.major} for CUDA {candidate.build.cuda_major} ({candidate.channel})"
    if isinstance(candidate, CudaCandidate):
        return f"CUDA {candidate.cuda.major} ({candidate.channel})"
    return candidate.key.name if isinstance(candidate, PipCandidate) else str(candidate)


def _clash(subject: str, rejections: list[Rejection]) -> Cause:
    """One line for candidates that met the same."""
    first, last = rejections[0], rejections[-1]
    names = list(dict.fromkeys(_version_of(rejection) for rejection in rejections))
    named = f"{subject} {names[0]}" if len(names) == 1 else f"{subject} ({', '.join(names)})"
    if len(names) > _NAMED:
        named = f"{subject} ({names[0]}, {names[1]} … {names[-1]})"
    needs = " or ".join(dict.fromkeys(rejection.need for rejection in rejections[:_NAMED]))
    because = last.because if subject.startswith("cuDNN") else first.because
    if first.against and not isinstance(first.about, _FACTS):
        others = dict.fromkeys(
            f"{reason.requested_by or reason.parent or 'the request'} wants {reason.text} ({reason.because})"
            for reason in first.against[:_NAMED]
        )
        because = f"{because}; but {'; '.join(others)}"
    return Cause(what=f"{named} needs {needs}", because=because)


def _version_of(rejection: Rejection) -> str:
    candidate = rejection.candidate
    return candidate.build.wheel_version if isinstance(candidate, LibrariesCandidate) else candidate.version


_FACTS = (GpuKey, DriverKey, PythonKey, PlatformKey, LimitKey, RootKey, InstalledKey)
"""What is as it is: nobody else wants anything of it that would have to be named."""
_NAMED = 3
"""Versions that are named one by one."""
