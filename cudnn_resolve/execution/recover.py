"""The way back: of a step that failed, of an `apply` that was killed, and of one that is not wanted any more."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution import payload_recover
from cudnn_resolve.execution.aptget import find_apt
from cudnn_resolve.execution.conditions import require_writable
from cudnn_resolve.execution.exchange import refuse_detour
from cudnn_resolve.execution.installed import installed_packages
from cudnn_resolve.execution.journal import (
    ARRIVING,
    RECOVER,
    STAGING,
    Journal,
    Journals,
    PastApply,
    find_journal,
    inside,
    read_journal,
    read_mark,
    tampered,
)
from cudnn_resolve.execution.loader_settings import restore_cache
from cudnn_resolve.execution.model import EXITS, Execution, Status, Trouble
from cudnn_resolve.execution.system import changed_system, changes_of, restore_system
from cudnn_resolve.host import disk
from cudnn_resolve.host.interrupt import ignored_signals
from cudnn_resolve.host.protocol import which

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.task import Work


_WAY_BACK = re.compile(r"^python3 (/[^\x00-\x1f\x7f]+)/recover\.py$", re.MULTILINE)
"""The command in a mark; anybody who may write into the environment may have written another one."""


def put_all_back(journal: Journal, work: Work, *, why: str) -> tuple[str, ...]:
    """What could not be put back, in words; empty where everything is as it was before that journal."""
    journals, tooling = work.journals, work.tooling(journal)
    past = journal.read()
    journal = Journal.resume(past, watch=journal.watch)  # a signal may have come between the disk and what it remembers
    try:
        journal.add("revert", why=why)
    except CudnnResolveError:
        if not past.is_open:  # half undone it would count as committed
            raise
        # else a full disk must not stop the way back, which only moves and removes
    if not past.is_open:  # an undo: others shall see, too, that the environment is neither the one nor the other
        with suppress(CudnnResolveError):
            mark_environment(journals.environment, journal.folder)
    left: tuple[str, ...]
    try:
        past = journal.read()
    except CudnnResolveError as error:
        left = (error.message,)
    else:
        left = (
            *_tried(lambda: _put_files_back(past, journals)),
            *_tried(lambda: restore_cache(past, tooling)),
            *_tried(lambda: restore_system(past, work.host, tooling)),
        )
    # What was put back is on the disk before the journal says that it is there.
    left = (*left, *_tried(lambda: disk.sync_file_systems((*journals.environment.roots, journals.folder))))
    try:
        if left:
            journal.add("left", what=list(left)[:50])
        else:
            unmark_environment(journals.environment)
            _close(journal)
            journals.tidy()
    except CudnnResolveError as error:
        left = (*left, *(() if left else (f"the journal cannot be closed: {error.message}",)))
    return left


def _tried(part: Callable[[], tuple[str, ...] | None]) -> tuple[str, ...]:
    """What a part could not put back; the others are tried whatever comes of it."""
    try:
        return part() or ()
    except CudnnResolveError as error:
        return (error.message,)
    except (OSError, ValueError) as error:  # what no part expects, such as a name that no file can have
        return (str(error),)


def _close(journal: Journal) -> None:
    """Writes down that everything is back; where the disk is full, what was fetched makes room for that."""
    try:
        journal.add("reverted")
    except CudnnResolveError:
        for folder in (journal.wheels, f"{journal.folder}/{STAGING}", f"{journal.folder}/{ARRIVING}"):
            disk.remove_tree(folder)
        journal.add("reverted")


def interrupted(journals: Journals) -> PastApply | None:
    """The journal of an `apply` that was stopped in the middle of a change; None where there is none."""
    return next((one for one in reversed(journals.all()) if one.is_open), None)


def _refuse_changed(past: PastApply, work: Work) -> None:
    """WorldError where the environment is not the one that was left half changed: putting files back by their paths would break it."""
    if payload_recover.is_another(past.begin):
        raise WorldError(
            f"apply number {past.id} was stopped in the middle, in an environment that was made again since at {work.environment.prefix}",
            code="changed-since",
            context=work.environment.prefix,
            hint="nothing was put back, since nothing of it has a place here; `apply --force ...` forgets that apply and goes on",
        )
    reasons: list[str] = []
    with suppress(WorldError):  # what is wrong with the journal is told by those who follow it
        files = read_files(past, work.journals) or {}
        reasons = payload_recover.changed_since(past.begin, files, work.environment.packages)
    if reasons and not work.force:
        raise WorldError(
            f"apply number {past.id} was stopped in the middle, and others changed the environment since: {'; '.join(reasons)}",
            code="changed-since",
            context=work.environment.prefix,
            hint="nothing was put back; look at it, then say --force to put back what that apply replaced all the same",
        )


def unfinished_of_others(environment: Environment) -> WorldError | None:
    """The error that somebody else, or another state folder, left the environment half changed; None where nobody did."""
    path = mark_path(environment)
    text = disk.content(path, 1 << 12)
    if text is None:
        return None
    named = _WAY_BACK.search(text.decode("utf-8", "surrogateescape"))
    return WorldError(
        "an apply that this user's journals do not know left the environment half changed",
        code="unfinished",
        context=path,
        hint=(f"{_way_back(named[1], environment)}; " if named else "") + "with --force the environment is taken as it is",
    )


def _way_back(folder: str, environment: Environment) -> str:
    """What leads back from what a mark tells: the program in that folder, where it is there and works on this environment."""
    if disk.is_missing(f"{folder}/{RECOVER}"):
        return f"its journal, {folder}, is gone, and nothing leads back: make the environment again"
    past = None
    with suppress(WorldError):  # of a user whose folders are closed to this one
        past = read_journal(folder)
    prefix = str(past.begin.get("prefix")) if past is not None else environment.prefix
    if prefix != environment.prefix:
        return f"this is a copy of {prefix}, made in the middle of that apply, and nothing leads back here: make it again"
    return f"`python3 {shlex.quote(f'{folder}/{RECOVER}')}` puts it back"


def _refuse_unfinished_of_others(work: Work) -> None:
    found = unfinished_of_others(work.environment)
    if found is not None:  # else nothing is to be removed, which a disk that cannot be written would refuse
        if not work.force:
            raise found
        disk.remove(mark_path(work.environment))


def repair(work: Work) -> Execution | None:
    """What became of an `apply` that was stopped in the middle, now put back; None where there was none."""
    past = interrupted(work.journals)
    if past is None:
        for one in work.journals.all():
            if one.state == "begun":
                Journal.resume(one).add("dropped", why="repair")
        work.journals.tidy(ended=False)
        _refuse_unfinished_of_others(work)
        return None
    if work.force and payload_recover.is_another(past.begin):
        Journal.resume(past).add("dropped", why="another-environment")
        work.journals.tidy(ended=False)
        return None
    _refuse_changed(past, work)
    work.reporter.say(f"apply number {past.id} was stopped in the middle ({past.begin.get('at', '')}); putting things back")
    return _put_back(past, work, why="repair")


def undo(work: Work, number: int | None, *, dry_run: bool = False) -> Execution:
    """What became of the undo of an `apply`, by default of the last one that changed something; with `dry_run` what it would put back."""
    act = _foretell if dry_run else _put_back
    past = interrupted(work.journals)
    if past is not None and number in (None, past.id):
        _refuse_changed(past, work)
        return act(past, work)
    if past is not None:
        raise WorldError(f"apply number {past.id} was stopped in the middle", code="open-apply", hint="`apply --undo` puts that back first")
    _refuse_unfinished_of_others(work)
    applies = work.journals.all()
    committed = [one for one in applies if one.state == "committed"]
    if number is None and work.journals.marked() is not None:
        mark = read_mark(work.journals)
        if not dry_run:
            work.journals.unmark()
        if mark is None or not (committed and committed[-1] is applies[-1] and mark.owns(applies[-1])):  # killed after it had committed
            return Execution(status="nothing", notes=("the last apply was stopped before it changed anything",))
    if number is None and not committed:
        return Execution(status="nothing")
    chosen = committed[-1] if number is None else find_journal(work.journals, number)
    _refuse(chosen, committed, work)
    return act(chosen, work)


def _foretell(past: PastApply, work: Work) -> Execution:
    """What an undo would put back, in words; nothing is changed."""
    _require_means(past, work)
    rows = past.begin.get("install", ())
    back = [f"{name}=={before}" for name, _, before in rows if before]
    back += [str(name) for name in past.begin.get("remove", ())]
    gone = [str(name) for name, _, before in rows if not before]
    system = changes_of(past)
    back += [f"{name}={before} (apt)" for name, _, before in system if before]
    gone += [f"{name} (apt)" for name, _, before in system if not before]
    told = [f"apply number {past.id} would be undone"]
    told += [f"{what}: {', '.join(names)}" for what, names in (("would come back", back), ("would go", gone)) if names]
    return Execution(status="dry-run", id=past.id, notes=tuple(told))


def _refuse(past: PastApply, committed: list[PastApply], work: Work) -> None:
    """WorldError where an undo would not lead back to what was."""
    if past.state != "committed":
        words = {"reverted": "was put back already", "begun": "changed nothing", "dropped": "changed nothing"}
        raise WorldError(f"apply number {past.id} {words.get(past.state, 'is not finished')}", code="cannot-undo")
    later = [one.id for one in committed if one.id > past.id]
    if later:
        hint = f"undo the later ones first: `apply --undo {later[-1]}`"
        raise WorldError(f"apply number {past.id} is not the last one", code="cannot-undo", hint=hint)
    if not work.journals.can_undo(past):
        raise WorldError(
            f"what apply number {past.id} replaced is not kept any more", code="cannot-undo", hint="apply the old versions anew"
        )
    read_files(past, work.journals)
    changed = changed_since(past, work.environment)
    present = installed_packages(work.host, work.environment)
    gone = [name for name in past.begin.get("remove", ()) if name in present]
    system = changed_system(past, work.host)
    if changed or gone or system:
        names = ", ".join((*changed, *gone, *system))
        where = "environment" if changed or gone else "system"
        raise WorldError(
            f"the {where} was changed by others since apply number {past.id}: {names}",
            code="changed-since",
            hint="undo that first, or apply what you want anew",
        )


def changed_since(past: PastApply, environment: Environment) -> tuple[str, ...]:
    """Names of packages that a committed journal installed and that are not as it left them."""
    out = []
    for one in past.installed:
        inside(list(one.infos.values()), environment, past.folder)
        for name, wanted in one.records.items():
            path = f"{one.infos.get(name)}/RECORD"
            if disk.kind(path) != "file" or disk.digest(path, "sha256") != wanted:
                out.append(name)
    return tuple(out)


def _require_means(past: PastApply, work: Work) -> None:
    """Reject a way back that this user cannot go, before a part of it is gone; raises WorldError."""
    files = past.last("files")
    if files is not None and (files.get("save") or files.get("add")):
        require_writable(work.environment)
    if (past.last("apt") is not None or past.last("keyring") is not None) and find_apt(work.host) is None:
        if which(work.host, "apt-get") is None:
            raise WorldError(
                f"apply number {past.id} changed packages of the system, and there is no apt-get any more",
                code="no-apt",
                hint="nothing was changed; look whether PATH has the folder of apt-get",
            )
        way = "run `sudo -v` first, so that sudo asks for no password meanwhile, then this again"
        if which(work.host, "sudo") is None:
            way = "run it as root: there is no sudo here"
        raise WorldError(
            f"apply number {past.id} changed packages of the system, and putting them back needs root",
            code="needs-root",
            hint=f"nothing was changed; {way}",
        )


def _put_back(past: PastApply, work: Work, why: str = "undo") -> Execution:
    _require_means(past, work)
    journal = Journal.resume(past, watch=work.watch)
    with ignored_signals():
        left = put_all_back(journal, work, why=why)
    status: Status = "broken" if left else "undone"
    installed = tuple(f"{one[0]}=={one[2]}" for one in past.begin.get("install", ()) if one[2])
    trouble = Trouble(message="not everything could be put back", code="left") if left else None
    return Execution(
        status=status,
        id=past.id,
        installed=installed,
        removed=tuple(str(one[0]) for one in past.begin.get("install", ()) if not one[2]),
        trouble=trouble,
        left=left,
        log=past.log,
        exit_code=EXITS[status],
    )


def _put_files_back(past: PastApply, journals: Journals) -> tuple[str, ...]:
    """Put the files of the environment back; return what could not be, in words. May be repeated after a kill."""
    files = read_files(past, journals)
    if files is None:
        return ()
    finished = any(one["kind"] == "commit" for one in past.records)
    return tuple(payload_recover.put_back(files, journals.environment.packages, finished=finished))


def read_files(past: PastApply, journals: Journals) -> dict[str, Any] | None:
    """Return the `files` record of a journal, every path of it checked; None where there is none.

    WorldError where it names anything outside of the environment: better said before anything is begun.
    """
    environment = journals.environment
    try:
        files = payload_recover.checked(past.records, environment.roots, past.folder)
    except ValueError as error:
        raise tampered(past.folder, str(error)) from None
    if files is not None:
        if not journals.is_store(files["store"], past.id):
            raise tampered(past.folder, "what it saved lies elsewhere")
        detour = payload_recover.detour_in(files, environment.roots)
        if detour is not None:
            refuse_detour(detour, environment)
    return files


def mark_path(environment: Environment) -> str:
    """Path of the file that tells everybody that the environment is neither the old nor the new one."""
    return f"{environment.packages[0]}/{payload_recover.MARK}"


def mark_environment(environment: Environment, folder: str) -> None:
    """Write that mark; it names the command that puts everything back."""
    text = f"An apply of cudnn-resolve did not come to its end. This puts the environment back:\n\npython3 {folder}/recover.py\n"
    disk.write_whole(mark_path(environment), text.encode("utf-8", "surrogateescape"))


def unmark_environment(environment: Environment) -> None:
    """Remove that mark, on the disk too: the journal, whose last record follows, may lie on another one."""
    for path in (mark_path(environment), f"{mark_path(environment)}{disk.UNFINISHED}"):
        if disk.kind(path) is not None:  # a disk that cannot be written refuses also to remove what is not there
            disk.remove(path)
            disk.sync_folder(os.path.dirname(path))
