"""What the candidates of a failed search met, in the lines of a conflict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from packaging.version import Version

from cudnn_resolve.resolution.candidate import (
    BuildCandidate,
    CudaCandidate,
    CudnnCandidate,
    LibrariesCandidate,
    PipCandidate,
    WheelCandidate,
)
from cudnn_resolve.resolution.condition import Condition, Subject
from cudnn_resolve.resolution.key import (
    CUDNN,
    INDEX,
    CudaKey,
    CudnnKey,
    FactKey,
    GpuKey,
    InstalledKey,
    Key,
    LibrariesKey,
    LimitKey,
    PipKey,
    SlotKey,
)
from cudnn_resolve.resolution.model import Cause, Failure, Rejection
from cudnn_resolve.resolution.release import parse_requirement
from cudnn_resolve.resolution.universe import Universe

CAUSES = 8
"""Lines of a conflict; more are not read."""


def clashes(universe: Universe, failure: Failure, core: list[Condition]) -> list[Cause]:
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
        said = {condition.what for condition in core}
        told = (reason for reason in failure.causes if reason.parent or reason.text not in said)
        out = [Cause(what=f"{reason.parent or 'the request'} needs {reason.text}", because=reason.because) for reason in told]
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
    if universe.fact(rejection.about) is None or isinstance(rejection.about, LimitKey) or rejection.about == INDEX:
        return True
    if rejection.about not in subjects:
        return False
    candidate = rejection.candidate
    if not isinstance(candidate, PipCandidate) or isinstance(candidate, WheelCandidate) or candidate.release is None:
        return True
    if candidate.key not in forbidden:
        forbidden[candidate.key] = bool(universe.look.at(candidate.key, ()))
    return forbidden[candidate.key]


def not_there(universe: Universe, failure: Failure) -> list[Cause]:
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
            out[name] = Cause(what=withdrawn(name, sorted({one.version for one in fitting})), because=because)
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


_FACTS = (FactKey, GpuKey, LimitKey, InstalledKey)
"""What is as it is: nobody else wants anything of it that would have to be named."""
_NAMED = 3
"""Versions that are named one by one."""


def withdrawn(name: str, versions: Sequence[Version]) -> str:
    """`cupy 13.5.0 was withdrawn (yanked), and is taken only where it is pinned: cupy==13.5.0`."""
    verb = "was" if len(versions) == 1 else "were"
    listed = ", ".join(map(str, versions))
    return f"{name} {listed} {verb} withdrawn (yanked), and is taken only where it is pinned: {name}=={versions[-1]}"
