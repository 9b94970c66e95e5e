"""Carry out a task: fetch and verify everything, change the environment, inspect it; put everything back if one of these fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from cudnn_resolve.errors import CudnnResolveError, IndexUnavailableError, WorldError, out_of_memory
from cudnn_resolve.execution import payload_recover
from cudnn_resolve.execution.aptget import require_apt
from cudnn_resolve.execution.conditions import check_before, check_removals, check_room
from cudnn_resolve.execution.exchange import Exchange, overlaps, plan_exchange, save_leaving
from cudnn_resolve.execution.fetch import check_known
from cudnn_resolve.execution.installed import installed_packages, record_paths
from cudnn_resolve.execution.installer import choose_installer, install_wheels
from cudnn_resolve.execution.journal import RECOVER, SCHEMA, STAGING, read_journal
from cudnn_resolve.execution.loader_settings import (
    folder_environment,
    folder_files,
    linker_cache_change,
    own_files,
    preload_differences,
    write_linker_cache,
)
from cudnn_resolve.execution.model import Done, Execution, Trouble
from cudnn_resolve.execution.planned_link_check import check_links
from cudnn_resolve.execution.recover import mark_environment, put_all_back, unmark_environment
from cudnn_resolve.execution.supply import Supply, counted, get_supply
from cudnn_resolve.execution.system_packages import change_system, prepare_system
from cudnn_resolve.execution.uv_staging import UV_LOCK, install_staged, move_staged
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.child import payload_text
from cudnn_resolve.host.installed_files import RECORD_BYTES
from cudnn_resolve.host.interrupt import InterruptError, ignored_signals, interruptible

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.installer import Installer
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.host.run_tool import ToolResult


def carry_out(task: Task, work: Work) -> Execution:
    """Carry out a task. The environment is then as planned or as it was, or the result says what could not be put back."""
    own = own_files(task, work)
    journal: Journal | None = None
    try:
        with interruptible():
            notes = check_before(task, work.host, work.environment)
            if task.apt:
                require_apt(task, work.host)
            check_known((*task.install, *task.folder_wheels), task.unpinned, trusted=work.trusted)
            installer = _installer_for(task, work)
            journal = work.journals.open()
            journal.add("begin", **_begin_record(task, work, journal))
            done = _change(task, work, journal, own, installer)
            return replace(done, notes=(*notes, *done.notes))
    except (CudnnResolveError, InterruptError) as error:
        cause: Exception = error
    except OSError as error:  # no step expected it: put things back all the same, and report how that went
        cause = disk.refusal(error, str(error.filename or work.environment.prefix))
    except MemoryError:
        cause = out_of_memory()
    except BaseException as error:
        _roll_back_despite_signals(work, journal, InterruptError(type(error).__name__))
        raise
    return _roll_back_despite_signals(work, journal, cause)


def _installer_for(task: Task, work: Work) -> Installer | None:
    """The installer; None for a task without packages, such as a preload, unless one was requested."""
    if work.installer == "auto" and not (task.install or task.unpinned or task.folder_wheels):
        return None
    return choose_installer(work.installer, work.environment)


def _begin_record(task: Task, work: Work, journal: Journal) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": journal.id,
        "prefix": work.environment.prefix,
        "python": work.environment.python,
        "roots": list(work.environment.roots),
        "packages": list(work.environment.packages),
        "device": disk.device_of(work.environment.prefix),
        "identity": payload_recover.identity_of(work.environment.prefix),
        "words": list(work.words),
        "folder": disk.folder_here(),
        "targets": list(task.targets),
        "install": [[action.name, action.version, action.installed] for action in task.install],
        "remove": list(task.remove),
    }


class _Preparation(Struct, frozen=True, kw_only=True):
    """Everything that is known and on the disk before the environment is touched."""

    supply: Supply
    own: Mapping[str, bytes | None]
    """Files that this program itself writes, None for those that it removes."""
    exchange: Exchange
    store: str
    """Folder for files that leave."""
    reserve: int
    """Bytes that they will take there."""
    notes: tuple[str, ...]


def _change(task: Task, work: Work, journal: Journal, own: Mapping[str, bytes | None], installer: Installer | None) -> Execution:
    """Fetch everything, make the change, inspect the result, and commit."""
    prepared = _prepare(task, work, journal, own, installer)
    linker_cache = linker_cache_change(task, work.host)
    program = f"{journal.folder}/{RECOVER}"
    disk.write_whole(program, payload_text("execution/payload_recover.py").encode())
    work.listener.note(f"  if interrupted: `python3 {program}` puts the environment back")
    journal.add("files", store=prepared.store, **_files_record(prepared, work.environment))
    steps = _install_system(task, work, journal, prepared.reserve)
    if linker_cache is not None:
        write_linker_cache(linker_cache, journal, work.tooling(journal))
    steps += _change_files(prepared, work, journal, installer)
    _verify(task, work, journal, prepared)
    with ignored_signals():
        unmark_environment(work.environment)
        journal.add("commit")
        notes = (*prepared.notes, *work.journals.tidy())
    return Execution(
        status="done",
        id=journal.id,
        steps=tuple(steps),
        installed=tuple(action.pin for action in task.install),
        removed=task.remove,
        log=journal.log,
        kept_bytes=disk.own_bytes(prepared.store),
        notes=notes,
    )


def _prepare(task: Task, work: Work, journal: Journal, own: Mapping[str, bytes | None], installer: Installer | None) -> _Preparation:
    """Fetch the files, plan their exchange and check the result; raises an error if the task cannot be carried out."""
    supply = get_supply(task, work, journal, installer)
    installed = installed_packages(work.host, work.environment)
    check_removals(task, installed)
    wheels = supply.all_wheels
    if supply.folder_wheels:  # new wheels replace all that the folder holds
        own = {**folder_files(work.environment), **own}
    exchange = plan_exchange(wheels, task.remove, own, installed, work.host, work.environment)
    store = work.journals.store_of(journal.id)
    reserve = check_room(wheels, exchange, store, work.environment)
    leaving = {*task.remove, *(wheel.name for wheel in supply.wheels)}
    overlapping = overlaps(supply.wheels, installed.values(), leaving, exchange.save, work.host)
    notes = (*overlapping, *check_links(task, work, journal, supply))
    for note in notes:
        work.listener.note(note)
    return _Preparation(supply=supply, own=own, exchange=exchange, store=store, reserve=reserve, notes=notes)


def _files_record(prepared: _Preparation, environment: Environment) -> dict[str, Any]:
    """The exchange, and the temporary files that others have left already where the installer may leave its own."""
    new = {*prepared.exchange.made}
    existing = (path for path in prepared.exchange.add if os.path.dirname(path) not in new)
    names = [*payload_recover.half_made(existing), *payload_recover.temporary_folders(environment.packages)]
    return {**asdict(prepared.exchange), "names": names, "moved": prepared.supply.can_move}


def _install_system(task: Task, work: Work, journal: Journal, reserve: int) -> list[Done]:
    if not task.apt:
        return []
    work.listener.begin(f"asking apt-get for {counted(len(task.apt), 'package')}")
    apt, packages = prepare_system(task, work, journal, reserve)
    count = counted(len(packages), "package")
    work.listener.begin(f"installing {counted(len(packages), 'system package')} with apt-get")
    return [Done(what=f"{count} installed with apt-get", seconds=change_system(apt, packages, journal))]


def _change_files(prepared: _Preparation, work: Work, journal: Journal, installer: Installer | None) -> list[Done]:
    """Exchange the files of the environment; the journal says before each part what it is about to do."""
    journal.add("change")
    mark_environment(work.environment, journal.folder)
    save_leaving(prepared.exchange, prepared.store)
    journal.add("saved", count=len(prepared.exchange.save))
    steps: list[Done] = []
    if installer is not None:
        steps += _install(prepared.supply, work, journal, installer)
    for path, content in prepared.own.items():
        if content is not None:
            disk.write_whole(path, content)
    journal.add("installed", **_installed_record(prepared, work))
    disk.remove_tree(f"{journal.folder}/{STAGING}")
    return steps


def _install(supply: Supply, work: Work, journal: Journal, installer: Installer) -> Iterator[Done]:
    """Install the wheels, then unpack library wheels into the separate folder, which uses and deletes the staging folder."""
    tooling = work.tooling(journal)

    def done(what: str, result: ToolResult) -> Done:
        work.listener.end()
        if not result.ok:
            raise WorldError(f"{installer} failed: {result.why()}", code="installer-failed", context=journal.log)
        return Done(what=what, seconds=result.seconds)

    if supply.wheels:
        count = counted(len(supply.wheels), "package")
        work.listener.begin(f"installing {count} with {installer}")
        if supply.can_move:
            result = move_staged(journal.folder, work.environment)
        elif supply.is_staged:
            result = install_staged(journal.folder, work.environment, tooling, managed=work.managed)
        else:
            result = install_wheels(installer, supply.wheels, work.environment, tooling, managed=work.managed)
        yield done(f"{count} installed with {installer}", result)
    environment = folder_environment(work.environment)
    folder = environment.scheme["purelib"]
    for wheel in supply.folder_wheels:
        name = os.path.basename(wheel.path)
        work.listener.begin(f"unpacking {name} into {folder}")
        result = install_wheels(installer, (wheel,), environment, tooling, managed=work.managed)
        yield done(f"{name} unpacked into {folder}", result)
        disk.remove(f"{folder}/{UV_LOCK}")


def _installed_record(prepared: _Preparation, work: Work) -> dict[str, Any]:
    """Unexpected files that the installer wrote, and the digest of each new RECORD, by which an undo recognises its packages.

    Moved files are all expected.
    """
    expected = {*prepared.exchange.add, *prepared.exchange.save}
    extra: list[str] = []
    records: dict[str, str] = {}
    for wheel in prepared.supply.all_wheels:
        record = f"{wheel.info}/RECORD"
        if disk.kind(record) == "file":
            records[wheel.name] = disk.digest(record, "sha256")
        if prepared.supply.can_move:
            continue
        extra += [
            path
            for path in record_paths(work.host.read_text(record, RECORD_BYTES) or "", os.path.dirname(wheel.info))
            if path not in expected and not path.endswith(".pyc") and work.environment.holds(path)
        ]
    return {"extra": extra, "records": records, "infos": {wheel.name: wheel.info for wheel in prepared.supply.all_wheels}}


def _verify(task: Task, work: Work, journal: Journal, prepared: _Preparation) -> None:
    """Inspect the environment while it is synced to the disk; raises DifferenceError if it is not as planned."""
    sync = Later(lambda: disk.sync_file_systems((*work.environment.roots, prepared.store, journal.folder)))
    work.listener.begin("checking the environment")
    differences = (*preload_differences(task, work.host, work.environment), *work.verify())
    work.listener.end()
    if differences:
        raise DifferenceError(differences)
    work.listener.begin("writing to the disk")
    for pending in (prepared.supply.sync, sync):  # the kernel reports a write error once, to whichever asked first
        if pending is not None:
            pending.result()
    work.listener.end()


class DifferenceError(WorldError):
    """The environment is not as planned."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__("the environment is not as planned: " + "; ".join(differences[:5]), code="not-as-planned")
        self.differences = differences


# ---- the way back from a failed or interrupted apply


def _roll_back_despite_signals(work: Work, journal: Journal | None, error: Exception) -> Execution:
    """Roll back even if Ctrl-C is pressed again."""
    while True:
        try:
            return _roll_back(work, journal, error)
        except InterruptError:  # noqa: PERF203 - ends once no signal arrives before signals are held off
            continue


def _roll_back(work: Work, journal: Journal | None, error: Exception) -> Execution:
    """Put everything back; raises the error itself if nothing was changed yet."""
    with ignored_signals():
        work.listener.end()
        trouble = Trouble(message=f"interrupted ({error})", code="interrupted")
        if isinstance(error, CudnnResolveError):
            trouble = Trouble(message=error.message, code=error.code, context=error.context, hint=error.hint)
        past = read_journal(journal.folder) if journal is not None else None
        if journal is None or past is None:  # a signal or a full disk came before its first record
            if journal is not None and journal.has_changed:
                return _stranded(trouble, journal.id, f"{journal.folder}: the journal was removed, and the saved files with it")
            work.journals.unmark()
            if isinstance(error, CudnnResolveError):
                raise error
            return Execution(status="interrupted", trouble=trouble)
        log = journal.log if disk.kind(journal.log) else None
        if past.state == "begun":
            journal.add("dropped", why="index-unavailable" if isinstance(error, IndexUnavailableError) else trouble.code)
            work.journals.tidy()
            if isinstance(error, IndexUnavailableError) and not error.hint:
                error.hint = "nothing was changed; run the same command again to continue, downloaded files are kept"
            if isinstance(error, CudnnResolveError):
                raise error
            return Execution(status="interrupted", id=journal.id, trouble=trouble, log=log)
        if past.is_of_another:
            prefix = work.environment.prefix
            return _stranded(trouble, journal.id, f"{prefix} was moved or made again; move it back, then undo this apply")
        work.listener.begin("putting everything back")
        left = put_all_back(past, work, why=trouble.code)
        work.listener.end()
        differences = error.differences if isinstance(error, DifferenceError) else ()
        return Execution(
            status="broken" if left else "reverted", id=journal.id, trouble=trouble, left=left, differences=differences, log=log
        )


def _stranded(trouble: Trouble, number: int, why: str) -> Execution:
    """Result if nothing could be put back, because the saved files or the environment are gone."""
    return Execution(status="broken", id=number, trouble=trouble, left=(why,))
