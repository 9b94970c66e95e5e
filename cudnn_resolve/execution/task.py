"""What an `apply` has to bring about, whether a plan says so or a lock, and what it is carried out with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from cudnn_resolve.execution.fetch import Download, download_local
from cudnn_resolve.execution.model import Reporter
from cudnn_resolve.host.run_tool import Tooling
from cudnn_resolve.planning.preload import folder_actions
from cudnn_resolve.planning.tool_input import check_apt, check_folders, check_name, check_pip

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal, Journals
    from cudnn_resolve.host.environment_lock import Hold
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import AptAction, AptRepository, PipAction, Plan
    from cudnn_resolve.requirement.source import Contents


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
    apart: tuple[str, ...] = ()
    """Frameworks whose cuDNN is in the folder of its own."""
    folder: tuple[PipAction, ...] = ()
    """Library wheels that must be in that folder."""
    cached: tuple[str, ...] = ()
    """Folders for the linker cache."""
    pinned: Mapping[str, str] | None = None
    """Every pip package of the stack with its version, kept ones included."""
    cudnn: Mapping[str, str] | None = None
    """Distribution of a framework to the cuDNN that it must load."""
    unpinned: tuple[str, ...] = ()
    without_gpu: tuple[str, ...] = ()
    """Distributions of frameworks that are asked for without CUDA libraries."""


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
        apart=tuple(name for one in plan.environment if one.kind == "folder" for name in one.value.split()),
        folder=folder_actions(plan.environment),
        cached=tuple(path for one in plan.environment if one.kind == "ldconfig" for path in one.value.split(":")),
        pinned={one.name: one.version for one in plan.pip if one.action != "remove"},
        cudnn={one.name: one.cudnn for one in stack if one.cudnn},
        unpinned=plan.unpinned,
        without_gpu=tuple(one.name for one in stack if one.libraries == "none"),
    )
    check_task(task)
    return task


def check_task(task: Task) -> None:
    """Reject names, versions and paths that a tool which gets them could read as something else."""
    for one in (*task.install, *task.folder):
        check_pip(one.name, one.version)
    for name in task.remove:
        check_name(name)
    for package in task.apt:
        check_apt(package.name, package.version)
    check_folders(task.cached)


class Work(Struct, frozen=True, kw_only=True):
    """Execution context."""

    host: Host
    environment: Environment
    journals: Journals
    hold: Hold
    words: tuple[str, ...] = ()
    """The words of the command line that ask for it, so that it can be done again."""
    reporter: Reporter = field(default_factory=Reporter)
    download: Download = download_local
    verify: Callable[[], tuple[str, ...]] = tuple
    """Looks at the environment again; the differences to what was planned, in words."""
    watch: Callable[[str], None] | None = None
    installer: str = "auto"
    managed: bool = False
    """True where an environment that the system manages may be changed."""
    members: Callable[[Any], Contents | None] | None = None
    """What is in a wheel that is not here yet; where it can be asked, uv may fetch by itself, into its own cache."""
    online: bool = False
    """True where files may be fetched from other machines."""
    force: bool = False
    """True where the user has read what others did to the environment meanwhile, and wants it put back all the same."""
    trusted: bool = False
    """True where files that nobody knows a hash of may be installed."""

    def tooling(self, journal: Journal) -> Tooling:
        """What tools of this run have in common."""
        return Tooling(log=journal.log, share=(self.hold.handle,), cwd=journal.folder)
