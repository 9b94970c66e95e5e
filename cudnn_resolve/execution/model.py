"""Results of `apply`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cudnn_resolve.errors import ExitCode

Status = Literal["nothing", "done", "failed", "reverted", "broken", "undone", "interrupted", "declined", "dry-run"]

_EXIT_CODES = {
    "declined": ExitCode.NO,
    "failed": ExitCode.WORLD,
    "reverted": ExitCode.REVERTED,
    "broken": ExitCode.BROKEN,
}


class Done(Struct, frozen=True, kw_only=True):
    """A completed step."""

    what: str
    seconds: float = 0.0


class Trouble(Struct, frozen=True, kw_only=True):
    """The error that ended an `apply`."""

    message: str
    code: str
    context: str | None = None
    hint: str | None = None


class Execution(Struct, frozen=True, kw_only=True):
    """Result of an `apply`, an undo or a repair."""

    status: Status
    id: int | None = None
    """Number of its journal; None if it has none."""
    steps: tuple[Done, ...] = ()
    installed: tuple[str, ...] = ()
    """`name==version`."""
    removed: tuple[str, ...] = ()
    trouble: Trouble | None = None
    left: tuple[str, ...] = ()
    """What could not be put back."""
    differences: tuple[str, ...] = ()
    """Differences from the plan found afterwards."""
    log: str | None = None
    kept_bytes: int = 0
    """Disk space taken by saved files, without those that the environment shares by hard links."""
    notes: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    """How to use a newly made environment."""
    restart: str | None = None
    """Why the notebook's kernel must be restarted; None if it need not be."""

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the command, unless a signal interrupted it."""
        return _EXIT_CODES.get(self.status, ExitCode.OK)
