"""The journals of `apply`: what one found, does and did, on the disk before it acts; a line of JSON for each record.

A journal is read as the word of a stranger: a line whose sum does not follow from the lines before it ends it or makes it invalid,
and paths in it count only where they lie inside the environment that its interpreter itself names. Of commands it has one alone: the words
that asked for the `apply`, which `--resume` reads anew as words of that verb, and of no program.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Struct

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.execution.payload_recover import next_sum, read_records, state_of
from cudnn_resolve.host import clock, disk, user_folders
from cudnn_resolve.host.environment_lock import own_pid
from cudnn_resolve.host.interrupt import deferred_signals

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment

SCHEMA = 1
FILE = "journal.jsonl"
LOG = "log.txt"
RECOVER = "recover.py"
"""The way back as a program of its own, `payload_recover.py`."""
WHEELS = "wheels"
"""Folder, in that of a journal, of the files that were fetched for pip."""
STAGING = "staging"
"""Folder of what uv has laid out."""
LEAVING = "debs"
"""Folder of the .deb files of packages that are replaced; also of cuda-keyring, and of lists that are not finished."""
ARRIVING = "debs-arriving"
"""Folder of the .deb files of packages that come: needed only as long as the journal is open."""
_LIMIT_BYTES = 512 << 20

_FOLLOWED = frozenset({"begin", "fetched", "files", "saved", "installed"})
"""Records after which nothing is done that has no way back before a record follows that is synced, with all before it: `change` before
anything of the machine changes, `commit` or `revert` at its end."""

OPEN = ("begun", "changing", "reverting")
"""States of an `apply` that did not come to its end."""


T = TypeVar("T")


class InstalledRecord(Struct, frozen=True):
    """What a journal says of the packages that an installer laid down."""

    records: Mapping[str, str]
    """Package to the sum of its RECORD."""
    infos: Mapping[str, str]
    """Package to its `.dist-info`."""


class PastApply(Struct, frozen=True, kw_only=True):
    """One journal, read."""

    folder: str
    id: int
    state: str
    """`begun` (nothing changed yet), `changing`, `committed`, `reverting`, `reverted`, `dropped` or `broken`."""
    records: tuple[Mapping[str, Any], ...]

    @property
    def begin(self) -> Mapping[str, Any]:
        """The first record."""
        return self.records[0]

    def last(self, kind: str) -> Mapping[str, Any] | None:
        """The newest record of a kind; None where there is none."""
        return next((one for one in reversed(self.records) if one["kind"] == kind), None)

    def told(self, kind: str, form: type[T]) -> tuple[T, ...]:
        """Every record of a kind, in order, as the values that it must hold; WorldError where one holds others."""
        try:
            return tuple(msgspec.convert(one, form) for one in self.records if one["kind"] == kind)
        except msgspec.ValidationError:
            raise tampered(self.folder, f"its record `{kind}` is not readable") from None

    @property
    def installed(self) -> tuple[InstalledRecord, ...]:
        """What installers laid down; WorldError where that is not readable."""
        return self.told("installed", InstalledRecord)

    @property
    def is_open(self) -> bool:
        """True where the environment may be neither the old nor the new one."""
        return self.state in ("changing", "reverting", "broken")

    @property
    def log(self) -> str:
        """Path of the log file."""
        return f"{self.folder}/{LOG}"


class Journal:
    """An open journal, to which records are added."""

    def __init__(self, folder: str, number: int, *, watch: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.id = number
        self._sum = ""
        self._size = 0
        self.has_changed = False
        """True once something that it is about may have changed."""
        self.watch = watch

    @property
    def log(self) -> str:
        """Path of the log file."""
        return f"{self.folder}/{LOG}"

    @property
    def wheels(self) -> str:
        """Folder of the files that are to be installed."""
        return f"{self.folder}/{WHEELS}"

    def add(self, kind: str, **values: Any) -> None:
        """Append a record, on the disk when this returns where anything follows that needs it. WorldError where it cannot be written."""
        body = json.dumps({"kind": kind, "at": clock.moment(), **values}, separators=(",", ":"), sort_keys=True)
        found = next_sum(self._sum, body)
        line = f"{found} {body}\n".encode()
        path = f"{self.folder}/{FILE}"
        with deferred_signals():  # a signal in the middle would leave a line on the disk that we do not know of
            try:
                disk.append(path, line, synced=kind not in _FOLLOWED)
            except WorldError:
                if disk.size_of(path) > self._size:  # a full disk leaves half a line
                    disk.cut(path, self._size)
                raise
            self._sum, self._size = found, self._size + len(line)
        self.has_changed = self.has_changed or kind == "change"
        if self.watch is not None:
            self.watch(kind)

    def read(self) -> PastApply:
        """What it says so far."""
        found = read_journal(self.folder)
        assert found is not None
        return found

    @classmethod
    def resume(cls, past: PastApply, *, watch: Callable[[str], None] | None = None) -> Journal:
        """Continue the journal of an apply; half a line at its end is cut off."""
        journal = cls(past.folder, past.id, watch=watch)
        _, journal._sum, journal._size = read_records(_content(past.folder))
        disk.cut(f"{past.folder}/{FILE}", journal._size)
        return journal


def read_journal(folder: str) -> PastApply | None:
    """Read the journal in a folder; None where no first record was finished. WorldError where somebody else wrote into it."""
    content = _content(folder)
    records, _, size = read_records(content)
    rest = content[size:]
    if b"\n" in rest:
        raise tampered(folder, "a line in it does not follow from the lines before it")
    if not records:
        return None
    first = records[0]
    if first.get("kind") != "begin" or first.get("schema") != SCHEMA or not isinstance(first.get("id"), int):
        raise tampered(folder, "it begins as none of this program does")
    try:
        msgspec.convert(first, _Asked)
    except msgspec.ValidationError:
        raise tampered(folder, "what it says was asked for is not readable") from None
    return PastApply(folder=folder, id=first["id"], state=state_of(records), records=tuple(records))


class _Asked(Struct, frozen=True):
    """What the first record holds, as far as it is told or done again."""

    install: tuple[tuple[str, str, str | None], ...] = ()
    words: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    folder: str = "."
    at: str = ""


def _content(folder: str) -> bytes:
    return disk.content(f"{folder}/{FILE}", _LIMIT_BYTES) or b""


def inside(paths: object, environment: Environment, folder: str) -> tuple[str, ...]:
    """The paths of a record, each of which must lie in the environment; WorldError where one does not."""
    if not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
        raise tampered(folder, "a list of paths in it is none")
    for one in paths:
        if not environment.holds(one):
            raise tampered(folder, f"it names a path outside of the environment: {one[:200]!r}")
    return tuple(paths)


def tampered(folder: str, why: str) -> WorldError:
    """The refusal of a journal that this program did not write so."""
    return WorldError(
        f"the journal {folder} is not as it was written: {why}",
        code="journal-invalid",
        context=folder,
        hint="nothing was changed; look at what it says, and remove that folder if the environment is as you want it",
    )


# ---- those of one environment


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
        self._root = root or user_folders.state_folder()
        self._key = f"{os.path.basename(real)}-{key}"
        self.folder = f"{self._root}/environments/{self._key}"
        self._read: dict[str, tuple[tuple[int, ...], PastApply | None]] = {}
        """What was read of each journal, which names every file of its packages, and the state of its file then."""

    def all(self) -> tuple[PastApply, ...]:
        """Every journal, oldest first; WorldError where one was tampered with, or could have been by anybody."""
        self._refuse_foreign()
        out = []
        for number, folder in _numbered(self.folder):
            past = self._past(folder)
            if past is not None:
                if past.id != number or past.begin.get("prefix") != self.environment.prefix:
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
        user_folders.refuse_foreign(self._root)
        user_folders.refuse_foreign(self.folder)

    def open(self, *, watch: Callable[[str], None] | None = None) -> Journal:
        """A new journal, after all others; its number does not depend on the clock."""
        user_folders.private_folder(self._root)
        user_folders.private_folder(self.folder)
        number = self.newest() + 1
        folder = f"{self.folder}/{number:06d}"
        disk.make_folder(f"{folder}/{WHEELS}", 0o700)
        before = f"{self.folder}/{number - 1:06d}/{WHEELS}"
        for name in disk.names_in(before):  # what an `apply` fetched that was stopped need not be fetched again; each is verified anew
            if disk.kind(f"{before}/{name}") == "file":
                disk.move(f"{before}/{name}", f"{folder}/{WHEELS}/{name}")
        return Journal(folder, number, watch=watch)

    def newest(self) -> int:
        """The number of the newest journal, 0 where there is none."""
        return max((number for number, _ in _numbered(self.folder)), default=0)

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
        disk.remove_tree(path)
        above = os.path.dirname(path)
        if os.path.basename(above).startswith(_BESIDE):
            disk.remove_empty(above)

    def prune(self) -> None:
        """Remove wheels, packages and saved files that nobody can need any more, and the oldest journals, which nothing can use."""
        applies = self.all()
        known, newest = {one.id for one in applies}, self.newest()
        for number, folder in _numbered(self.folder):
            if number not in known and number < newest:  # a power failure took its first record along
                for name in (WHEELS, STAGING):
                    disk.remove_tree(f"{folder}/{name}")
        committed = [one for one in applies if one.state == "committed"]
        for one in applies:
            if one.is_open:
                continue
            awaited = one is applies[-1] and (was_stopped(one) or keeps_fetched(one))
            spent = one.state != "committed" or one in committed[:-KEPT]
            for name in (STAGING, ARRIVING, *((LEAVING,) if spent else ()), *(() if awaited else (WHEELS,))):
                disk.remove_tree(f"{one.folder}/{name}")
            store = (one.last("files") or {}).get("store")
            if self.is_store(store, one.id) and disk.kind(str(store)) == "folder":
                most = MOST_SAVED_BYTES if one in committed[-1:] else _MOST_OLDER_BYTES
                if spent or disk.own_bytes(str(store)) > most:
                    self.drop_store(str(store))
            if spent and one not in applies[-KEPT_JOURNALS:]:
                disk.remove_tree(one.folder)

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
        user_folders.private_folder(self._root)
        user_folders.private_folder(self.folder)
        disk.write_whole(f"{self.folder}/{_MARK}", text.encode(), synced=False)

    def marked(self) -> str | None:
        """What `mark` wrote, where it was not taken away again; None otherwise. WorldError where anybody could have written it."""
        self._refuse_foreign()
        raw = disk.content(f"{self.folder}/{_MARK}", _MARK_BYTES)
        return None if raw is None else raw.decode("utf-8", "replace")

    def unmark(self) -> None:
        """Remove the mark of `mark`."""
        if disk.kind(f"{self.folder}/{_MARK}") == "file":  # a disk that cannot be written refuses also to remove what is not there
            disk.remove(f"{self.folder}/{_MARK}")

    def can_undo(self, past: PastApply) -> bool:
        """True where a committed journal still has what it saved."""
        files = past.last("files")
        return past.state == "committed" and (
            files is None or not files.get("save") or (self.is_store(files.get("store"), past.id) and disk.kind(files["store"]) == "folder")
        )


def _numbered(folder: str) -> Iterator[tuple[int, str]]:
    """The number and the folder of each journal, oldest first."""
    return ((int(name), f"{folder}/{name}") for name in sorted(disk.names_in(folder)) if name.isascii() and name.isdigit())


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
    at: Annotated[str, msgspec.Meta(max_length=30)]
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
    mark = Mark(pid=own_pid(), at=clock.moment(), after=journals.newest(), words=tuple(words), folder=disk.folder_here())
    journals.mark(json.dumps(msgspec.structs.asdict(mark)))


def read_mark(journals: Journals) -> Mark | None:
    """The mark that is there; None where there is none, or none that can be read."""
    try:
        return msgspec.convert(json.loads(journals.marked() or ""), Mark)
    except (ValueError, RecursionError):
        return None


# ---- what they hold of the disk, of all environments


class Holding(Struct, frozen=True, kw_only=True):
    """The folders of one environment's journals, and what they take."""

    prefix: str
    folder: str
    stores: tuple[str, ...] = ()
    """Folders of saved files that lie elsewhere."""
    bytes: int = 0
    """What freeing it gives back: files that the environment shares by links take nothing."""
    is_gone: bool = False
    is_lost: bool = False
    """True where the environment is gone, and not only its disk."""
    is_open: bool = False
    """True where an `apply` was stopped in the middle: what is kept is the way back."""


def holdings() -> tuple[Holding, ...]:
    """Every environment that journals of this user are of."""
    root = f"{user_folders.state_folder()}/environments"
    user_folders.refuse_foreign(user_folders.state_folder())
    return tuple(found for name in sorted(disk.names_in(root)) if (found := _holding(f"{root}/{name}")) is not None)


def _holding(folder: str) -> Holding | None:
    applies = []
    for number, journal in _numbered(folder):
        with suppress(WorldError):  # one that cannot be read is for those who look at it
            past = read_journal(journal)
            if past is not None and past.id == number:
                applies.append(past)
    if not applies:
        return None
    prefix = str(applies[-1].begin.get("prefix"))
    stores = tuple(store for one in applies if (store := _store(one, prefix, os.path.basename(folder))) is not None)
    gone = disk.kind(prefix) != "folder"
    return Holding(
        prefix=prefix,
        folder=folder,
        stores=stores,
        bytes=sum(map(disk.own_bytes, (folder, *stores))),
        is_gone=gone,
        is_lost=gone and applies[-1].begin.get("device") == disk.device_of(prefix),
        is_open=any(one.is_open for one in applies),
    )


def _store(past: PastApply, prefix: str, key: str) -> str | None:
    """The folder of saved files beside the environment, where it is one that `Journals.store_of` gives."""
    store = (past.last("files") or {}).get("store")
    above = os.path.dirname(prefix.rstrip("/"))
    named = f"{above}/{_BESIDE}-{key}/{past.id:06d}"
    return named if store == named and disk.kind(named) == "folder" else None


def free(one: Holding) -> None:
    """Remove everything that is held for an environment; WorldError where that is not possible."""
    for store in one.stores:
        disk.remove_tree(store)
        disk.remove_empty(os.path.dirname(store))
    disk.remove_tree(one.folder)


def free_lost() -> None:
    """Remove what is held for environments that are gone; what cannot be removed stays, and so does a way back: a folder may return."""
    with suppress(WorldError):
        for one in holdings():
            if one.is_lost and not one.is_open:
                free(one)
