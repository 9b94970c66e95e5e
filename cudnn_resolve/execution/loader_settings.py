"""Loader settings of an environment: the preload and the separate folder in site-packages, the linker cache, the activation script."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.installed import installed_packages
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import disk
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool
from cudnn_resolve.planning.preload import IMPORT_NAMES, MODULE, preload_pth, preload_source, preloaded_names
from cudnn_resolve.version import CudnnVersion, same_version, versions_agree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import PipAction


ACTIVATION = "cudnn-resolve-activate.sh"
"""Name of the activation script, in the environment's scripts folder."""
_LINKER_CONFIG = "/etc/ld.so.conf.d/cudnn-resolve.conf"


def is_done(task: Task, work: Work) -> bool:
    """Return whether a task changes nothing."""
    return not (
        task.install
        or task.remove
        or task.unpinned
        or task.apt
        or missing_folder_wheels(task, work.host, work.environment)
        or linker_cache_change(task, work.host)
        or own_files(task, work)
    )


def own_files(task: Task, work: Work) -> dict[str, bytes | None]:
    """Return the files that this program itself writes into the environment, None for those that it removes."""
    return {**preload_change(task, work.host, work.environment), **activation_change(task, work.host, work.environment)}


# ---- the preload


def preload_change(task: Task, host: Host, environment: Environment) -> dict[str, bytes | None]:
    """Return the preload files to write, None for those to remove; empty if they are as they should be.

    An installed framework outside of the task keeps its preload.
    """
    folder = environment.scheme["purelib"]
    module, link = f"{folder}/{MODULE}.py", f"{folder}/{MODULE}.pth"
    requested = {IMPORT_NAMES.get(name, name) for name in task.frameworks}
    current = preloaded_names(host.read_text(module) or "")
    preload, folder_preload = (
        _merged(names, existing, requested)
        for names, existing in zip((task.preload, task.folder_frameworks), current or ((), ()), strict=True)
    )
    # Without a framework that uses it, the separate folder is removed.
    files: dict[str, bytes | None] = {} if folder_preload else folder_files(environment)
    if not (preload or folder_preload):
        obsolete = [path for path in (module, link) if current is not None and host.stat(path) is not None]
        return {**files, **dict.fromkeys(obsolete)}
    texts = {module: preload_source(preload, folder_preload), link: preload_pth()}
    return {**files, **{path: text.encode() for path, text in texts.items() if host.read_text(path) != text}}


def _merged(frameworks: Iterable[str], existing: Iterable[str], requested: set[str]) -> tuple[str, ...]:
    """Modules of these frameworks, and of existing ones that are not part of the task."""
    modules = {IMPORT_NAMES.get(name, name) for name in frameworks}
    return tuple(sorted(modules | {name for name in existing if name not in requested}))


def preload_differences(task: Task, host: Host, environment: Environment) -> tuple[str, ...]:
    """Run the preload in a child process, and describe a cuDNN that differs from the planned one."""
    versions = {wheel.version for wheel in task.folder_wheels} or set(task.cudnn.values())
    modules = [IMPORT_NAMES.get(name, name) for name in (*task.folder_frameworks[:1], *task.preload[:1])]
    if not modules or len(versions) != 1:
        return ()
    planned = versions.pop()
    argv = [environment.python, "-B", payload_path("execution/payload_preload.py"), MODULE, modules[0]]
    answer = answer_of(host.run(argv, timeout_seconds=60).stdout) or {}
    found = CudnnVersion.from_encoded(answer["version"]) if isinstance(answer.get("version"), int) else None
    if found is None or versions_agree(planned, str(found)):
        return ()
    return (f"the preload loads cuDNN {found} from {answer.get('path')}, not {planned}",)


# ---- the separate folder for a second cuDNN


def folder_environment(environment: Environment) -> Environment:
    """Return the environment as an installer sees it that writes into the separate folder."""
    folder = f"{environment.scheme['purelib']}/{FOLDER}"
    return replace(environment, scheme={**environment.scheme, "purelib": folder, "platlib": folder})


def folder_files(environment: Environment) -> dict[str, bytes | None]:
    """Return every file of the separate folder, to be removed."""
    folder = folder_environment(environment).scheme["purelib"]
    return dict.fromkeys(disk.files_below(folder)) if disk.kind(folder) == "folder" else {}


def missing_folder_wheels(task: Task, host: Host, environment: Environment) -> tuple[PipAction, ...]:
    """Return the library wheels that the separate folder lacks."""
    installed = installed_packages(host, folder_environment(environment))
    return tuple(
        wheel
        for wheel in task.folder_wheels
        if wheel.name not in installed or not same_version(installed[wheel.name].version, wheel.version)
    )


# ---- the activation script, for users who cannot change the linker cache


def activation_change(task: Task, host: Host, environment: Environment) -> dict[str, bytes | None]:
    """Return the activation script if it is needed and not there yet."""
    path = f"{environment.scheme['scripts']}/{ACTIVATION}"
    if not task.linker_folders or disk.is_root():
        return {}
    text = activation(task.linker_folders)
    return {} if host.read_text(path) == text else {path: text.encode()}


def activation(folders: tuple[str, ...]) -> str:
    """Return shell lines that append folders to the user's LD_LIBRARY_PATH, without repeating any."""
    lines = ["# made by cudnn-resolve: `source` it before programs are started; those that run already do not see it (ld.so(8))"]
    for folder in folders:
        quoted = shlex.quote(folder)
        lines.append(f'case ":${{LD_LIBRARY_PATH:-}}:" in *:{quoted}:*) ;;')
        lines.append(f'  *) LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{quoted} ;; esac')
    return "\n".join([*lines, "export LD_LIBRARY_PATH"]) + "\n"


# ---- the linker cache


def linker_cache_change(task: Task, host: Host) -> str | None:
    """Return the new content of the linker's configuration; None if it is right, not needed, or this user is not root."""
    if not task.linker_folders or not disk.is_root():  # other users get the activation script instead
        return None
    text = "".join(f"{folder}\n" for folder in task.linker_folders)
    return None if host.read_text(_LINKER_CONFIG) == text else text


def write_linker_cache(text: str, journal: Journal, tooling: Tooling) -> None:
    """Write the linker's configuration and update its cache; raises WorldError if ldconfig fails."""
    before = disk.content(_LINKER_CONFIG, 1 << 16)
    journal.add("cache", before=None if before is None else before.decode("utf-8", "replace"))
    journal.add("change")
    disk.write_whole(_LINKER_CONFIG, text.encode())
    result = _run_ldconfig(tooling)
    if not result.ok:
        raise WorldError(f"ldconfig failed: {result.why()}", code="ldconfig", context=tooling.log)


class _CacheRecord(Struct, frozen=True):
    before: str | None = None
    """Previous content of the linker's configuration; None if it did not exist."""


def restore_linker_cache(past: PastApply, tooling: Tooling) -> tuple[str, ...]:
    """Restore the linker's configuration and cache; returns what could not be put back, raises WorldError if the disk refuses."""
    record = past.last_of("cache", _CacheRecord)
    if record is None:
        return ()
    if record.before is None:
        disk.remove(_LINKER_CONFIG)
    else:
        disk.write_whole(_LINKER_CONFIG, record.before.encode("utf-8", "replace"))
    result = _run_ldconfig(tooling)
    return () if result.ok else (f"ldconfig failed: {result.why()}",)


def _run_ldconfig(tooling: Tooling) -> ToolResult:
    path = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    return run_tool(("ldconfig",), tooling, env={**tooling.environ, "LC_ALL": "C", "PATH": path})
