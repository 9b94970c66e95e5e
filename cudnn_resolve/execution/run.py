"""Carries a task out: everything on this disk and verified first, then the change, then a look; and back where one of them fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import asdict, replace

from cudnn_resolve.errors import CudnnResolveError, IndexUnavailableError, WorldError, out_of_memory
from cudnn_resolve.execution import payload_recover
from cudnn_resolve.execution.aptget import require_apt
from cudnn_resolve.execution.conditions import check_before, check_room, installed_outside, mib
from cudnn_resolve.execution.exchange import Exchange, overlaps, plan_exchange, take_away
from cudnn_resolve.execution.fetch import check_known, download_by_name, fetch
from cudnn_resolve.execution.installed import installed_packages, record_paths
from cudnn_resolve.execution.installer import (
    OWN_LOCK,
    can_lock,
    can_move,
    choose_installer,
    forget,
    install_staged,
    install_wheels,
    is_careful,
    move_staged,
    stage,
)
from cudnn_resolve.execution.journal import RECOVER, STAGING, read_journal
from cudnn_resolve.execution.link_check import check_links
from cudnn_resolve.execution.loader_settings import (
    cache_change,
    files_of_folder,
    folder_wheels,
    in_folder,
    loaded_by_preload,
    own_files,
    write_cache,
)
from cudnn_resolve.execution.model import EXITS, Done, Execution, Status, Trouble
from cudnn_resolve.execution.recover import mark_environment, put_all_back, unmark_environment
from cudnn_resolve.execution.system import change_system, prepare_system
from cudnn_resolve.execution.wheel import check_contents, check_staged, sums_of
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.interrupt import InterruptError, ignored_signals, interruptible
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.execution.wheel import Wheel
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.requirement.source import Contents


_PARALLEL = 6
"""Files that are fetched at a time."""


def carry_out(task: Task, work: Work) -> Execution:
    """What became of the task. The environment is then as planned or as it was, or the execution says what is left."""
    own = own_files(task, work)
    journal: Journal | None = None
    try:
        with interruptible():
            notes = check_before(task, work.host, work.environment)
            if task.apt:
                require_apt(task, work.host)
            check_known((*task.install, *task.folder), task.unpinned, trusted=work.trusted)
            wanted = work.installer != "auto" or task.install or task.unpinned or task.folder  # a preload alone needs neither pip nor uv
            installer = choose_installer(work.installer, work.environment) if wanted else None
            journal = work.journals.open(watch=work.watch)
            journal.add("begin", **_begin(task, work, journal))
            done = _change(task, work, journal, own, installer)
            return replace(done, notes=(*notes, *done.notes))
    except (CudnnResolveError, InterruptError) as error:
        cause: Exception = error
    except OSError as error:  # what no step expected: the way back is gone all the same, and how far it came is said
        cause = disk.refusal(error, str(error.filename or work.environment.prefix))
    except MemoryError:
        cause = out_of_memory()
    except BaseException as error:
        _retreat_whatever_comes(work, journal, InterruptError(type(error).__name__))
        raise
    return _retreat_whatever_comes(work, journal, cause)


def _begin(task: Task, work: Work, journal: Journal) -> dict[str, Any]:
    return {
        "schema": 1,
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
        "install": [[one.name, one.version, one.installed] for one in task.install],
        "remove": list(task.remove),
    }


def _change(task: Task, work: Work, journal: Journal, own: Mapping[str, bytes | None], installer: Any) -> Execution:
    """Fetch everything, make the change, look at the result, and commit it."""
    supply = _supply(task, work, journal, installer)
    installed = installed_packages(work.host, work.environment)
    installed_outside(task, installed)
    wheels = (*supply.wheels, *supply.apart)
    own = {**(files_of_folder(work.environment) if supply.apart else {}), **own}  # other wheels take their place
    exchange = plan_exchange(wheels, task.remove, own, installed, work.host, work.environment)
    store = work.journals.store_of(journal.id)
    reserve = check_room(wheels, exchange, store, work.environment)
    leaving = {*task.remove, *(wheel.name for wheel in supply.wheels)}
    overlapping = overlaps(supply.wheels, installed.values(), leaving, exchange.save, work.host)
    notes = (*overlapping, *check_links(task, work, journal, wheels, staged=supply.staged))
    for text in notes:
        work.reporter.say(text)
    cached = cache_change(task, work.host)
    _prepare_way_back(journal, work)
    journal.add("files", store=store, **_files(exchange, work.environment, moved=supply.movable))
    steps = list(_install_system(task, work, journal, reserve))
    if cached is not None:
        write_cache(cached, journal, work.tooling(journal))
    journal.add("change")
    mark_environment(work.environment, journal.folder)
    take_away(exchange, store)
    journal.add("saved", count=len(exchange.save))
    steps += _install(supply, work, journal, installer)
    steps += _install_apart(supply.apart, work, journal, installer)  # last: pip and uv make room in the journal's folder for themselves
    for path, content in own.items():
        if content is not None:
            disk.write_whole(path, content)
    journal.add("installed", **_seen(wheels, exchange, work, complete=supply.movable))
    disk.remove_tree(f"{journal.folder}/{STAGING}")
    written = Later(lambda: disk.sync_file_systems((*work.environment.roots, store, journal.folder)))  # all that changes is there
    _verify(task, work)
    work.reporter.begin("writing it to the disk")
    for one in (supply.written, written):  # the kernel tells of a disk that fails once: whoever asked first is to be heard, too
        if one is not None:
            one.result()
    work.reporter.end()
    with ignored_signals():
        unmark_environment(work.environment)
        journal.add("commit")
        notes = (*notes, *work.journals.tidy())
    return Execution(
        status="done",
        id=journal.id,
        steps=tuple(steps),
        installed=tuple(one.pin for one in task.install),
        removed=task.remove,
        log=journal.log,
        kept_bytes=disk.own_bytes(store),
        notes=notes,
    )


def _prepare_way_back(journal: Journal, work: Work) -> None:
    """Lay down, before anything changes, what leads back without this program: its command is said."""
    source = work.host.read_text(os.path.join(os.path.dirname(__file__), "payload_recover.py")) or ""
    disk.write_whole(f"{journal.folder}/{RECOVER}", source.encode())
    work.reporter.say(f"  should this be cut off: `python3 {journal.folder}/{RECOVER}` puts the environment back")


class Supply(Struct, frozen=True, kw_only=True):
    """The wheels of a task, fetched and verified."""

    wheels: tuple[Wheel, ...]
    staged: bool
    """True where uv has laid them out in the journal's folder."""
    movable: bool
    """True where that can be moved into the environment as it is."""
    apart: tuple[Wheel, ...] = ()
    """Library wheels for the folder of their own; their names say so."""
    written: Later[None] | None = None
    """What writes to the disk what was laid out, begun at once so that all of it at the end takes less time."""


def _supply(task: Task, work: Work, journal: Journal, installer: Any) -> Supply:
    missing = folder_wheels(task, work.host, work.environment)
    found = _fetch_all(missing, work, journal, in_folder(work.environment))
    lock = f"{in_folder(work.environment).scheme['purelib']}/{OWN_LOCK}"
    apart = tuple(replace(one, name=f"{one.name} in {FOLDER}", paths=(*one.paths, lock)) for one in found)
    staged = _stage(task, work, journal) if installer == "uv" else None
    if staged is not None:
        wheels, written = staged
        return Supply(wheels=wheels, staged=True, movable=can_move(journal.folder, work.environment), apart=apart, written=written)
    return Supply(wheels=_fetch_all(task.install, work, journal, work.environment), staged=False, movable=False, apart=apart)


def _install_system(task: Task, work: Work, journal: Journal, reserve: int) -> Iterator[Done]:
    if not task.apt:
        return
    work.reporter.begin(f"asking apt-get for {_many(len(task.apt), 'package')}")
    tooling = work.tooling(journal)
    apt, packages = prepare_system(task, work, journal, tooling, reserve)
    count = _many(len(packages), "package")
    work.reporter.begin(f"installing {count} of the system with apt-get")
    yield Done(what=f"{count} installed with apt-get", seconds=change_system(apt, packages, journal, tooling))


def _install(supply: Supply, work: Work, journal: Journal, installer: Any) -> Iterator[Done]:
    if not supply.wheels:
        return
    count = _many(len(supply.wheels), "package")
    work.reporter.begin(f"installing {count} with {installer}")
    tooling, environ = work.tooling(journal), work.host.environ
    if supply.movable:
        result = move_staged(journal.folder, work.environment)
    elif supply.staged:
        result = install_staged(journal.folder, work.environment, tooling, environ, managed=work.managed)
    else:
        result = install_wheels(installer, supply.wheels, work.environment, tooling, environ, managed=work.managed)
    work.reporter.end()
    if not result.ok:
        raise WorldError(f"{installer} failed: {result.why()}", code="installer-failed", context=journal.log)
    yield Done(what=f"{count} installed with {installer}", seconds=result.seconds)


def _install_apart(apart: tuple[Wheel, ...], work: Work, journal: Journal, installer: Any) -> Iterator[Done]:
    """Unpack wheels into the folder of their own."""
    place = in_folder(work.environment)
    folder = place.scheme["purelib"]
    for wheel in apart:
        name = os.path.basename(wheel.path)
        work.reporter.begin(f"unpacking {name} into {folder}")
        result = install_wheels(installer, (wheel,), place, work.tooling(journal), work.host.environ, managed=work.managed)
        work.reporter.end()
        if not result.ok:
            raise WorldError(f"{installer} failed: {result.why()}", code="installer-failed", context=journal.log)
        disk.remove(f"{folder}/{OWN_LOCK}")
        yield Done(what=f"{name} unpacked into {folder}", seconds=result.seconds)


def _verify(task: Task, work: Work) -> None:
    """Look at the environment again; DifferenceError where it is not as planned."""
    work.reporter.begin("looking at the environment again")
    differences = (*loaded_by_preload(task, work.host, work.environment), *work.verify())
    work.reporter.end()
    if differences:
        raise DifferenceError(differences)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class DifferenceError(WorldError):
    """The environment is not as planned."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__("the environment is not as planned: " + "; ".join(differences[:5]), code="not-as-planned")
        self.differences = differences


def _stage(task: Task, work: Work, journal: Journal) -> tuple[tuple[Wheel, ...], Later[None]] | None:
    """The packages as uv fetched and verified them, and what writes them to the disk; None where it is to be done by ourselves.

    What is in them is asked for before, since an older uv would make a program wherever a wheel says. What a newer one has to fetch is
    looked at where it was laid out: that costs no request.
    """
    environment = work.environment
    if not (task.install and work.members and environment.uv and can_lock(task.install, environment)):
        return None
    is_remote = any(package.file is not None and not package.file.url.startswith("file:") for package in task.install)
    contents = None
    if not (is_remote and work.online and is_careful(work.host, environment.uv)):
        contents = _contents(task, work.members)
        if contents is None:
            return None
    wheels = _stage_with_uv(task, work, journal)
    if wheels is None:
        return None
    written = Later(lambda: disk.sync_file_systems((journal.folder,)))
    staging = f"{journal.folder}/{STAGING}"
    again = not can_move(journal.folder, environment)  # then it needs its room in the environment, too
    if contents is None:
        wheels = check_staged(wheels, staging, environment)
        size = sum(disk.size_of(f"{staging}{path[len(environment.prefix) :]}") for path in wheels[0].paths) if again else 0
        wheels = (replace(wheels[0], unpacked=size), *wheels[1:])
    else:
        wheels = tuple(
            replace(wheel, unpacked=found.unpacked if again else wheel.unpacked, sums=sums_of(found, wheel.name, environment))
            for wheel, found in zip(wheels, contents, strict=True)
        )
    journal.add("fetched", files=[], sha256=[wheel.sha256 for wheel in wheels])
    return wheels, written


def _contents(task: Task, members: Callable[[Any], Contents | None]) -> list[Contents] | None:
    """What is in the wheels of a task, checked; None where whoever serves them does not tell."""
    threads = ThreadPoolExecutor(_PARALLEL)
    try:
        asked = [threads.submit(members, package.file) for package in task.install]
        contents = []
        for package, future in zip(task.install, asked, strict=True):
            found = future.result()
            if found is None or package.file is None:
                return None
            check_contents(found, package.file.filename)
            contents.append(found)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    return contents


def _stage_with_uv(task: Task, work: Work, journal: Journal) -> tuple[Wheel, ...] | None:
    sizes = {one.name: (one.file.size if one.file else None) or 0 for one in task.install}
    work.reporter.begin(f"fetching {_many(len(task.install), 'file')} with uv", sum(sizes.values()) or None)

    def show(line: str) -> None:
        what, _, name = line.strip().partition(" ")
        if what == "Downloading":
            work.reporter.say(f"  {line}")
        elif what == "Downloaded":
            work.reporter.advance(sizes.get(name, 0))

    tooling = replace(work.tooling(journal), on_line=show)
    wheels = stage(task.install, journal.folder, work.environment, tooling, work.host.environ)
    work.reporter.end()
    return wheels


def _fetch_all(install: tuple[PipAction, ...], work: Work, journal: Journal, environment: Environment) -> tuple[Wheel, ...]:
    total = sum(one.file.size or 0 for one in install if one.file is not None)
    if not install:
        return ()
    check_room_for_download(total, journal.wheels)
    work.reporter.begin(f"fetching {_many(len(install), 'file')}", total or None)
    packages = tuple(_named(package, work, journal) for package in install)
    threads = ThreadPoolExecutor(_PARALLEL)
    try:
        fetched = [
            threads.submit(fetch, package, journal.wheels, environment, work.download, work.reporter.advance) for package in packages
        ]
        wheels = [_fetched(future, package, work, journal) for future, package in zip(fetched, packages, strict=True)]
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    work.reporter.end()
    names = [os.path.basename(wheel.path) for wheel in wheels]
    journal.add("fetched", files=names, sha256=[wheel.sha256 for wheel in wheels])
    return tuple(wheels)


def _fetched(future: Future[Wheel], package: PipAction, work: Work, journal: Journal) -> Wheel:
    try:
        return future.result()
    except WorldError as error:
        if error.code == "wheel-bad":
            forget(package.name, journal.folder, work.environment, work.tooling(journal), work.host.environ)
        raise


def _named(package: PipAction, work: Work, journal: Journal) -> PipAction:
    """The package with its file, which pip finds by its name where nobody has said which one it is."""
    if package.file is not None:
        return package
    path = download_by_name(package, journal.wheels, work.environment, work.tooling(journal), work.host.environ)
    url = f"file://{quote(path, errors='surrogateescape')}"
    return replace(package, file=File(filename=os.path.basename(path), url=url, hashes={"sha256": disk.digest(path, "sha256")}))


def check_room_for_download(total: int, folder: str) -> None:
    """Reject files to fetch that do not fit on the disk; raises WorldError."""
    free = disk.free_bytes(folder)
    if total > free:
        raise WorldError(
            f"{mib(total)} are to be fetched and {mib(free)} are free",
            code="disk-full",
            context=folder,
            hint="make room there, or set XDG_STATE_HOME to a folder on a larger disk",
        )


def _files(exchange: Exchange, environment: Environment, *, moved: bool) -> dict[str, Any]:
    new = {*exchange.made}
    there = (path for path in exchange.add if os.path.dirname(path) not in new)
    names = [*payload_recover.half_made(there), *payload_recover.temporary_folders(environment.packages)]
    return {**asdict(exchange), "names": names, "moved": moved}


def _seen(wheels: tuple[Wheel, ...], exchange: Exchange, work: Work, *, complete: bool) -> dict[str, Any]:
    """What the installer wrote besides what was expected, and the sum of each new RECORD, by which an undo knows its own again.

    `complete`: every file that came was expected.
    """
    expected = {*exchange.add, *exchange.save}
    extra: list[str] = []
    records: dict[str, str] = {}
    for wheel in wheels:
        text = "" if complete else work.host.read_text(f"{wheel.info}/RECORD", 64 << 20) or ""
        if disk.kind(f"{wheel.info}/RECORD") == "file":
            records[wheel.name] = disk.digest(f"{wheel.info}/RECORD", "sha256")
        extra += [
            path
            for path in record_paths(text, os.path.dirname(wheel.info))
            if path not in expected and not path.endswith(".pyc") and work.environment.holds(path)
        ]
    return {"extra": extra, "records": records, "infos": {wheel.name: wheel.info for wheel in wheels}}


def _retreat_whatever_comes(work: Work, journal: Journal | None, error: Exception) -> Execution:
    """As `_retreat`; somebody who presses Ctrl-C again does not stop the way back."""
    while True:
        try:
            return _retreat(work, journal, error)
        except InterruptError:  # noqa: PERF203 - it ends when no more signals come before they are held off
            continue


def _retreat(work: Work, journal: Journal | None, error: Exception) -> Execution:
    """Everything put back, and what is said of it."""
    with ignored_signals():
        work.reporter.end()
        trouble = Trouble(message=f"interrupted ({error})", code="interrupted")
        if isinstance(error, CudnnResolveError):
            trouble = Trouble(message=error.message, code=error.code, context=error.context, hint=error.hint)
        differences = error.differences if isinstance(error, DifferenceError) else ()
        if journal is None or read_journal(journal.folder) is None:  # a signal, or a full disk, came before its first record
            if journal is not None and journal.has_changed:
                return _stranded(trouble, journal.id, f"{journal.folder}: somebody removed the journal, and what was replaced with it")
            work.journals.unmark()
            if isinstance(error, CudnnResolveError):
                raise error
            return Execution(status="interrupted", trouble=trouble)
        past = journal.read()
        log = journal.log if disk.kind(journal.log) else None
        if past.state == "begun":
            journal.add("dropped", why="index-unavailable" if isinstance(error, IndexUnavailableError) else trouble.code)
            work.journals.tidy()
            if isinstance(error, IndexUnavailableError) and not error.hint:
                error.hint = "nothing was changed; what was fetched is kept, so the same command goes on from there"
            if isinstance(error, CudnnResolveError):
                raise error
            return Execution(status="interrupted", id=journal.id, trouble=trouble, log=log)
        if payload_recover.is_another(past.begin):
            prefix = work.environment.prefix
            return _stranded(trouble, journal.id, f"{prefix}: somebody moved it, or made it again; once it is back, undo this apply")
        work.reporter.begin("putting everything back")
        left = put_all_back(journal, work, why=trouble.code)
        work.reporter.end()
        status: Status = "broken" if left else "reverted"
        return Execution(
            status=status, id=journal.id, trouble=trouble, left=left, differences=differences, log=log, exit_code=EXITS[status]
        )


def _stranded(trouble: Trouble, number: int, why: str) -> Execution:
    """Nothing was put back, since what leads back, or where to, is not there."""
    return Execution(status="broken", id=number, trouble=trouble, left=(why,), exit_code=EXITS["broken"])
