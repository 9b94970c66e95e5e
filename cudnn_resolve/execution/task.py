"""What an `apply` has to change, and the context in which it does so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.execution.fetch import Download, download_local
from cudnn_resolve.host.run_tool import Tooling
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.planning.preload import folder_actions, frameworks_of
from cudnn_resolve.planning.tool_input import check_apt, check_folders, check_name, check_pip

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.journal_store import Journals
    from cudnn_resolve.host.environment_mutex import Hold
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import AptAction, AptRepository, PipAction, Plan
    from cudnn_resolve.requirement.source import Contents, File


class Task(Struct, frozen=True, kw_only=True):
    """The changes that a plan makes, and what must hold afterwards."""

    targets: tuple[str, ...]
    install: tuple[PipAction, ...] = ()
    remove: tuple[str, ...] = ()
    apt: tuple[AptAction, ...] = ()
    repositories: tuple[AptRepository, ...] = ()
    frameworks: tuple[str, ...] = ()
    """Requested frameworks by their names in the matrix."""
    preload: tuple[str, ...] = ()
    """Frameworks whose libraries a preload loads."""
    folder_frameworks: tuple[str, ...] = ()
    """Frameworks that use the cuDNN in the separate folder."""
    folder_wheels: tuple[PipAction, ...] = ()
    """Library wheels that belong into the separate folder."""
    linker_folders: tuple[str, ...] = ()
    """Folders for the linker cache."""
    pinned: Mapping[str, str] = {}
    """Version of every pip package of the plan, kept ones included."""
    cudnn: Mapping[str, str] = {}
    """Distribution of a framework to the cuDNN that it must load."""
    unpinned: tuple[str, ...] = ()
    without_gpu: tuple[str, ...] = ()
    """Distributions of frameworks that were requested without CUDA libraries."""


def task_of(plan: Plan, framework_of: Callable[[str], str | None] = lambda name: name) -> Task:
    """Return the task of a plan; raises InputError for an invalid name or version.

    `framework_of` maps a distribution to its framework, `onnxruntime-gpu` to onnxruntime.
    """
    stack = tuple(framework for framework in plan.stack.frameworks if framework.asked) if plan.stack else ()
    task = Task(
        targets=plan.targets,
        install=tuple(action for action in plan.pip if action.action in ("install", "upgrade", "downgrade")),
        remove=tuple(action.name for action in plan.pip if action.action == "remove"),
        apt=tuple(package for package in plan.apt if package.action != "keep"),
        repositories=tuple(step.repository for step in plan.steps if step.repository is not None),
        frameworks=tuple(dict.fromkeys(framework_of(framework.name) or framework.name for framework in stack)),
        preload=frameworks_of(plan.environment, "preload"),
        folder_frameworks=frameworks_of(plan.environment, "folder"),
        folder_wheels=folder_actions(plan.environment),
        linker_folders=tuple(path for entry in plan.environment if entry.kind == "ldconfig" for path in entry.value.split(":")),
        pinned={action.name: action.version for action in plan.pip if action.action != "remove"},
        cudnn={framework.name: framework.cudnn for framework in stack if framework.cudnn},
        unpinned=plan.unpinned,
        without_gpu=tuple(framework.name for framework in stack if framework.libraries == "none"),
    )
    check_task(task)
    return task


def check_task(task: Task) -> None:
    """Raise InputError for a name, version or path that a tool could mistake for something else."""
    for action in (*task.install, *task.folder_wheels):
        check_pip(action.name, action.version)
    for name in task.remove:
        check_name(name)
    for package in task.apt:
        check_apt(package.name, package.version)
    check_folders(task.linker_folders)


class Work(Struct, frozen=True, kw_only=True):
    """Execution context."""

    host: Host
    journals: Journals
    hold: Hold
    words: tuple[str, ...] = ()
    """Command-line words that request the same `apply`; `--resume` repeats them."""
    listener: Listener = SILENT
    download: Download = download_local
    verify: Callable[[], tuple[str, ...]] = tuple
    """Inspects the changed environment and returns its differences from the plan."""
    installer: str = "auto"
    managed: bool = False
    """True if an environment that the system manages may be changed."""
    members: Callable[[File], Contents | None] | None = None
    """Lists the members of a remote wheel; uv may only fetch wheels into its own cache if this is set."""
    online: bool = False
    """True if files may be fetched from other machines."""
    force: bool = False
    """True if the user accepts what others changed in the environment, and wants files put back nevertheless."""
    trusted: bool = False
    """True if files without known hashes may be installed."""

    @property
    def environment(self) -> Environment:
        """The environment that is changed."""
        return self.journals.environment

    def tooling(self, journal: Journal) -> Tooling:
        """Settings shared by all tools of this run."""
        return Tooling(log=journal.log, share=(self.hold.handle,), environ=self.host.environ, cwd=journal.folder)
