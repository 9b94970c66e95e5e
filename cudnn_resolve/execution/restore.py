"""The way back for files: whatever came is removed, whatever left is laid back; the same however often it is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.exchange import half_made, refuse_detour, temporary_folders
from cudnn_resolve.execution.installed import with_compiled
from cudnn_resolve.execution.journal import inside, tampered
from cudnn_resolve.host import disk

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Story
    from cudnn_resolve.execution.shelf import Shelf


class _Written(Struct, frozen=True, kw_only=True):
    """The `files` record of a journal, every path of it looked at."""

    store: str
    save: tuple[str, ...]
    add: tuple[str, ...]
    infos: tuple[str, ...]
    made: tuple[str, ...]
    modes: dict[str, int]
    names: frozenset[str]
    """What looked half made already before: somebody else's."""
    moved: bool
    """True where the files were moved into the environment, and no tool wrote into it."""


def put_back(story: Story, shelf: Shelf, environment: Environment) -> tuple[str, ...]:
    """What could not be put back, in words; empty where everything is as it was. Can be called again after a kill."""
    written = _read(story, shelf, environment)
    if written is None:
        return ()
    left: list[str] = []
    finished = any(one["kind"] == "commit" for one in story.records)
    _remove_what_came(written, left)
    if not finished:
        _remove_leftovers(written, environment, left)
    for folder in sorted({*written.made, *written.infos, *_caches(written)}, key=len, reverse=True):
        disk.remove_empty(folder)
    for number, path in enumerate(written.save):
        source = f"{written.store}/{number}"
        if disk.kind(source) is not None:
            _try(left, disk.move, source, path)
    for folder, mode in written.modes.items():
        if disk.kind(folder) == "folder" and disk.mode_of(folder) != mode:
            disk.set_mode(folder, mode)
    return tuple(left)


def check_written(story: Story, shelf: Shelf, environment: Environment) -> None:
    """Nothing; WorldError where `put_back` would not believe the journal: better said before anything is begun."""
    _read(story, shelf, environment)


def _read(story: Story, shelf: Shelf, environment: Environment) -> _Written | None:
    files = story.last("files")
    if files is None:
        return None
    store = files.get("store")
    if not shelf.is_store(store, story.id):
        raise tampered(story.folder, "what it saved lies elsewhere")
    extra = [path for one in story.all("installed") for path in inside(one.get("extra", []), environment, story.folder)]
    modes, names = files.get("modes"), files.get("names")
    if not isinstance(modes, dict) or not isinstance(names, (list, dict)):
        raise tampered(story.folder, "what it says of folders is not readable")
    written = _Written(
        store=str(store),
        save=inside(files.get("save"), environment, story.folder),
        add=tuple(dict.fromkeys((*inside(files.get("add"), environment, story.folder), *extra))),
        infos=inside(files.get("infos"), environment, story.folder),
        made=inside(files.get("made"), environment, story.folder),
        modes={folder: mode & 0o3777 for folder, mode in modes.items() if isinstance(mode, int) and environment.holds(folder)},
        names=_paths(names),
        moved=files.get("moved") is True,
    )
    checked: set[str] = set()
    for path in (*written.save, *written.add, *written.infos, *written.made, *written.modes):
        folder = os.path.dirname(path)
        if folder not in checked:
            checked.add(folder)
            refuse_detour(path, environment)
    return written


def _paths(names: list[object] | dict[str, object]) -> frozenset[str]:
    """Paths; journals of former versions have folders with names."""
    if isinstance(names, list):
        return frozenset(one for one in names if isinstance(one, str))
    return frozenset(f"{folder}/{one}" for folder, found in names.items() if isinstance(found, list) for one in found)


def _remove_what_came(written: _Written, left: list[str]) -> None:
    kept = set(written.save)
    for path in with_compiled(written.add):
        if path not in kept and disk.kind(path) in ("file", "link"):
            _try(left, disk.remove, path)
    for info in (one for one in written.infos if disk.kind(one) == "folder"):  # a link leads to files of others
        for path in tuple(disk.files_below(info)):
            if path not in kept:
                _try(left, disk.remove, path)
        for folder in disk.folders_below(info):
            disk.remove_empty(folder)


def _caches(written: _Written) -> Iterator[str]:
    """Folders of compiled files that may have become empty."""
    for folder in dict.fromkeys((*written.made, *(os.path.dirname(path) for path in written.add))):
        yield f"{folder}/__pycache__"


def _remove_leftovers(written: _Written, environment: Environment, left: list[str]) -> None:
    """What an installer that was killed had half made: known by the file that it was to become, never by its name alone."""
    for path in tuple(half_made(written.add)):
        if path not in written.names:
            _try(left, disk.remove, path)
    if written.moved:
        return  # no tool wrote into the environment
    coming = {os.path.basename(path) for path in written.add}
    for folder in temporary_folders(environment):
        found = disk.names_in(folder)
        if folder not in written.names and coming.issuperset(found) and all(disk.kind(f"{folder}/{name}") == "file" for name in found):
            for name in found:
                _try(left, disk.remove, f"{folder}/{name}")
            disk.remove_empty(folder)


def _try(left: list[str], act: Callable[..., None], *paths: str) -> None:
    try:
        act(*paths)
    except WorldError as error:
        left.append(error.message)
