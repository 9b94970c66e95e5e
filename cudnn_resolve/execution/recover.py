"""The way back: from a step that failed, from an `apply` that was killed, and from one that is to be undone."""

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
from cudnn_resolve.execution.journal import ARRIVING_DEBS, RECOVER, STAGING, Journal, PastApply, read_journal, tampered
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.loader_settings import restore_linker_cache
from cudnn_resolve.execution.model import Execution, Trouble
from cudnn_resolve.execution.system_packages import changed_system, restore_system, version_changes
from cudnn_resolve.host import disk
from cudnn_resolve.host.interrupt import ignored_signals
from cudnn_resolve.host.protocol import which

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.task import Work


_MARK_COMMAND = re.compile(r"^python3 (/[^\x00-\x1f\x7f]+)/recover\.py$", re.MULTILINE)
"""Command in the mark of a half-changed environment; untrusted, since anybody who may write into the environment may change it."""


def put_all_back(past: PastApply, work: Work, *, why: str) -> tuple[str, ...]:
    """Put back everything that a journal changed; returns what could not be put back."""
    journal = Journal.resume(past)
    journals, tooling = work.journals, work.tooling(journal)
    try:
        journal.add("revert", why=why)
    except CudnnResolveError:
        if not past.is_open:  # otherwise a half-finished undo would count as committed
            raise
        # otherwise a full disk must not stop the way back, which only moves and removes files
    if not past.is_open:  # an undo: tell others, too, that the environment is half changed
        with suppress(CudnnResolveError):
            mark_environment(journals.environment, journal.folder)
    left = (
        *_attempt(lambda: _put_files_back(past, journals)),
        *_attempt(lambda: restore_linker_cache(past, tooling)),
        *_attempt(lambda: restore_system(past, work.host, tooling)),
        # Everything is on the disk before the journal says that it was put back.
        *_attempt(lambda: disk.sync_file_systems((*journals.environment.roots, journals.folder))),
    )
    try:
        if left:
            journal.add("left", what=list(left)[:50])
        else:
            unmark_environment(journals.environment)
            _close(journal)
            journals.tidy()
    except CudnnResolveError as error:
        left = left or (f"the journal cannot be closed: {error.message}",)
    return left


def _attempt(part: Callable[[], tuple[str, ...] | None]) -> tuple[str, ...]:
    """Run one part of the way back; a failure must not stop the other parts, and is returned as text."""
    try:
        return part() or ()
    except CudnnResolveError as error:
        return (error.message,)
    except (OSError, ValueError) as error:  # unexpected, such as an invalid file name
        return (str(error),)


def _close(journal: Journal) -> None:
    """Record that everything is back; if the disk is full, delete downloads to make room for the record."""
    try:
        journal.add("reverted")
    except CudnnResolveError:
        for folder in (journal.wheels, f"{journal.folder}/{STAGING}", f"{journal.folder}/{ARRIVING_DEBS}"):
            disk.remove_tree(folder)
        journal.add("reverted")


def interrupted(journals: Journals) -> PastApply | None:
    """Return the journal of an `apply` that was interrupted during a change; None if there is none."""
    return next((past for past in reversed(journals.all()) if past.is_open), None)


# ---- repair and undo


def repair(work: Work) -> Execution | None:
    """Put back what an interrupted `apply` changed; None if there is none."""
    past = interrupted(work.journals)
    if past is None:
        for begun in work.journals.all():
            if begun.state == "begun":
                Journal.resume(begun).add("dropped", why="repair")
        work.journals.tidy(ended=False)
        _refuse_unfinished_of_others(work)
        return None
    if work.force and past.is_of_another:
        Journal.resume(past).add("dropped", why="another-environment")
        work.journals.tidy(ended=False)
        return None
    _refuse_changed(past, work)
    work.listener.note(f"apply number {past.id} was interrupted ({past.begin.at}); putting things back")
    return _put_back(past, work, why="repair")


def undo(work: Work, number: int | None, *, dry_run: bool = False) -> Execution:
    """Undo an `apply`, by default the last one that changed something; with `dry_run`, only describe what that would do."""
    act = _describe_undo if dry_run else _put_back
    past = interrupted(work.journals)
    if past is not None and number in (None, past.id):
        _refuse_changed(past, work)
        return act(past, work)
    if past is not None:
        raise WorldError(f"apply number {past.id} was interrupted", code="open-apply", hint="put it back first: `apply --undo`")
    _refuse_unfinished_of_others(work)
    applies = work.journals.all()
    committed = [done for done in applies if done.state == "committed"]
    mark = work.journals.marked() if number is None else None
    if mark is not None:
        if not dry_run:
            work.journals.unmark()
        was_committed = bool(committed) and committed[-1] is applies[-1]
        if not (was_committed and mark.owns(applies[-1])):  # otherwise it was killed after its commit
            return Execution(status="nothing", notes=("the last apply was interrupted before it changed anything",))
    if number is None and not committed:
        return Execution(status="nothing")
    chosen = committed[-1] if number is None else work.journals.find(number)
    _refuse_undo(chosen, committed, work)
    return act(chosen, work)


def _describe_undo(past: PastApply, work: Work) -> Execution:
    """What an undo would change."""
    _require_means(past, work)
    install = past.begin.install
    restored = [f"{name}=={before}" for name, _, before in install if before]
    restored += past.begin.remove
    removed = [name for name, _, before in install if not before]
    system = version_changes(past)
    restored += [f"{name}={before} (apt)" for name, _, before in system if before]
    removed += [f"{name} (apt)" for name, _, before in system if not before]
    notes = [f"apply number {past.id} would be undone"]
    if restored:
        notes.append(f"would be restored: {', '.join(restored)}")
    if removed:
        notes.append(f"would be removed: {', '.join(removed)}")
    return Execution(status="dry-run", id=past.id, notes=tuple(notes))


def _put_back(past: PastApply, work: Work, why: str = "undo") -> Execution:
    _require_means(past, work)
    with ignored_signals():
        left = put_all_back(past, work, why=why)
    install = past.begin.install
    return Execution(
        status="broken" if left else "undone",
        id=past.id,
        installed=tuple(f"{name}=={before}" for name, _, before in install if before),
        removed=tuple(name for name, _, before in install if not before),
        trouble=Trouble(message="not everything could be put back", code="left") if left else None,
        left=left,
        log=past.log,
    )


def _put_files_back(past: PastApply, journals: Journals) -> tuple[str, ...]:
    """Put the files of the environment back, again if need be after a kill; returns what could not be put back."""
    files = read_files(past, journals)
    if files is None:
        return ()
    finished = any(record["kind"] == "commit" for record in past.records)
    return tuple(payload_recover.put_back(files, journals.environment.packages, finished=finished))


def read_files(past: PastApply, journals: Journals) -> dict[str, Any] | None:
    """Return the checked `files` record of a journal, None if it has none; raises WorldError for a path outside of the environment."""
    environment = journals.environment
    try:
        files = payload_recover.checked(past.records, environment.roots, past.folder)
    except ValueError as error:
        raise tampered(past.folder, str(error)) from None
    if files is not None:
        if not journals.is_store(files["store"], past.id):
            raise tampered(past.folder, "its saved files are elsewhere")
        detour = payload_recover.detour_in(files, environment.roots)
        if detour is not None:
            refuse_detour(detour, environment)
    return files


# ---- conditions of the way back


def _refuse_changed(past: PastApply, work: Work) -> None:
    """Raise WorldError if others changed the environment after an interrupted `apply`: restoring files would break it."""
    prefix = work.environment.prefix
    if past.is_of_another:
        raise WorldError(
            f"apply number {past.id} was interrupted, and the environment at {prefix} was made again since",
            code="changed-since",
            context=prefix,
            hint="nothing was put back, because the saved files belong to the old environment; `apply --force ...` discards that apply",
        )
    reasons: list[str] = []
    with suppress(WorldError):  # an invalid journal is reported by the functions that use it
        files = read_files(past, work.journals) or {}
        reasons = payload_recover.changed_since(past.records[0], files, work.environment.packages)
    if reasons and not work.force:
        raise WorldError(
            f"apply number {past.id} was interrupted, and others changed the environment since: {'; '.join(reasons)}",
            code="changed-since",
            context=prefix,
            hint="nothing was put back; inspect the environment, then use --force to put back what that apply replaced",
        )


def _refuse_undo(past: PastApply, committed: list[PastApply], work: Work) -> None:
    """Raise WorldError if an undo would not restore the state before that `apply`."""
    if past.state != "committed":
        states = {"reverted": "was put back already", "begun": "changed nothing", "dropped": "changed nothing"}
        raise WorldError(f"apply number {past.id} {states.get(past.state, 'is not finished')}", code="cannot-undo")
    later = [other.id for other in committed if other.id > past.id]
    if later:
        hint = f"undo the later ones first: `apply --undo {later[-1]}`"
        raise WorldError(f"apply number {past.id} is not the last one", code="cannot-undo", hint=hint)
    if not work.journals.can_undo(past):
        message = f"the files that apply number {past.id} replaced are not kept any more"
        raise WorldError(message, code="cannot-undo", hint="apply the old versions again")
    read_files(past, work.journals)
    changed = changed_packages(past, work.environment)
    installed = installed_packages(work.host, work.environment)
    installed_again = [name for name in past.begin.remove if name in installed]
    system = changed_system(past, work.host)
    if changed or installed_again or system:
        names = ", ".join((*changed, *installed_again, *system))
        place = "environment" if changed or installed_again else "system"
        raise WorldError(
            f"others changed the {place} since apply number {past.id}: {names}",
            code="changed-since",
            hint="undo those changes first, or apply the versions that you want",
        )


def changed_packages(past: PastApply, environment: Environment) -> tuple[str, ...]:
    """Return the names of packages that a committed journal installed and others changed since."""
    changed = []
    for installed in past.installed:
        for info in installed.infos.values():
            if not environment.holds(info):
                raise tampered(past.folder, f"it names a path outside of the environment: {info[:200]!r}")
        for name, digest in installed.records.items():
            record = f"{installed.infos.get(name)}/RECORD"
            if disk.kind(record) != "file" or disk.digest(record, "sha256") != digest:
                changed.append(name)
    return tuple(changed)


def _require_means(past: PastApply, work: Work) -> None:
    """Raise WorldError if this user could not go the whole way back."""
    files = past.last("files")
    if files is not None and (files.get("save") or files.get("add")):
        require_writable(work.environment)
    if past.changed_system and find_apt(work.host) is None:
        if which(work.host, "apt-get") is None:
            raise WorldError(
                f"apply number {past.id} changed system packages, but apt-get is not on PATH any more",
                code="no-apt",
                hint="nothing was changed; add the folder of apt-get to PATH",
            )
        way = "run `sudo -v` first, so that sudo needs no password meanwhile, then repeat the command"
        if which(work.host, "sudo") is None:
            way = "run it as root: there is no sudo here"
        raise WorldError(
            f"apply number {past.id} changed system packages, and putting them back needs root",
            code="needs-root",
            hint=f"nothing was changed; {way}",
        )


# ---- the mark of a half-changed environment, for other users and other state folders


def unfinished_of_others(environment: Environment) -> WorldError | None:
    """Return the error for an environment that an unknown `apply` left half changed; None if there is no mark of one."""
    path = mark_path(environment)
    text = disk.content(path, 1 << 12)
    if text is None:
        return None
    command = _MARK_COMMAND.search(text.decode("utf-8", "surrogateescape"))
    return WorldError(
        "an apply that is not in this user's journals left the environment half changed",
        code="unfinished",
        context=path,
        hint=(f"{_way_back(command[1], environment)}; " if command else "") + "--force takes the environment as it is",
    )


def _way_back(folder: str, environment: Environment) -> str:
    """What to do about a mark: run the recovery program of its journal, if that exists and is for this environment."""
    if disk.is_missing(f"{folder}/{RECOVER}"):
        return f"its journal {folder} is gone and nothing can put it back: make the environment again"
    past = None
    with suppress(WorldError):  # another user's journal may be unreadable
        past = read_journal(folder)
    prefix = past.begin.prefix if past is not None else environment.prefix
    if prefix != environment.prefix:
        return f"this is a copy of {prefix} made during that apply, and nothing can put it back: make the environment again"
    return f"`python3 {shlex.quote(f'{folder}/{RECOVER}')}` puts it back"


def _refuse_unfinished_of_others(work: Work) -> None:
    error = unfinished_of_others(work.environment)
    if error is None:
        return
    if not work.force:
        raise error
    disk.remove(mark_path(work.environment))


def mark_path(environment: Environment) -> str:
    """Return the path of the mark of a half-changed environment."""
    return f"{environment.packages[0]}/{payload_recover.MARK}"


def mark_environment(environment: Environment, folder: str) -> None:
    """Mark the environment as half changed; the mark has the command that puts it back, of the journal in `folder`."""
    text = f"An apply of cudnn-resolve was interrupted. This command puts the environment back:\n\npython3 {folder}/recover.py\n"
    disk.write_whole(mark_path(environment), text.encode("utf-8", "surrogateescape"))


def unmark_environment(environment: Environment) -> None:
    """Remove the mark and sync that, because the journal, whose last record follows, may be on another disk."""
    for path in (mark_path(environment), f"{mark_path(environment)}{disk.UNFINISHED}"):
        if disk.kind(path) is not None:  # a read-only disk refuses to remove even a missing file
            disk.remove(path)
            disk.sync_folder(os.path.dirname(path))
