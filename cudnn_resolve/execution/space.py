"""What journals hold of the disk: of each environment, and how it is freed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.journal import PastApply, read_journal
from cudnn_resolve.host import disk

_BESIDE = ".cudnn-resolve-saved"


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
    root = f"{disk.state_folder()}/environments"
    disk.refuse_foreign(disk.state_folder())
    return tuple(found for name in sorted(disk.names_in(root)) if (found := _holding(f"{root}/{name}")) is not None)


def _holding(folder: str) -> Holding | None:
    applies = list(_applies(folder))
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


def _applies(folder: str) -> Iterator[PastApply]:
    for name in sorted(disk.names_in(folder)):
        if name.isascii() and name.isdigit():
            with suppress(WorldError):  # one that cannot be read is for those who look at it
                past = read_journal(f"{folder}/{name}")
                if past is not None and past.id == int(name):
                    yield past


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
