"""One thing in which a lock and the present differ."""

from __future__ import annotations

from msgspec import Struct


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is no longer as the lock has it, or not here as the lock needs it, in plain words."""

    what: str
    locked: str
    now: str
    because: str | None = None
    """How that is known, or what it comes from."""
    machine: bool = False
    """True where the lock is not at fault, but for another machine than the one that it was held against."""
