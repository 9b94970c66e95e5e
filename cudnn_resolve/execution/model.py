"""What became of an `apply`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cudnn_resolve.errors import ExitCode

Status = Literal["nothing", "done", "failed", "reverted", "broken", "undone", "interrupted", "declined", "dry-run"]

EXITS = {
    "nothing": ExitCode.OK,
    "done": ExitCode.OK,
    "undone": ExitCode.OK,
    "dry-run": ExitCode.OK,
    "declined": ExitCode.NO,
    "failed": ExitCode.WORLD,
    "reverted": ExitCode.REVERTED,
    "broken": ExitCode.BROKEN,
}


class Done(Struct, frozen=True, kw_only=True):
    """One step that was taken."""

    what: str
    seconds: float = 0.0


class Trouble(Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    code: str
    context: str | None = None
    hint: str | None = None


class Execution(Struct, frozen=True, kw_only=True):
    """What became of an `apply`, an undo or a repair."""

    status: Status
    id: int | None = None
    """Number of its journal; None where there is none."""
    steps: tuple[Done, ...] = ()
    installed: tuple[str, ...] = ()
    """`name==version`."""
    removed: tuple[str, ...] = ()
    trouble: Trouble | None = None
    left: tuple[str, ...] = ()
    """What could not be put back."""
    differences: tuple[str, ...] = ()
    """What was seen afterwards and is not as planned."""
    log: str | None = None
    kept_bytes: int = 0
    """What the way back holds of the disk, beyond what the environment shares by links."""
    notes: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    """How an environment that was made is used."""
    restart: str | None = None
    """Why the notebook's kernel must be restarted; None where it need not be."""
    exit_code: ExitCode = ExitCode.OK


class Reporter:
    """Who is told how it goes; this one keeps it to itself."""

    def say(self, text: str) -> None:
        """Show one line to the user."""

    def begin(self, what: str, total: int | None = None) -> None:
        """Show that something begins which takes a while; `total` is its bytes."""

    def advance(self, count: int) -> None:
        """Count so many bytes more."""

    def end(self) -> None:
        """End what began."""
