"""Get all wheels of a task onto this disk, verified, by uv or by ourselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.conditions import check_room_for_download
from cudnn_resolve.execution.fetch import download_by_name, fetch
from cudnn_resolve.execution.installable_wheel import check_contents, check_staged, sums_of
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.execution.loader_settings import folder_environment, missing_folder_wheels
from cudnn_resolve.execution.uv_staging import UV_LOCK, can_move, can_stage, clean_cache, stage, writes_safely
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later, gather
from cudnn_resolve.index.address import url_of
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.installable_wheel import Wheel
    from cudnn_resolve.execution.installer import Installer
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.requirement.source import Contents

_PARALLEL = 6
"""Files fetched at a time."""


class Supply(Struct, frozen=True, kw_only=True):
    """The wheels of a task, fetched and verified."""

    wheels: tuple[Wheel, ...]
    folder_wheels: tuple[Wheel, ...] = ()
    """Library wheels for the separate folder; their names say so."""
    can_move: bool = False
    """True if the staged files can be moved into the environment as they are."""
    sync: Later[None] | None = None
    """Sync of the staged files to the disk, begun early so that the one at the end takes less time."""

    @property
    def all_wheels(self) -> tuple[Wheel, ...]:
        """Wheels for the environment and its separate folder."""
        return (*self.wheels, *self.folder_wheels)

    @property
    def is_staged(self) -> bool:
        """True if uv unpacked the wheels into the journal's folder."""
        return self.sync is not None


def get_supply(task: Task, work: Work, journal: Journal, installer: Installer | None) -> Supply:
    """Fetch and verify every wheel of a task; raises WorldError if one cannot be had or is refused."""
    environment = folder_environment(work.environment)
    fetched = _fetch_all(missing_folder_wheels(task, work.host, work.environment), work, journal, environment)
    lock = f"{environment.scheme['purelib']}/{UV_LOCK}"  # uv leaves it there: the wheels own it
    folder_wheels = tuple(replace(wheel, name=f"{wheel.name} in {FOLDER}", paths=(*wheel.paths, lock)) for wheel in fetched)
    staged = _stage(task, work, journal) if installer == "uv" else None
    supply = staged or Supply(wheels=_fetch_all(task.install, work, journal, work.environment))
    return replace(supply, folder_wheels=folder_wheels)


def _stage(task: Task, work: Work, journal: Journal) -> Supply | None:
    """The packages as uv fetched and verified them; None if we must fetch them ourselves.

    An older uv writes scripts wherever a wheel says, so its wheels are inspected before. Files that a safe uv fetches are inspected where
    it unpacked them, which costs no request.
    """
    environment = work.environment
    if not (task.install and work.members and environment.uv and can_stage(task.install, environment)):
        return None
    is_remote = any(package.file is not None and not package.file.url.startswith("file:") for package in task.install)
    contents = None
    if not (is_remote and work.online and writes_safely(work.host, environment.uv)):
        contents = _contents(task, work.members)
        if contents is None:
            return None
    wheels = _stage_with_uv(task, work, journal)
    if wheels is None:
        return None
    sync = Later(lambda: disk.sync_file_systems((journal.folder,)))
    staging = f"{journal.folder}/{STAGING}"
    is_movable = can_move(journal.folder, environment)  # what cannot be moved takes space in the environment, too
    if contents is None:
        wheels = check_staged(wheels, staging, environment)
        if not is_movable:
            size = sum(disk.size_of(f"{staging}{path[len(environment.prefix) :]}") for path in wheels[0].paths)
            wheels = (replace(wheels[0], unpacked=size), *wheels[1:])
    else:
        wheels = tuple(
            replace(wheel, unpacked=0 if is_movable else found.unpacked, sums=sums_of(found, wheel.name, environment))
            for wheel, found in zip(wheels, contents, strict=True)
        )
    journal.add("fetched", files=[], sha256=[wheel.sha256 for wheel in wheels])
    return Supply(wheels=wheels, can_move=is_movable, sync=sync)


def _contents(task: Task, members: Callable[[File], Contents | None]) -> list[Contents] | None:
    """The checked contents of a task's wheels; None if a server does not let them be read."""
    files = [package.file for package in task.install if package.file is not None]
    contents = []
    for file, found in zip(files, gather([partial(members, file) for file in files], _PARALLEL), strict=True):
        if found is None:
            return None
        check_contents(found, file.filename)
        contents.append(found)
    return contents


def _stage_with_uv(task: Task, work: Work, journal: Journal) -> tuple[Wheel, ...] | None:
    sizes = {package.name: (package.file.size if package.file else None) or 0 for package in task.install}
    work.listener.begin(f"fetching {counted(len(task.install), 'file')} with uv", sum(sizes.values()) or None)

    def on_line(line: str) -> None:
        event, _, name = line.strip().partition(" ")
        if event == "Downloading":
            work.listener.note(f"  {line}")
        elif event == "Downloaded":
            work.listener.advance(sizes.get(name, 0))

    tooling = replace(work.tooling(journal), on_line=on_line)
    wheels = stage(task.install, journal.folder, work.environment, tooling)
    work.listener.end()
    return wheels


def _fetch_all(packages: tuple[PipAction, ...], work: Work, journal: Journal, environment: Environment) -> tuple[Wheel, ...]:
    if not packages:
        return ()
    size = sum(package.file.size or 0 for package in packages if package.file is not None)
    check_room_for_download(size, journal.wheels)
    work.listener.begin(f"fetching {counted(len(packages), 'file')}", size or None)
    packages = tuple(_with_file(package, work, journal) for package in packages)
    wheels = tuple(gather([partial(_fetch, package, work, journal, environment) for package in packages], _PARALLEL))
    work.listener.end()
    names = [os.path.basename(wheel.path) for wheel in wheels]
    journal.add("fetched", files=names, sha256=[wheel.sha256 for wheel in wheels])
    return wheels


def _fetch(package: PipAction, work: Work, journal: Journal, environment: Environment) -> Wheel:
    try:
        return fetch(package, journal.wheels, environment, work.download, work.listener.advance)
    except WorldError as error:
        if error.code == "wheel-bad":
            clean_cache(package.name, journal.folder, work.environment, work.tooling(journal))
        raise


def _with_file(package: PipAction, work: Work, journal: Journal) -> PipAction:
    """The package with its file, which pip finds by name if the plan has none."""
    if package.file is not None:
        return package
    path = download_by_name(package, journal.wheels, work.environment, work.tooling(journal))
    hashes = {"sha256": disk.digest(path, "sha256")}
    return replace(package, file=File(filename=os.path.basename(path), url=url_of(path), hashes=hashes))


def counted(count: int, noun: str) -> str:
    """Return `1 file` or `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
