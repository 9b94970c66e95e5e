"""The mark of an `apply` that is at work: who it is and what it was asked for. One that is killed leaves it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.hold import own_pid

if TYPE_CHECKING:
    from cudnn_resolve.execution.journal import PastApply
    from cudnn_resolve.execution.journals import Journals


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
