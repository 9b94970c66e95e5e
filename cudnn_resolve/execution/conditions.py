"""Conditions that must hold before an environment is changed, and its differences from the plan afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.errors import WorldError, mib
from cudnn_resolve.execution.installed import installed_packages, listed_files
from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.host import disk
from cudnn_resolve.version import same_version, versions_agree

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.exchange import Exchange
    from cudnn_resolve.execution.installable_wheel import Wheel
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.host.installed_files import InstalledPackage
    from cudnn_resolve.host.protocol import Host


_NVIDIA = re.compile(r"nvidia-([a-z0-9-]+?)-cu[0-9]{2}", re.ASCII)
_SPARE_BYTES = 1 << 20
_MAPS_BYTES = 4 << 20
_FREE_SOME = "free some space there; nothing was changed"


def check_before(task: Task, host: Host, environment: Environment) -> tuple[str, ...]:
    """Return notes for the user; raises WorldError if the environment cannot be changed."""
    if task.install or task.remove or task.preload or task.folder_frameworks:
        require_writable(environment)
    return tuple(_in_use(task, host, environment))


def require_writable(environment: Environment) -> None:
    """Raise WorldError for an environment that this user may not change."""
    for kind in ("purelib", "platlib", "scripts"):
        folder = environment.scheme[kind]
        if not disk.writable(folder):
            raise WorldError(
                f"this user may not write to {folder}",
                code="permission",
                context=folder,
                hint=f"make your own environment, `{environment.python} -m venv .venv`, and add `--python .venv`",
            )


def _in_use(task: Task, host: Host, environment: Environment) -> Iterator[str]:
    """A note for each process that has loaded libraries of packages that are about to be replaced."""
    leaving = {action.name for action in task.install if action.installed} | set(task.remove)
    packages = installed_packages(host, environment).values() if leaving else ()
    paths = (path for package in packages if package.name in leaving for path in listed_files(host, package))
    folders = {path.rpartition("/")[0] for path in paths if path.endswith(".so") or ".so." in path}
    folders = {folder for folder in folders if folder.startswith(tuple(f"{root}/" for root in environment.packages))}
    if not folders:
        return
    for process in host.list_dir("/proc"):
        if not process.isdigit():
            continue
        maps = host.read_text(f"/proc/{process}/maps", _MAPS_BYTES) or ""
        mapped = (path for line in maps.splitlines() for path in line.split(None, 5)[5:])
        if not folders.isdisjoint(path.rpartition("/")[0] for path in mapped):
            command = (host.read_text(f"/proc/{process}/comm") or "a program").strip()
            yield f"{command} (process {process}) has loaded packages that are replaced: restart it afterwards"


def package_folder(name: str) -> str:
    """Return the folder of a package's files in site-packages: `nvidia/cudnn` for nvidia-cudnn-cu12."""
    nvidia = _NVIDIA.fullmatch(name)
    return f"nvidia/{nvidia[1].replace('-', '_')}" if nvidia else name.replace("-", "_")


def check_removals(task: Task, installed: Mapping[str, InstalledPackage]) -> None:
    """Raise WorldError if a package to remove is not in the environment's own folders."""
    missing = [name for name in task.remove if name not in installed]
    if missing:
        raise WorldError(
            f"{', '.join(missing)} must be removed but is outside of this environment's own folders",
            code="remove-outside",
            hint="use an environment of your own, without the system's packages",
        )


def check_room(wheels: Sequence[Wheel], exchange: Exchange, store: str, environment: Environment) -> int:
    """Return the bytes that saved files will take in the store, 0 if they are only renamed; raises WorldError if the disk is full."""
    target = environment.scheme["purelib"]
    if wheels:
        _require_free(sum(wheel.unpacked for wheel in wheels) + _SPARE_BYTES, "needed", target, _FREE_SOME)
    if disk.device_of(store) == disk.device_of(target):
        return 0
    saved = sum(disk.size_of(path) for path in exchange.save)
    _require_free(saved, "needed", store, _FREE_SOME)
    return saved


def check_room_for_download(size: int, folder: str) -> None:
    """Raise WorldError if files of this total size do not fit on the disk."""
    _require_free(size, "to download", folder, "free some space there, or set XDG_STATE_HOME to a folder on a larger disk")


def _require_free(size: int, purpose: str, folder: str, hint: str) -> None:
    free = disk.free_bytes(folder)
    if size > free:
        raise WorldError(f"disk full: {mib(size)} {purpose}, {mib(free)} free", code="disk-full", context=folder, hint=hint)


def differences(task: Task, facts: Facts) -> tuple[str, ...]:
    """Describe the differences of an environment from the plan; empty if there are none."""
    return (*_package_differences(task, facts), *_cudnn_differences(task, facts))


def _package_differences(task: Task, facts: Facts) -> Iterator[str]:
    installed = facts.packages.pip
    if not isinstance(installed, Mapping):
        yield "the packages of the environment cannot be listed any more"
        return
    for name, version in task.pinned.items():
        present = installed.get(name)
        if present is None:
            yield f"{name} {version} is missing"
        elif not same_version(present, version, local=False):
            yield f"{name} is {present}, not {version}"
    for name in task.remove:
        if name in installed:
            yield f"{name} {installed[name]} is still installed"


def _cudnn_differences(task: Task, facts: Facts) -> Iterator[str]:
    """Frameworks that would load another cuDNN than planned, as far as that is known; a preload chooses its own."""
    if facts.frameworks is UNKNOWN or task.preload or task.folder_frameworks:
        return
    for framework in facts.frameworks:
        wanted = task.cudnn.get(framework.name)
        found = framework.would_load
        if wanted and found is not None and found.version and not versions_agree(wanted, found.version):
            yield f"{framework.name} would load cuDNN {found.version} from {found.path}, not {wanted}: {found.because}"
