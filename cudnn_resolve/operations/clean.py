"""`clean`: what undo and caches hold of the disk, shown and freed."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.journals import free, holdings
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.environment_lock import hold
from cudnn_resolve.operations.options import CleanRequest
from cudnn_resolve.operations.results import Result
from cudnn_resolve.report.json import encoded


class Part(Struct, frozen=True, kw_only=True):
    """One thing that takes room."""

    what: str
    path: str
    bytes: int
    freed: bool
    why: str
    """Why it is freed or kept."""


class CleanDocument(Struct, frozen=True, kw_only=True):
    """`clean --format json`: what takes room, and the bytes that were freed of it."""

    schema: Literal["cudnn-resolve/clean/1"] = "cudnn-resolve/clean/1"
    parts: tuple[Part, ...]
    freed: int


class CleanResult(Struct, Result, frozen=True, kw_only=True):
    """What `clean` returns: what takes room, and what was freed of it."""

    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `clean --format json` prints."""
        return encoded(CleanDocument(parts=self.parts, freed=sum(one.bytes for one in self.parts if one.freed)))


def clean(request: CleanRequest) -> CleanResult:
    """Free what nobody can use any more; with `all` also the last undo of every environment, and the caches."""
    parts = []
    for one in holdings():
        due = one.is_gone or (request.all and not one.is_open)
        why = (
            "the environment is gone"
            if one.is_gone
            else "an apply was stopped in the middle: this is the way back (`apply --undo`)"
            if one.is_open
            else "for `apply --undo`"
        )
        if due and not request.dry_run:
            free(one)
        parts.append(Part(what=one.prefix, path=one.folder, bytes=one.bytes, freed=due and not request.dry_run, why=why))
    caches = (
        ("cache", user_folders.cache_folder(), "pages of indexes and tables: made again when needed"),
        ("fleet", f"{user_folders.state_folder()}/fleet", "files for `fleet apply`: fetched again when needed"),
    )
    for what, folder, why in caches:
        size = disk.own_bytes(folder) if folder is not None else 0
        if folder is None or not size:
            continue
        due = request.all and not request.dry_run
        refused = _freed(folder) if due else None
        parts.append(Part(what=what, path=folder, bytes=size, freed=due and refused is None, why=refused or why))
    return CleanResult(parts=tuple(parts))


def _freed(folder: str) -> str | None:
    """Why a folder is kept; None where it is gone."""
    try:
        held = hold(folder)
        if held is None:
            return "in use by another command"
        try:
            disk.remove_tree(folder)
        finally:
            held.release()
    except WorldError as error:
        return error.message
    return None
