"""What an `apply` has to bring about, whether a plan says so or a lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.planning.safe import check_apt, check_folders, check_name, check_pip

if TYPE_CHECKING:
    from cudnn_resolve.planning.model import AptAction, AptRepository, PipAction, Plan


class Task(Struct, frozen=True, kw_only=True):
    """Everything that is to be changed, and what must be seen afterwards."""

    targets: tuple[str, ...]
    install: tuple[PipAction, ...] = ()
    remove: tuple[str, ...] = ()
    apt: tuple[AptAction, ...] = ()
    repositories: tuple[AptRepository, ...] = ()
    frameworks: tuple[str, ...] = ()
    """Those of the stack, as the matrix calls them."""
    preload: tuple[str, ...] = ()
    """Frameworks whose libraries are loaded for them."""
    cached: tuple[str, ...] = ()
    """Folders for the linker cache."""
    pinned: Mapping[str, str] | None = None
    """Every pip package of the stack with its version, kept ones included."""
    cudnn: Mapping[str, str] | None = None
    """Distribution of a framework to the cuDNN that it must load."""
    unpinned: tuple[str, ...] = ()


def task_of(plan: Plan, framework_of: Callable[[str], str | None] = lambda name: name) -> Task:
    """What a plan asks for; InputError where a name or a version is none.

    `framework_of` says which framework a distribution is: `onnxruntime-gpu` is onnxruntime.
    """
    stack = tuple(one for one in plan.stack.frameworks if one.asked) if plan.stack else ()
    task = Task(
        targets=plan.targets,
        install=tuple(one for one in plan.pip if one.action in ("install", "upgrade", "downgrade")),
        remove=tuple(one.name for one in plan.pip if one.action == "remove"),
        apt=tuple(one for one in plan.apt if one.action != "keep"),
        repositories=tuple(step.repository for step in plan.steps if step.repository is not None),
        frameworks=tuple(dict.fromkeys(framework_of(one.name) or one.name for one in stack)),
        preload=tuple(name for one in plan.environment if one.kind == "preload" for name in one.value.split()),
        cached=tuple(path for one in plan.environment if one.kind == "ldconfig" for path in one.value.split(":")),
        pinned={one.name: one.version for one in plan.pip if one.action != "remove"},
        cudnn={one.name: one.cudnn for one in stack if one.cudnn},
        unpinned=plan.unpinned,
    )
    check_task(task)
    return task


def check_task(task: Task) -> None:
    """Reject names, versions and paths that a tool which gets them could read as something else."""
    for one in task.install:
        check_pip(one.name, one.version)
    for name in task.remove:
        check_name(name)
    for package in task.apt:
        check_apt(package.name, package.version)
    check_folders(task.cached)
