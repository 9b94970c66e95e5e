"""The journals of one environment, what they saved, and the mark of an `apply` that is at work."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.errors import CudnnResolveError, UsageError
from cudnn_resolve.execution.journal import ARRIVING, FILE, LEAVING, STAGING, WHEELS, Journal, PastApply, read_journal
from cudnn_resolve.execution.space import free_lost
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.environment_lock import own_pid

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import PastApply


KEPT = 3
"""Committed journals whose saved files may be kept, so that they can be undone."""
KEPT_JOURNALS = 20
"""Journals that stay to be read by `--history`; older ones go, with their logs."""
MOST_SAVED_BYTES = 20 << 30
"""What the last undo may hold of the disk."""
_MOST_OLDER_BYTES = 64 << 20
"""What each undo before it may: those of environments that share their files with uv's cache hold next to nothing."""
_BESIDE = ".cudnn-resolve-saved"
_MARK = "at-work"
_MARK_BYTES = 1 << 20
_FETCH_AGAIN = ("interrupted", "index-unavailable")


class Journals:
    """Where the journals of one environment stand, oldest first."""

    def __init__(self, environment: Environment, root: str | None = None) -> None:
        real = os.path.normpath(environment.prefix)  # links resolved
        key = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        self.environment = environment
        self._root = root or disk.state_folder()
        self._key = f"{os.path.basename(real)}-{key}"
        self.folder = f"{self._root}/environments/{self._key}"
        self._read: dict[str, tuple[tuple[int, ...], PastApply | None]] = {}
        """What was read of each journal, which names every file of its packages, and the state of its file then."""

    def all(self) -> tuple[PastApply, ...]:
        """Every journal, oldest first; WorldError where one was tampered with, or could have been by anybody."""
        self._refuse_foreign()
        out = []
        for name in sorted(disk.names_in(self.folder)):
            if name.isascii() and name.isdigit():
                past = self._past(f"{self.folder}/{name}")
                if past is not None:
                    if past.id != int(name) or past.begin.get("prefix") != self.environment.prefix:
                        from cudnn_resolve.execution.journal import tampered

                        raise tampered(past.folder, "it is of another environment")
                    out.append(past)
        return tuple(out)

    def _past(self, folder: str) -> PastApply | None:
        state = disk.state_of(f"{folder}/{FILE}")
        if folder not in self._read or self._read[folder][0] != state:
            self._read[folder] = state, read_journal(folder)
        return self._read[folder][1]

    def _refuse_foreign(self) -> None:
        """Reject journals that others than this user can change, without reading them; raises WorldError."""
        disk.refuse_foreign(self._root)
        disk.refuse_foreign(self.folder)

    def open(self, *, watch: Callable[[str], None] | None = None) -> Journal:
        """A new journal, after all others; its number does not depend on the clock."""
        disk.private_folder(self._root)
        disk.private_folder(self.folder)
        number = self.newest() + 1
        folder = f"{self.folder}/{number:06d}"
        disk.make_folder(f"{folder}/{WHEELS}", 0o700)
        if number > 1:
            self._adopt(f"{self.folder}/{number - 1:06d}/{WHEELS}", f"{folder}/{WHEELS}")
        return Journal(folder, number, watch=watch)

    def newest(self) -> int:
        """The number of the newest journal, 0 where there is none."""
        return max((int(name) for name in disk.names_in(self.folder) if name.isascii() and name.isdigit()), default=0)

    def _adopt(self, before: str, wheels: str) -> None:
        """Files that an `apply` fetched that was stopped need not be fetched again; each is verified anew."""
        for name in disk.names_in(before) if disk.kind(before) == "folder" else ():
            if disk.kind(f"{before}/{name}") == "file":
                disk.move(f"{before}/{name}", f"{wheels}/{name}")

    def store_of(self, number: int) -> str:
        """The folder for files that journal `number` takes out of the environment: on the same file system where that can be had."""
        wanted, places = disk.device_of(self.environment.scheme["purelib"]), self._places(number)
        return next((one for one in places if disk.device_of(one) == wanted and disk.writable(one)), places[0])

    def is_store(self, path: object, number: int) -> bool:
        """True for a folder that `store_of` gives or could have given."""
        return path in self._places(number)

    def _places(self, number: int) -> tuple[str, ...]:
        """Where saved files may lie: with the journal, beside the environment, or in it."""
        prefix = self.environment.prefix.rstrip("/")
        beside = f"{os.path.dirname(prefix)}/{_BESIDE}-{self._key}"
        return (f"{self.folder}/{number:06d}/saved", f"{beside}/{number:06d}", f"{prefix}/{_BESIDE}/{number:06d}")

    def drop_store(self, path: str) -> None:
        """Remove a folder of saved files, and the one above it where that is empty then and ours."""
        if disk.kind(path) == "folder":
            disk.remove_tree(path)
        above = os.path.dirname(path)
        if os.path.basename(above).startswith(_BESIDE):
            disk.remove_empty(above)

    def prune(self) -> None:
        """Remove wheels, packages and saved files that nobody can need any more, and the oldest journals, which nothing can use."""
        applies = self.all()
        self._remove_unwritten({one.id for one in applies})
        committed = [one for one in applies if one.state == "committed"]
        for one in applies:
            if one.is_open:
                continue
            awaited = one is applies[-1] and (was_stopped(one) or keeps_fetched(one))
            if disk.kind(f"{one.folder}/{WHEELS}") == "folder" and not awaited:
                disk.remove_tree(f"{one.folder}/{WHEELS}")
            files = one.last("files")
            spent = one.state != "committed" or one in committed[:-KEPT]
            for name in (STAGING, ARRIVING, *((LEAVING,) if spent else ())):
                if disk.kind(f"{one.folder}/{name}") == "folder":
                    disk.remove_tree(f"{one.folder}/{name}")
            store = files.get("store") if files is not None else None
            if self.is_store(store, one.id) and disk.kind(str(store)) == "folder":
                most = MOST_SAVED_BYTES if one in committed[-1:] else _MOST_OLDER_BYTES
                if spent or disk.own_bytes(str(store)) > most:
                    self.drop_store(str(store))
            if spent and one not in applies[-KEPT_JOURNALS:]:
                disk.remove_tree(one.folder)

    def _remove_unwritten(self, known: Collection[int]) -> None:
        """Remove what was fetched for journals of which a power failure took the first record along."""
        for number in (int(name) for name in disk.names_in(self.folder) if name.isascii() and name.isdigit()):
            if number not in known and number < self.newest():
                for name in (WHEELS, STAGING):
                    if disk.kind(f"{self.folder}/{number:06d}/{name}") == "folder":
                        disk.remove_tree(f"{self.folder}/{number:06d}/{name}")

    def tidy(self, *, ended: bool = True) -> tuple[str, ...]:
        """What could not be tidied up after an end that is written down, in words: that is no failure of what came to its end.

        Without `ended` somebody is still at work.
        """
        try:
            if ended:
                self.unmark()
            self.prune()
            if ended:  # it reads the journals of every environment: what changes nothing does not pay for that
                free_lost()
        except CudnnResolveError as error:
            return (f"what is not needed any more is still there: {error.message}",)
        return ()

    def mark(self, text: str) -> None:
        """Write down that somebody is at work, and how to call it; a power failure may take it along: nobody is at work then."""
        disk.private_folder(self._root)
        disk.private_folder(self.folder)
        disk.write_whole(f"{self.folder}/{_MARK}", text.encode(), synced=False)

    def marked(self) -> str | None:
        """What `mark` wrote, where it was not taken away again; None otherwise. WorldError where anybody could have written it."""
        self._refuse_foreign()
        raw = disk.content(f"{self.folder}/{_MARK}", _MARK_BYTES)
        return None if raw is None else raw.decode("utf-8", "replace")

    def unmark(self) -> None:
        """Remove the mark of `mark`."""
        if disk.kind(f"{self.folder}/{_MARK}") == "file":
            disk.remove(f"{self.folder}/{_MARK}")

    def can_undo(self, past: PastApply) -> bool:
        """True where a committed journal still has what it saved."""
        files = past.last("files")
        return past.state == "committed" and (
            files is None or not files.get("save") or (self.is_store(files.get("store"), past.id) and disk.kind(files["store"]) == "folder")
        )


def was_stopped(past: PastApply) -> bool:
    """True for an `apply` that was killed or interrupted, also where it has been put back since: it may be resumed."""
    last = past.last("revert") or past.last("dropped")
    return (
        past.state == "begun"
        or past.is_open
        or (past.state in ("reverted", "dropped") and last is not None and last.get("why") in ("repair", "interrupted", "recover.py"))
    )


def keeps_fetched(past: PastApply) -> bool:
    """True for an `apply` that the network or a user ended before it changed anything: the next one need not fetch those files again."""
    last = past.last("dropped")
    return past.state == "dropped" and last is not None and str(last.get("why")) in _FETCH_AGAIN


def find_journal(journals: Journals, number: int) -> PastApply:
    """The journal of that number; UsageError where there is none."""
    for one in journals.all():
        if one.id == number:
            return one
    raise UsageError(f"there is no apply number {number} of this environment", code="no-such-apply", hint="`apply --history` lists them")


class Mark(Struct, frozen=True, kw_only=True):
    """What the mark says."""

    pid: int
    at: str
    after: int | None = None
    """Number of the newest journal when it began: its own one is newer."""
    words: tuple[str, ...] | None = None
    """The words of a command line that asks for the same."""
    folder: str = "."

    def owns(self, past: PastApply) -> bool:
        """True where the journal is of the `apply` that left the mark."""
        return self.after is not None and past.id > self.after


def write_mark(journals: Journals, words: Sequence[str]) -> None:
    """Write down that this process is at work, and on what."""
    said = {"pid": own_pid(), "at": clock.moment(), "after": journals.newest(), "words": list(words), "folder": disk.folder_here()}
    journals.mark(json.dumps(said))


def read_mark(journals: Journals) -> Mark | None:
    """The mark that is there; None where there is none, or none that can be read."""
    try:
        told = json.loads(journals.marked() or "")
        words, after = told.get("words"), told.get("after")
        return Mark(
            pid=int(told["pid"]),
            at=str(told["at"])[:30],
            after=after if isinstance(after, int) else None,
            words=tuple(words) if isinstance(words, list) and all(isinstance(one, str) for one in words) else None,
            folder=str(told.get("folder", ".")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
