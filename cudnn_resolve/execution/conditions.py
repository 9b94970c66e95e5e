"""What must hold before anything changes, and afterwards: is the environment what the plan says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.installed import record_paths
from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.host import disk
from cudnn_resolve.version import same_version

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.exchange import Exchange
    from cudnn_resolve.execution.installed import Installed
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.execution.wheel import Wheel
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.host.protocol import Host


_NVIDIA = re.compile(r"nvidia-([a-z0-9-]+?)-cu[0-9]{2}", re.ASCII)
_SPARE_BYTES = 1 << 20
_MAPS_BYTES = 4 << 20
_RECORD_BYTES = 64 << 20


def check_before(task: Task, host: Host, environment: Environment) -> tuple[str, ...]:
    """What the user should know; WorldError where the environment cannot be changed."""
    if task.install or task.remove or task.preload or task.apart:
        require_writable(environment)
    return tuple(_in_use(task, host, environment))


def require_writable(environment: Environment) -> None:
    """Reject an environment that this user may not change; raises WorldError."""
    for kind in ("purelib", "platlib", "scripts"):
        folder = environment.scheme[kind]
        if not disk.writable(folder):
            raise WorldError(
                f"this user may not write to {folder}",
                code="permission",
                context=folder,
                hint=f"make an environment of your own: `{environment.python} -m venv .venv`, then add `--python .venv`",
            )


def _in_use(task: Task, host: Host, environment: Environment) -> Iterator[str]:
    """A line for each process that has libraries of packages loaded that are about to be replaced."""
    leaving = {one.name for one in task.install if one.installed} | set(task.remove)
    roots = dict.fromkeys((environment.scheme["purelib"], environment.scheme["platlib"])) if leaving else ()
    folders = {folder for root in roots for folder in _library_folders(leaving, root, host)}
    if not folders:
        return
    for name in host.list_dir("/proc"):
        if not name.isdigit():
            continue
        columns = (line.split(None, 5)[5:] for line in (host.read_text(f"/proc/{name}/maps", _MAPS_BYTES) or "").splitlines())
        if not folders.isdisjoint(path.rpartition("/")[0] for mapped in columns for path in mapped):
            who = (host.read_text(f"/proc/{name}/comm") or "a program").strip()
            yield f"{who} (process {name}) has loaded packages that are replaced: restart it afterwards"


def _library_folders(names: set[str], root: str, host: Host) -> Iterator[str]:
    """Folders in which libraries of these packages lie: a package and what it is imported as may have two names."""
    for entry in host.list_dir(root):
        stem, _, suffix = entry.rpartition(".")
        if suffix == "dist-info" and canonicalize_name(stem.partition("-")[0]) in names:
            for path in record_paths(host.read_text(f"{root}/{entry}/RECORD", _RECORD_BYTES) or "", root):
                folder, _, file = path.rpartition("/")
                if folder.startswith(f"{root}/") and (file.endswith(".so") or ".so." in file):
                    yield folder


def package_folder(name: str) -> str:
    """Where the files of a package lie beside those of others: `nvidia/cudnn` for nvidia-cudnn-cu12."""
    found = _NVIDIA.fullmatch(name)
    return f"nvidia/{found[1].replace('-', '_')}" if found else name.replace("-", "_")


def installed_outside(task: Task, installed: Mapping[str, Installed]) -> None:
    """Reject the removal of a package outside of this environment's own folders; raises WorldError."""
    missing = [name for name in task.remove if name not in installed]
    if missing:
        raise WorldError(
            f"{', '.join(missing)} must go, but does not lie in this environment's own folders",
            code="remove-outside",
            hint="use an environment of your own, without the packages of the system",
        )


def check_room(wheels: Sequence[Wheel], exchange: Exchange, store: str, environment: Environment) -> int:
    """Bytes that what leaves will take where it is kept, 0 where it is only renamed; WorldError where it does not fit on the disk."""
    target = environment.scheme["purelib"]
    needed = sum(wheel.unpacked for wheel in wheels) + (_SPARE_BYTES if wheels else 0)
    free = disk.free_bytes(target)
    if wheels and needed > free:
        raise _full(needed, free, target)
    if disk.device_of(store) == disk.device_of(target):
        return 0
    saved = sum(disk.size_of(path) for path in exchange.save)
    if saved > disk.free_bytes(store):
        raise _full(saved, disk.free_bytes(store), store)
    return saved


def mib(count: int) -> str:
    """Bytes for a reader."""
    return f"{count / (1 << 20):.{0 if count >= 10 << 20 else 2}f} MiB"


def _full(needed: int, free: int, folder: str) -> WorldError:
    return WorldError(
        f"{mib(needed)} are needed and {mib(free)} are free",
        code="disk-full",
        context=folder,
        hint="make room there; nothing was changed",
    )


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
    if facts.frameworks is UNKNOWN or task.preload or task.apart:
        return
    for one in facts.frameworks:
        wanted = (task.cudnn or {}).get(one.name)
        found = one.would_load
        if wanted and found is not None and found.version and not agree(wanted, found.version):
            yield f"{one.name} would load cuDNN {found.version} from {found.path}, not {wanted}: {found.because}"


def agree(one: str, other: str) -> bool:
    """True where two versions are the same as far as both say: 9.1 agrees with 9.1.0.70, and not with 9.10.2.21."""
    return all(first == second for first, second in zip(one.split("."), other.split("."), strict=False))
