"""Looks at an environment after a change: is it what the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.version import same_version

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.facts.model import Facts


def differences(task: Task, facts: Facts) -> tuple[str, ...]:
    """What is not as planned, in words; empty where everything is."""
    return (*_pip(task, facts), *_cudnn(task, facts))


def _pip(task: Task, facts: Facts) -> Iterator[str]:
    known = facts.packages.pip
    if not isinstance(known, Mapping):
        yield "the packages of the environment cannot be listed any more"
        return
    for name, version in (task.pinned or {}).items():
        here = known.get(name)
        if here is None:
            yield f"{name} {version} is not there"
        elif not same_version(here, version, local=False):
            yield f"{name} is {here}, not {version}"
    for name in task.remove:
        if name in known:
            yield f"{name} {known[name]} is still there"


def _cudnn(task: Task, facts: Facts) -> Iterator[str]:
    """Another cuDNN than planned, where it can be told which one is loaded; a preload decides by itself."""
    if facts.frameworks is UNKNOWN or task.preload:
        return
    for one in facts.frameworks:
        wanted = (task.cudnn or {}).get(one.name)
        found = one.would_load
        if wanted and found is not None and found.version and not agree(wanted, found.version):
            yield f"{one.name} would load cuDNN {found.version} from {found.path}, not {wanted}: {found.because}"


def agree(one: str, other: str) -> bool:
    """True where two versions are the same as far as both say: 9.1 agrees with 9.1.0.70, and not with 9.10.2.21."""
    return all(first == second for first, second in zip(one.split("."), other.split("."), strict=False))
