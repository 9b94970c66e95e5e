"""What an `apply` found, does and did, on the disk before it acts; a line of JSON for each record.

A journal is read as the word of a stranger: a line whose sum does not follow from the lines before it ends it or makes it invalid,
and paths in it count only where they lie inside the environment that its interpreter itself names. Of commands it has one alone: the words
that asked for the `apply`, which `--resume` reads anew as words of that verb, and of no program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.payload_recover import next_sum, read_records, state_of
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.interrupt import held_back

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

    def all(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Every record of a kind, in order."""
        return tuple(one for one in self.records if one["kind"] == kind)

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
        with held_back():  # a signal in the middle would leave a line on the disk that we do not know of
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
    if not _is_readable(first):
        raise tampered(folder, "what it says was asked for is not readable")
    return PastApply(folder=folder, id=first["id"], state=state_of(records), records=tuple(records))


def _is_readable(first: Mapping[str, Any]) -> bool:
    """True where the first record holds what it should, as far as it is told or done again."""
    rows = first.get("install", [])
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        return False
    lists = [first.get(name, []) for name in ("words", "targets", "remove")]
    if not all(isinstance(one, list) for one in lists):
        return False
    texts = [first.get("folder", "."), first.get("at", ""), *(row[0] for row in rows), *(row[1] for row in rows)]
    texts += [row[2] for row in rows if row[2] is not None]
    return all(isinstance(one, str) for one in (*texts, *lists[0], *lists[1], *lists[2]))


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
