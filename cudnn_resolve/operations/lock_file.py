"""Reading a lock from disk."""

from __future__ import annotations

from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.locking.model import Lock
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read


def read_lock(path: str) -> Lock:
    """The lock in a file; InputError for a missing or invalid one."""
    return read(lock_text(path), path)


def lock_text(path: str) -> str:
    """The text of a lock file, at most `LIMIT_BYTES`; InputError for a missing one."""
    return read_bounded(path, LIMIT_BYTES, "lock")
