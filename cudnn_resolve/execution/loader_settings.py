"""The loader part: a preload in site-packages, or a file for the linker cache."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.conditions import agree
from cudnn_resolve.execution.installed import installed_packages
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import disk
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.run_tool import Tooling, run_tool
from cudnn_resolve.planning.preload import IMPORT_NAMES, MODULE, preload_pth, preload_source, preloaded_names
from cudnn_resolve.version import CudnnVersion, same_version

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import PipAction


ACTIVATION = "cudnn-resolve-activate.sh"
"""A script beside the environment's programs."""


def is_done(task: Task, work: Work) -> bool:
    """True where nothing has to be changed."""
    changes = task.install or task.remove or task.unpinned or task.apt
    settings = folder_wheels(task, work.host, work.environment) or cache_change(task, work.host) or own_files(task, work)
    return not (changes or settings)


def own_files(task: Task, work: Work) -> dict[str, bytes | None]:
    """Files that this program itself writes into the environment, None for those that go."""
    activation = activation_change(task, work.host, work.environment, root=disk.is_root())
    return {**preload_change(task, work.host, work.environment), **activation}


def preload_change(task: Task, host: Host, environment: Environment) -> dict[str, bytes | None]:
    """Files of the preload that are to be written, or None for those that go; empty where all is as it should be.

    A framework that is installed and not spoken of keeps the preload that it has.
    """
    folder = environment.scheme["purelib"]
    module, link = f"{folder}/{MODULE}.py", f"{folder}/{MODULE}.pth"
    here = host.read_text(module) or ""
    asked = {IMPORT_NAMES.get(name, name) for name in task.frameworks}
    there = preloaded_names(here)
    wanted = [
        tuple(sorted({IMPORT_NAMES.get(one, one) for one in now} | {one for one in named if one not in asked}))
        for now, named in zip((task.preload, task.apart), there or ((), ()), strict=True)
    ]
    # Where nobody lives on the folder any more, it goes.
    files: dict[str, bytes | None] = {} if wanted[1] else files_of_folder(environment)
    if not any(wanted):
        return {**files, **{path: None for path in (module, link) if there is not None and host.stat(path) is not None}}
    texts = {module: preload_source(*wanted), link: preload_pth()}
    return {**files, **{path: text.encode() for path, text in texts.items() if host.read_text(path) != text}}


def files_of_folder(environment: Environment) -> dict[str, bytes | None]:
    """Every file of the folder of libraries, to go."""
    folder = in_folder(environment).scheme["purelib"]
    return dict.fromkeys(disk.files_below(folder)) if disk.kind(folder) == "folder" else {}


def folder_wheels(task: Task, host: Host, environment: Environment) -> tuple[PipAction, ...]:
    """Library wheels that the folder lacks."""
    here = installed_packages(host, in_folder(environment))
    return tuple(one for one in task.folder if one.name not in here or not same_version(here[one.name].version, one.version))


def in_folder(environment: Environment) -> Environment:
    """The environment as an installer sees it that lays packages down in the folder."""
    folder = f"{environment.scheme['purelib']}/{FOLDER}"
    return replace(environment, scheme={**environment.scheme, "purelib": folder, "platlib": folder})


def activation_change(task: Task, host: Host, environment: Environment, *, root: bool) -> dict[str, bytes | None]:
    """A script for shells, where folders must be found and the linker cache cannot be changed; empty where it is there, or not needed."""
    path = f"{environment.scheme['scripts']}/{ACTIVATION}"
    if not task.cached or root:
        return {}
    text = activation(task.cached)
    return {} if host.read_text(path) == text else {path: text.encode()}


def activation(paths: tuple[str, ...]) -> str:
    """Lines for a shell that add folders behind what the user's own LD_LIBRARY_PATH names, each once."""
    lines = ["# made by cudnn-resolve: `source` it before programs are started; those that run already do not see it (ld.so(8))"]
    for path in paths:
        quoted = shlex.quote(path)
        lines.append(f'case ":${{LD_LIBRARY_PATH:-}}:" in *:{quoted}:*) ;;')
        lines.append(f'  *) LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{quoted} ;; esac')
    return "\n".join([*lines, "export LD_LIBRARY_PATH"]) + "\n"


def loaded_by_preload(task: Task, host: Host, environment: Environment) -> tuple[str, ...]:
    """What is not as planned in a process that has gone through the preload: another cuDNN than the one that is wanted."""
    wanted = {one.version for one in task.folder} or set((task.cudnn or {}).values())
    modules = [IMPORT_NAMES.get(name, name) for name in (*task.apart[:1], *task.preload[:1])]
    if not modules or len(wanted) != 1:
        return ()
    version = wanted.pop()
    argv = [environment.python, "-B", payload_path("execution/payload_preload.py"), MODULE, modules[0]]
    told = answer_of(host.run(argv, timeout_seconds=60)) or {}
    found = CudnnVersion.from_encoded(told["version"]) if isinstance(told.get("version"), int) else None
    if found is None or agree(version, str(found)):
        return ()
    return (f"the preload brings cuDNN {found} from {told.get('path')}, not {version}",)


FILE = "/etc/ld.so.conf.d/cudnn-resolve.conf"
_LDCONFIG = "ldconfig"


def cache_change(task: Task, host: Host) -> str | None:
    """The text that the file is to have; None where it is not needed, or has it already."""
    if not task.cached or not disk.is_root():  # without root there is a script for shells instead
        return None
    text = "".join(f"{path}\n" for path in task.cached)
    return None if host.read_text(FILE) == text else text


def write_cache(text: str, journal: Journal, tooling: Tooling) -> None:
    """Put the folders into the linker cache; WorldError where ldconfig fails."""
    before = disk.content(FILE, 1 << 16)
    journal.add("cache", before=None if before is None else before.decode("utf-8", "replace"))
    journal.add("change")
    disk.write_whole(FILE, text.encode())
    done = run_tool((_LDCONFIG,), tooling, env=_environ())
    if not done.ok:
        raise WorldError(f"ldconfig failed: {done.why()}", code="ldconfig", context=tooling.log)


class _Cache(Struct, frozen=True):
    before: str | None = None
    """The text of the file; None where there was none."""


def restore_cache(past: PastApply, tooling: Tooling) -> tuple[str, ...]:
    """What could not be put back; the file is as it was, or not there."""
    records = past.told("cache", _Cache)
    if not records:
        return ()
    before = records[-1].before
    try:
        if before is None:
            disk.remove(FILE)
        else:
            disk.write_whole(FILE, before.encode("utf-8", "replace"))
    except WorldError as error:
        return (error.message,)
    done = run_tool((_LDCONFIG,), tooling, env=_environ())
    return () if done.ok else (f"ldconfig failed: {done.why()}",)


def _environ() -> dict[str, str]:
    return {**LinuxHost().environ, "LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"}
