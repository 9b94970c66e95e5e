"""What was seen against what a lock pins, and the record of a lock that is proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cudnn_resolve.facts.model import Facts, Unknown
from cudnn_resolve.record import dataclass
from cudnn_resolve.validation.child import Told
from cudnn_resolve.validation.loading import seen_in
from cudnn_resolve.validation.model import Check, Validation, VisibleGpu
from cudnn_resolve.validation.subject import Subject
from cudnn_resolve.version import CudnnVersion

_MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """What a lock says about the environment that it was made for."""

    packages: Mapping[str, str]
    """Normalized name to version."""
    cudnn: str | None = None


def judge_packages(pinned: Pinned, facts: Facts) -> Check:
    """Every package of the lock is installed in its version."""
    installed = {} if isinstance(facts.packages.pip, Unknown) else facts.packages.pip
    wrong = [
        f"{name} {installed.get(name) or 'is not installed'} instead of {version}"
        if name in installed
        else f"{name} {version} is not installed"
        for name, version in sorted(pinned.packages.items())
        if installed.get(name) != version
    ]
    more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
    return Check(
        id="lock/packages",
        status="failed" if wrong else "passed",
        expected=f"the {len(pinned.packages)} packages of the lock",
        observed=f"{'; '.join(wrong[:_MOST_NAMED])}{more}" if wrong else "they are installed",
        detail="`cudnn-resolve apply` brings the environment to what the lock says" if wrong else "",
    )


def judge_pinned(pinned: Pinned, subjects: Sequence[Subject], told: Sequence[Told]) -> Iterator[Check]:
    """Every framework loads the cuDNN of the lock."""
    wanted = _numbers(pinned.cudnn)
    for subject, one in zip(subjects, told, strict=True):
        for cudnn in seen_in(one).cudnns:
            if wanted is None or cudnn.version is None:
                continue
            same = _numbers(cudnn.version.text) == wanted
            yield Check(
                id=f"lock/{subject.name}",
                framework=subject.name,
                status="passed" if same else "failed",
                expected=f"cuDNN {pinned.cudnn}, which the lock pins",
                observed=f"cuDNN {cudnn.version} from {cudnn.path.rpartition('/')[0]}",
                detail="" if same else "another copy is found first: `cudnn-resolve detect` says by which rule",
            )


def _numbers(text: str | None) -> tuple[int, ...] | None:
    """Major, minor and patch: a library does not tell its build."""
    try:
        return CudnnVersion(text).parts[:3] if text else None
    except ValueError:
        return None


def records_of(validation: Validation, date: str, python: str | None) -> tuple[dict[str, object], ...]:
    """A record for each GPU on which everything passed; none where anything failed or nothing was computed."""
    if validation.status != "passed":
        return ()
    return tuple(_record(validation, gpu, date, python) for gpu in validation.gpus)


def _record(validation: Validation, gpu: VisibleGpu, date: str, python: str | None) -> dict[str, object]:
    own = [check for check in validation.checks if check.gpu in (None, gpu.index)]
    fields: dict[str, object | None] = {
        "gpu": gpu.name or "unknown",
        "compute_capability": gpu.compute_capability,
        "driver": validation.driver,
        "date": date,
        "python": python,
        "frameworks": dict(validation.frameworks),
        "loaded": dict(validation.loaded),
        "passed": sum(check.status == "passed" for check in own),
        "skipped": sum(check.status == "skipped" for check in own),
        "warnings": [check.id for check in own if check.status == "warning"],
        "classes": sorted({_class_of(check) for check in own if check.group and check.status == "passed"}),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _class_of(check: Check) -> str:
    """Who computed what, `torch/conv2d-strided`, without the number of a card."""
    words = check.id.split("/")
    words = words[1:] if words[0].startswith("gpu") else words
    return "/".join(words[: 3 if words[0] == "cudnn" else 2])
