"""`clean`: show and free the disk space held by undo and caches."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.journal_store import free, holdings
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.environment_mutex import hold
from cudnn_resolve.operations.options import CleanRequest
from cudnn_resolve.operations.results import Result
from cudnn_resolve.report.encode_json import encoded


class Part(Struct, frozen=True, kw_only=True):
    """Something that uses disk space."""

    what: str
    path: str
    bytes: int
    freed: bool
    why: str
    """Why it is freed or kept."""


class CleanDocument(Struct, frozen=True, kw_only=True):
    """`clean --format json`: what uses disk space, and the number of bytes freed."""

    schema: Literal["cudnn-resolve/clean/1"] = "cudnn-resolve/clean/1"
    parts: tuple[Part, ...]
    freed: int


class CleanResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `clean`: what uses disk space, and what was freed."""

    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `clean --format json`."""
        return encoded(CleanDocument(parts=self.parts, freed=sum(part.bytes for part in self.parts if part.freed)))


def clean(request: CleanRequest) -> CleanResult:
    """Free what cannot be used any more; with `all` also the last undo of every environment, and the caches."""
    parts = []
    for holding in holdings():
        is_freed = (holding.is_gone or (request.all and not holding.is_open)) and not request.dry_run
        if holding.is_gone:
            why = "the environment no longer exists"
        elif holding.is_open:
            why = "an apply was interrupted: needed to put things back (`apply --undo`)"
        else:
            why = "for `apply --undo`"
        if is_freed:
            free(holding)
        parts.append(Part(what=holding.prefix, path=holding.folder, bytes=holding.bytes, freed=is_freed, why=why))
    caches = (
        ("cache", user_folders.cache_folder(), "index pages and tables: made again when needed"),
        ("fleet", f"{user_folders.state_folder()}/fleet", "files for `fleet apply`: downloaded again when needed"),
    )
    for what, folder, why in caches:
        size = disk.own_bytes(folder) if folder is not None else 0
        if folder is None or not size:
            continue
        is_due = request.all and not request.dry_run
        obstacle = _remove(folder) if is_due else None
        parts.append(Part(what=what, path=folder, bytes=size, freed=is_due and obstacle is None, why=obstacle or why))
    return CleanResult(parts=tuple(parts))


def _remove(folder: str) -> str | None:
    """Remove a cache folder; returns why it is kept, if so."""
    try:
        handle = hold(folder)
        if handle is None:
            return "in use by another command"
        try:
            disk.remove_tree(folder)
        finally:
            handle.release()
    except WorldError as error:
        return error.message
    return None
