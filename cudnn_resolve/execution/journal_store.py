"""The journals of an environment, the mark of an `apply` at work, and the disk space that journals take."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Struct

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.execution.journal import ARRIVING_DEBS, LEAVING_DEBS, STAGING, WHEELS, Journal, PastApply, read_journal, tampered
from cudnn_resolve.execution.payload_recover import JOURNAL
from cudnn_resolve.host import clock, disk, user_folders
from cudnn_resolve.host.environment_mutex import own_pid

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment

_KEPT_UNDOS = 3
"""Newest committed journals whose saved files may be kept for an undo."""
KEPT_JOURNALS = 20
"""Newest journals that `--history` shows; older ones are deleted with their logs."""
MOST_SAVED_BYTES = 20 << 30
"""Disk space that the saved files of the last undo may take."""
_MOST_OLDER_BYTES = 64 << 20
"""The same for each older undo: environments that share their files with uv's cache take next to nothing."""
_STORE = ".cudnn-resolve-saved"
_MARK = "at-work"
_RECORD_BYTES = 1 << 20

T = TypeVar("T")


class Mark(Struct, frozen=True, kw_only=True):
    """Content of the at-work mark."""

    pid: int
    at: Annotated[str, msgspec.Meta(max_length=30)]
    after: int | None = None
    """Number of the newest journal when it began; its own journal is newer."""
    words: tuple[str, ...] | None = None
    """Command-line words that request the same `apply`."""
    folder: str = "."

    def owns(self, past: PastApply) -> bool:
        """Return whether a journal is the one of the `apply` that left the mark."""
        return self.after is not None and past.id > self.after


class Journals:
    """The journals of one environment, oldest first."""

    def __init__(self, environment: Environment, root: str | None = None) -> None:
        prefix = os.path.normpath(environment.prefix)  # links are resolved already
        digest = hashlib.sha256(prefix.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        self.environment = environment
        self._root = root or user_folders.state_folder()
        self._key = f"{os.path.basename(prefix)}-{digest}"
        self.folder = f"{self._root}/environments/{self._key}"
        self._cache: dict[str, tuple[tuple[int, ...], PastApply | None]] = {}
        """Each journal as read, because it lists every file of its packages, with the state of its file at that time."""

    def all(self) -> tuple[PastApply, ...]:
        """Return every journal, oldest first; raises WorldError if one was tampered with, or if anybody could have done so."""
        self._refuse_foreign()
        journals = []
        for number, folder in _numbered(self.folder):
            past = self._read(folder)
            if past is not None:
                if past.id != number or past.begin.prefix != self.environment.prefix:
                    raise tampered(past.folder, "it belongs to another environment")
                journals.append(past)
        return tuple(journals)

    def _read(self, folder: str) -> PastApply | None:
        state = disk.state_of(f"{folder}/{JOURNAL}")
        if folder not in self._cache or self._cache[folder][0] != state:
            self._cache[folder] = state, read_journal(folder)
        return self._cache[folder][1]

    def _refuse_foreign(self) -> None:
        """Raise WorldError if other users can write here; nothing is read then."""
        user_folders.refuse_foreign(self._root)
        user_folders.refuse_foreign(self.folder)

    def open(self) -> Journal:
        """Open a new journal with the next number, which does not depend on the clock."""
        self._make_folder()
        number = self.newest() + 1
        folder = f"{self.folder}/{number:06d}"
        disk.make_folder(f"{folder}/{WHEELS}", 0o700)
        previous = f"{self.folder}/{number - 1:06d}/{WHEELS}"
        for name in disk.names_in(previous):  # fetched by an `apply` that was stopped; every file is verified again
            if disk.kind(f"{previous}/{name}") == "file":
                disk.move(f"{previous}/{name}", f"{folder}/{WHEELS}/{name}")
        return Journal(folder, number)

    def _make_folder(self) -> None:
        user_folders.private_folder(self._root)
        user_folders.private_folder(self.folder)

    def newest(self) -> int:
        """Return the number of the newest journal, 0 if there is none."""
        return max((number for number, _ in _numbered(self.folder)), default=0)

    def find(self, number: int) -> PastApply:
        """Return the journal with a number; raises UsageError if there is none."""
        for past in self.all():
            if past.id == number:
                return past
        raise UsageError(f"this environment has no apply number {number}", code="no-such-apply", hint="`apply --history` lists them")

    def store_of(self, number: int) -> str:
        """Return the folder for files that a journal saves: on the environment's file system if possible."""
        device, stores = disk.device_of(self.environment.scheme["purelib"]), self._stores(number)
        return next((store for store in stores if disk.device_of(store) == device and disk.writable(store)), stores[0])

    def is_store(self, path: object, number: int) -> bool:
        """Return whether a path is a folder that `store_of` could have returned."""
        return path in self._stores(number)

    def _stores(self, number: int) -> tuple[str, ...]:
        """Possible folders for saved files: with the journal, next to the environment, or in it."""
        prefix = self.environment.prefix.rstrip("/")
        return (f"{self.folder}/{number:06d}/saved", _store_beside(prefix, self._key, number), f"{prefix}/{_STORE}/{number:06d}")

    def _saved_files(self, past: PastApply) -> str | None:
        """Folder of the files that a journal saved; None if it is gone, or not one of ours."""
        store = str((past.last("files") or {}).get("store"))
        return store if self.is_store(store, past.id) and disk.kind(store) == "folder" else None

    def prune(self) -> None:
        """Remove wheels, packages and saved files that nothing can use any more, and the oldest journals."""
        journals = self.all()
        known, newest = {past.id for past in journals}, self.newest()
        for number, folder in _numbered(self.folder):
            if number not in known and number < newest:  # a power failure lost its first record
                for name in (WHEELS, STAGING):
                    disk.remove_tree(f"{folder}/{name}")
        committed = [past for past in journals if past.state == "committed"]
        for past in journals:
            if past.is_open:
                continue
            is_spent = past.state != "committed" or past in committed[:-_KEPT_UNDOS]
            is_reused = past is journals[-1] and (was_stopped(past) or keeps_fetched(past))
            for name in (STAGING, ARRIVING_DEBS, *((LEAVING_DEBS,) if is_spent else ()), *(() if is_reused else (WHEELS,))):
                disk.remove_tree(f"{past.folder}/{name}")
            store = self._saved_files(past)
            most_saved = MOST_SAVED_BYTES if past in committed[-1:] else _MOST_OLDER_BYTES
            if store is not None and (is_spent or disk.own_bytes(store) > most_saved):
                _drop_store(store)
            if is_spent and past not in journals[-KEPT_JOURNALS:]:
                disk.remove_tree(past.folder)

    def tidy(self, *, ended: bool = True) -> tuple[str, ...]:
        """Remove what is not needed any more; a failure is returned as a note, because the `apply` itself succeeded.

        Pass `ended=False` while an `apply` is still at work.
        """
        try:
            if ended:
                self.unmark()
            self.prune()
            if ended:  # reads the journals of every environment, a cost that an `apply` without changes does not pay
                free_lost()
        except CudnnResolveError as error:
            return (f"old journal files could not be removed: {error.message}",)
        return ()

    def mark(self, words: Sequence[str]) -> None:
        """Mark the environment as being worked on by this process, with these command-line words.

        A power failure may lose the mark, which is right: nobody is at work then.
        """
        mark = Mark(pid=own_pid(), at=clock.moment(), after=self.newest(), words=tuple(words), folder=disk.folder_here())
        self.write_record(_MARK, mark, synced=False)

    def marked(self) -> Mark | None:
        """Return the at-work mark, an empty one if it is unreadable, None without one; WorldError if anybody could have written it."""
        try:
            return self.read_record(_MARK, Mark)
        except (ValueError, RecursionError):
            return Mark(pid=0, at="")

    def unmark(self) -> None:
        """Remove the at-work mark."""
        if disk.kind(f"{self.folder}/{_MARK}") == "file":  # a read-only disk refuses to remove even a missing file
            disk.remove(f"{self.folder}/{_MARK}")

    def write_record(self, name: str, record: Struct, *, synced: bool = True) -> None:
        """Write a record next to the journals, in JSON that also holds paths which are not UTF-8."""
        self._make_folder()
        disk.write_whole(f"{self.folder}/{name}", json.dumps(msgspec.structs.asdict(record)).encode(), synced=synced)

    def read_record(self, name: str, form: type[T]) -> T | None:
        """Return a record, None without one; raises ValueError or RecursionError if it is unreadable, WorldError as `all`."""
        self._refuse_foreign()
        raw = disk.content(f"{self.folder}/{name}", _RECORD_BYTES)
        return None if raw is None else msgspec.convert(json.loads(raw), form)

    def can_undo(self, past: PastApply) -> bool:
        """Return whether a journal is committed and its saved files still exist."""
        files = past.last("files")
        return past.state == "committed" and (files is None or not files.get("save") or self._saved_files(past) is not None)


def _numbered(folder: str) -> Iterator[tuple[int, str]]:
    """Number and folder of each journal, oldest first."""
    return ((int(name), f"{folder}/{name}") for name in sorted(disk.names_in(folder)) if name.isascii() and name.isdigit())


def _store_beside(prefix: str, key: str, number: int) -> str:
    """Folder for saved files next to an environment."""
    return f"{os.path.dirname(prefix)}/{_STORE}-{key}/{number:06d}"


def _drop_store(path: str) -> None:
    """Remove a folder of saved files, and its parent if that is ours and then empty."""
    disk.remove_tree(path)
    parent = os.path.dirname(path)
    if os.path.basename(parent).startswith(_STORE):
        disk.remove_empty(parent)


def was_stopped(past: PastApply) -> bool:
    """Return whether an `apply` was killed or interrupted and so may be resumed, even if it was put back since."""
    if past.state in ("reverted", "dropped"):
        return (past.last("revert") or past.last("dropped") or {}).get("why") in ("repair", "interrupted", "recover.py")
    return past.state != "committed"


def keeps_fetched(past: PastApply) -> bool:
    """Return whether the network or the user ended an `apply` before it changed anything, so that the next reuses its files."""
    return past.state == "dropped" and (past.last("dropped") or {}).get("why") in ("interrupted", "index-unavailable")


# ---- disk space, of all environments


class Holding(Struct, frozen=True, kw_only=True):
    """Folders of one environment's journals, and the disk space that they take."""

    prefix: str
    folder: str
    stores: tuple[str, ...] = ()
    """Folders of saved files outside of `folder`."""
    bytes: int = 0
    """Disk space that freeing gives back; files that the environment shares by hard links do not count."""
    is_gone: bool = False
    is_lost: bool = False
    """True if the environment itself is gone, not only its disk."""
    is_open: bool = False
    """True if an `apply` was stopped midway, so that the saved files are the only way back."""


def holdings() -> tuple[Holding, ...]:
    """Return the holdings of every environment that this user's journals are about."""
    root = f"{user_folders.state_folder()}/environments"
    user_folders.refuse_foreign(user_folders.state_folder())
    return tuple(found for name in sorted(disk.names_in(root)) if (found := _holding(f"{root}/{name}")) is not None)


def _holding(folder: str) -> Holding | None:
    journals = []
    for number, journal in _numbered(folder):
        with suppress(WorldError):  # unreadable journals are left for a person to inspect
            past = read_journal(journal)
            if past is not None and past.id == number:
                journals.append(past)
    if not journals:
        return None
    prefix = journals[-1].begin.prefix
    stores = []
    for past in journals:
        beside = _store_beside(prefix.rstrip("/"), os.path.basename(folder), past.id)
        if (past.last("files") or {}).get("store") == beside and disk.kind(beside) == "folder":
            stores.append(beside)
    is_gone = disk.kind(prefix) != "folder"
    return Holding(
        prefix=prefix,
        folder=folder,
        stores=tuple(stores),
        bytes=sum(map(disk.own_bytes, (folder, *stores))),
        is_gone=is_gone,
        is_lost=is_gone and journals[-1].begin.device == disk.device_of(prefix),
        is_open=any(past.is_open for past in journals),
    )


def free(holding: Holding) -> None:
    """Remove everything that is kept for an environment; raises WorldError if that fails."""
    for store in holding.stores:
        _drop_store(store)
    disk.remove_tree(holding.folder)


def free_lost() -> None:
    """Remove what is kept for environments that are gone, as far as possible; a way back stays, because the folder may return."""
    with suppress(WorldError):
        for holding in holdings():
            if holding.is_lost and not holding.is_open:
                free(holding)
