"""Causes of a conflict, derived from the rejections of a failed search."""

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
"""Largest number of clashes shown."""
_NAMED = 3
"""Largest number of versions and needs named one by one."""
_FACTS = (FactKey, GpuKey, LimitKey, InstalledKey)
"""Keys of packages that cannot change, so that the needs of others on them explain nothing."""

_Groups = dict[tuple[str, Key, str], list[Rejection]]
"""Rejections by their subject, the package that they clashed on, and for most packages the need."""


def clash_causes(universe: Universe, failure: Failure, core: Sequence[Condition]) -> list[Cause]:
    """Causes of the rejections, similar ones merged; clashes with a condition of the core come first."""
    subjects = {condition.about for condition in core}
    informative = list(_informative(failure.rejections))
    is_forbidden: dict[Key, bool] = {}
    relevant = [rejection for rejection in informative if _is_relevant(universe, rejection, subjects, is_forbidden)]
    groups: _Groups = {}
    for rejection in relevant or informative:
        need = rejection.need.text if isinstance(rejection.about, (PipKey, CudnnKey, CudaKey, SlotKey)) else ""
        groups.setdefault((_subject(rejection), rejection.about, need), []).append(rejection)
    ordered = sorted(_merge_packages(groups).items(), key=lambda item: item[0][1] not in subjects)
    causes = [_cause(subject, rejections) for (subject, _, _), rejections in ordered[:CAUSES]]
    if not causes:
        named = {condition.what for condition in core}
        causes = [
            Cause(what=f"{parent or 'the request'} needs {need.text}", because=need.because)
            for need, parent in failure.causes
            if parent is not None or need.text not in named
        ]
    return list(dict.fromkeys(causes))


def _merge_packages(groups: _Groups) -> _Groups:
    """Merge the packages of a framework that clash on the same fact or package: there are 15 of CuPy."""
    merged: _Groups = {}
    for key, rejections in groups.items():
        _, about, _ = key
        candidate, needs = rejections[0].candidate, {rejection.need.text for rejection in rejections}
        if isinstance(about, (GpuKey, PipKey)) and isinstance(candidate, (BuildCandidate, WheelCandidate)) and len(needs) == 1:
            key = (candidate.build.framework, about, needs.pop())  # noqa: PLW2901 - the key of the merged group
        merged.setdefault(key, []).extend(rejections)
    return merged


def _is_relevant(universe: Universe, rejection: Rejection, subjects: Collection[Subject], is_forbidden: dict[Key, bool]) -> bool:
    """False if a fact rejected the candidate and is not to blame: others are left, or the clash exists without the fact, too.

    `is_forbidden` caches whether the machine rejects every release of a package.
    """
    if universe.fact(rejection.about) is None or isinstance(rejection.about, LimitKey) or rejection.about == INDEX:
        return True
    if rejection.about not in subjects:
        return False
    candidate = rejection.candidate
    if not isinstance(candidate, PipCandidate) or isinstance(candidate, WheelCandidate) or candidate.release is None:
        return True
    if candidate.key not in is_forbidden:
        is_forbidden[candidate.key] = bool(universe.machine_filter.rejections_of_package(candidate.key, ()))
    return is_forbidden[candidate.key]


def missing_release_causes(universe: Universe, failure: Failure) -> list[Cause]:
    """Causes for packages that the indexes lack, entirely or in the needed versions."""
    causes: dict[str, Cause] = {}
    for need in (*(rejection.need for rejection in failure.rejections), *(need for need, _ in failure.causes)):
        if isinstance(need.key, PipKey) and need.key.name not in causes:
            cause = _missing_release_cause(universe, need.key.name, need.text, need.because)
            if cause is not None:
                causes[need.key.name] = cause
    return list(causes.values())


def _missing_release_cause(universe: Universe, name: str, text: str, because: str) -> Cause | None:
    context = universe.context
    requirement = parse_requirement(text)
    releases = context.releases.of(name)
    versions = [release.version for release in releases]
    matching = [release for release in releases if requirement is None or requirement.specifier.contains(release.version, prereleases=True)]
    if matching and all(release.details.yanked for release in matching):
        return Cause(what=yanked_text(name, sorted({release.version for release in matching})), because=because)
    if matching or universe.request.source is None or not context.offers.is_answered(name):
        return None
    left_out = "; ".join(context.offers.left_out(name))
    excluded = f"; left out: {left_out}" if left_out else ""
    if versions:
        newest = f"the newest release of {name} on the configured indexes is {versions[0]}"
        return Cause(what=f"no release matches {text}", because=f"{newest} ({because}){excluded}")
    if context.offers.accepts_by_hash(name):
        what = f"no file of {name} on the configured indexes has one of the given hashes"
    else:
        near = universe.book.nearest(name)
        what = f"no configured index has {name}" + (f" (did you mean {' or '.join(near)}?)" if near else "")
    return Cause(what=what, because=f"{because}{excluded}")


def _informative(rejections: Sequence[Rejection]) -> Iterator[Rejection]:
    """Rejections that neither repeat another one at a higher level nor concern a channel that was not requested."""
    contested = {rejection.about for rejection in rejections if rejection.against}
    is_only_one = len(rejections) == 1
    for rejection in rejections:
        candidate, about = rejection.candidate, rejection.about
        if isinstance(candidate, BuildCandidate) and isinstance(about, PipKey):
            continue
        if not rejection.against and about in contested:
            continue  # another rejection shows both sides of the clash
        if isinstance(about, LibrariesKey) and not is_only_one:
            continue  # the channels have rejections of their own
        is_other_channel = isinstance(candidate, LibrariesCandidate) and candidate.channel != "pip"
        if is_other_channel and not isinstance(about, InstalledKey) and not is_only_one:
            continue
        if isinstance(candidate, PipCandidate) and candidate.key.name.startswith("nvidia-cudnn") and about == CUDNN:
            continue
        yield rejection


def _subject(rejection: Rejection) -> str:
    """Common name of the rejected candidates in a group."""
    candidate = rejection.candidate
    if isinstance(candidate, WheelCandidate):
        return candidate.build.package
    if isinstance(candidate, BuildCandidate):
        # An installed framework rejects every distribution of another framework alike.
        return candidate.build.framework if isinstance(rejection.about, InstalledKey) else candidate.build.package
    if isinstance(candidate, LibrariesCandidate):
        if candidate.channel == "pip":
            return candidate.build.package  # the usual channel is not named
        return f"{candidate.build.package} with its CUDA libraries from {candidate.channel}"
    if isinstance(candidate, CudnnCandidate):
        return f"cuDNN {candidate.build.version.major} for CUDA {candidate.build.cuda_major} ({candidate.channel})"
    if isinstance(candidate, CudaCandidate):
        return f"CUDA {candidate.cuda.major} ({candidate.channel})"
    return candidate.key.name if isinstance(candidate, PipCandidate) else str(candidate)


def _cause(subject: str, rejections: Sequence[Rejection]) -> Cause:
    """The cause of a group of rejections."""
    first, last = rejections[0], rejections[-1]
    versions = list(dict.fromkeys(_version_of(rejection) for rejection in rejections))
    if len(versions) == 1:
        named = f"{subject} {versions[0]}"
    elif len(versions) <= _NAMED:
        named = f"{subject} ({', '.join(versions)})"
    else:
        named = f"{subject} ({versions[0]}, {versions[1]} … {versions[-1]})"
    needs = " or ".join(dict.fromkeys(rejection.need.text for rejection in rejections[:_NAMED]))
    because = (last if subject.startswith("cuDNN") else first).need.because
    if first.against and not isinstance(first.about, _FACTS):
        others = dict.fromkeys(
            f"{need.requested_by or parent or 'the request'} needs {need.text} ({need.because})" for need, parent in first.against[:_NAMED]
        )
        because = f"{because}; but {'; '.join(others)}"
    return Cause(what=f"{named} needs {needs}", because=because)


def _version_of(rejection: Rejection) -> str:
    candidate = rejection.candidate
    return candidate.build.wheel_version if isinstance(candidate, LibrariesCandidate) else candidate.version


def yanked_text(name: str, versions: Sequence[Version]) -> str:
    """`cupy 13.5.0 was withdrawn (yanked), and is used only if pinned: cupy==13.5.0`."""
    verb = "was" if len(versions) == 1 else "were"
    listed = ", ".join(map(str, versions))
    return f"{name} {listed} {verb} withdrawn (yanked), and is used only if pinned: {name}=={versions[-1]}"
