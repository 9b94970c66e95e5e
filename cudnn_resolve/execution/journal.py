"""The journal of an `apply`: its findings and actions, on the disk before it acts; one line of JSON per record.

A journal is untrusted input. A line whose checksum does not follow from the lines before it ends the journal or makes it invalid, and
paths count only inside the environment that its interpreter itself reports. The only command in a journal are the words that requested
the `apply`; `--resume` parses them as arguments of `apply`, never of another program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.payload_recover import JOURNAL, OPEN, is_another, next_sum, read_records, state_of
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.interrupt import deferred_signals

SCHEMA = 1
_LOG = "log.txt"
RECOVER = "recover.py"
"""Copy of `payload_recover.py`, which puts the environment back without this program."""
WHEELS = "wheels"
"""Subfolder of wheels fetched for pip."""
STAGING = "staging"
"""Subfolder of what uv unpacked."""
LEAVING_DEBS = "debs"
"""Subfolder of the .deb files of replaced packages; also holds keys and unfinished source lists."""
ARRIVING_DEBS = "debs-arriving"
"""Subfolder of the .deb files of new packages, needed only while the journal is open."""
_LIMIT_BYTES = 512 << 20

_UNSYNCED = frozenset({"begin", "fetched", "files", "saved", "installed"})
"""Records that need no sync: nothing irreversible is done before a later record syncs them all. `change` comes before anything on the
machine changes, `commit` or `revert` at its end."""

T = TypeVar("T")


class Begin(Struct, frozen=True):
    """The `begin` record: the environment and the request."""

    prefix: str = ""
    device: int | None = None
    """Number of the environment's file system."""
    install: tuple[tuple[str, str, str | None], ...] = ()
    """Name, new and old version of each package to install."""
    remove: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Command-line words that request the same `apply`."""
    folder: str = "."
    """Working directory of that command."""
    at: str = ""


class InstalledRecord(Struct, frozen=True):
    """The `installed` record: packages that an installer wrote."""

    records: Mapping[str, str]
    """Package to the SHA-256 of its RECORD."""
    infos: Mapping[str, str]
    """Package to its `.dist-info`."""


class PastApply(Struct, frozen=True, kw_only=True):
    """A journal as read from the disk."""

    folder: str
    id: int
    state: str
    """`begun` (nothing changed yet), `changing`, `committed`, `reverting`, `reverted`, `dropped` or `broken`."""
    records: tuple[Mapping[str, Any], ...]

    @property
    def begin(self) -> Begin:
        """The first record."""
        return msgspec.convert(self.records[0], Begin)

    @property
    def is_of_another(self) -> bool:
        """True if the environment was made again since, so that the saved files do not belong to it."""
        return is_another(self.records[0])

    def last(self, kind: str) -> Mapping[str, Any] | None:
        """Return the newest record of a kind; None if there is none."""
        return next((record for record in reversed(self.records) if record["kind"] == kind), None)

    def records_of(self, kind: str, form: type[T]) -> tuple[T, ...]:
        """Return all records of a kind in order, decoded; raises WorldError for one of another form."""
        try:
            return tuple(msgspec.convert(record, form) for record in self.records if record["kind"] == kind)
        except msgspec.ValidationError:
            raise tampered(self.folder, f"its record `{kind}` is not readable") from None

    def last_of(self, kind: str, form: type[T]) -> T | None:
        """Return the newest record of a kind, decoded as in `records_of`; None if there is none."""
        return next(reversed(self.records_of(kind, form)), None)

    @property
    def changed_system(self) -> bool:
        """True if it may have changed system packages, or the lists and keys of apt."""
        return any(record["kind"] in ("apt", "keyring") for record in self.records)

    @property
    def installed(self) -> tuple[InstalledRecord, ...]:
        """Packages that installers wrote; raises WorldError if that is not readable."""
        return self.records_of("installed", InstalledRecord)

    @property
    def is_open(self) -> bool:
        """True if the environment may be neither the old nor the new one."""
        return self.state in OPEN

    @property
    def log(self) -> str:
        """Path of the log file."""
        return f"{self.folder}/{_LOG}"


class Journal:
    """An open journal, to which records are appended."""

    def __init__(self, folder: str, number: int) -> None:
        self.folder = folder
        self.id = number
        self._sum = ""
        self._size = 0
        self.has_changed = False
        """True once anything outside of the journal may have changed."""

    @property
    def log(self) -> str:
        """Path of the log file."""
        return f"{self.folder}/{_LOG}"

    @property
    def wheels(self) -> str:
        """Folder of wheels to install."""
        return f"{self.folder}/{WHEELS}"

    def add(self, kind: str, **values: Any) -> None:
        """Append a record, synced to the disk if what follows needs it; raises WorldError if it cannot be written."""
        body = json.dumps({"kind": kind, "at": clock.moment(), **values}, separators=(",", ":"), sort_keys=True)
        checksum = next_sum(self._sum, body)
        line = f"{checksum} {body}\n".encode()
        path = f"{self.folder}/{JOURNAL}"
        with deferred_signals():  # a signal here would leave a line on the disk that this object does not know of
            try:
                disk.append(path, line, synced=kind not in _UNSYNCED)
            except WorldError:
                if disk.size_of(path) > self._size:  # a full disk leaves half a line
                    disk.cut(path, self._size)
                raise
            self._sum, self._size = checksum, self._size + len(line)
        self.has_changed = self.has_changed or kind == "change"

    @classmethod
    def resume(cls, past: PastApply) -> Journal:
        """Reopen a journal; cuts off a half-written last line."""
        journal = cls(past.folder, past.id)
        _, journal._sum, journal._size = read_records(_content(past.folder))
        disk.cut(f"{past.folder}/{JOURNAL}", journal._size)
        return journal


def read_journal(folder: str) -> PastApply | None:
    """Read the journal in a folder; None if it has no complete record, WorldError if somebody else wrote into it."""
    content = _content(folder)
    records, _, size = read_records(content)
    if b"\n" in content[size:]:
        raise tampered(folder, "a line in it does not follow from the lines before it")
    if not records:
        return None
    first = records[0]
    if first.get("kind") != "begin" or first.get("schema") != SCHEMA or not isinstance(first.get("id"), int):
        raise tampered(folder, "its first record is not one of this program")
    try:
        msgspec.convert(first, Begin)
    except msgspec.ValidationError:
        raise tampered(folder, "its first record is not readable") from None
    return PastApply(folder=folder, id=first["id"], state=state_of(records), records=tuple(records))


def _content(folder: str) -> bytes:
    return disk.content(f"{folder}/{JOURNAL}", _LIMIT_BYTES) or b""


def tampered(folder: str, why: str) -> WorldError:
    """Error for a journal that this program did not write."""
    return WorldError(
        f"the journal {folder} was modified: {why}",
        code="journal-invalid",
        context=folder,
        hint="nothing was changed; inspect the journal, and remove its folder if the environment is as you want it",
    )
