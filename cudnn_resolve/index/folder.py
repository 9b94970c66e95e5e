"""Folders as indexes: one folder of files for `--find-links`, and `file://` trees laid out like an index."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence

from cudnn_resolve.index import filename
from cudnn_resolve.index.address import url_of
from cudnn_resolve.index.order import newest_first
from cudnn_resolve.index.page import HTML, JSON, Shelf, names_on, read_page

_MOST_PAGE_BYTES = 100 << 20


class Folders:
    """Folders of files and pages of links on this machine; each is looked into once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._folders: dict[str, dict[str, list[str]]] = {}
        self._pages: dict[str, tuple[bytes, frozenset[str]]] = {}

    def shelf(self, path: str, name: str) -> Shelf | None:
        """What a folder, or a page of links, offers of a package; OSError and ValueError where it cannot be read."""
        if path.endswith((".html", ".htm")):
            if path not in self._pages:
                body = read_local_page(path)
                self._pages[path] = (body, names_on(body))
            body, names = self._pages[path]
            return read_page(body, HTML, url_of(path), name) if name in names else None
        if path not in self._folders:
            try:
                self._folders[path] = _by_project(path)
            except (FileNotFoundError, NotADirectoryError):
                self._folders[path] = {}
                self._note(f"there is no folder {path}, which is named as a place of packages")
        return shelf_of_folder(path, self._folders[path].get(name, []), name)


def _by_project(path: str) -> dict[str, list[str]]:
    """Names of the wheels and source archives in a folder, by the packages that they may belong to."""
    found: dict[str, list[str]] = {}
    for file in sorted(os.listdir(path)):
        for project in filename.projects_in(file):
            found.setdefault(project, []).append(file)
    return found


def shelf_of_folder(path: str, names: Sequence[str], name: str) -> Shelf:
    """What a folder with the files `names` offers of a package."""
    groups: dict[str, list[dict[str, object]]] = {}
    for file in names:
        version = filename.version_in(file, name)
        if version is None:
            continue
        full = os.path.join(path, file)
        with contextlib.suppress(OSError):
            groups.setdefault(version, []).append({"filename": file, "url": url_of(full), "size": os.stat(full).st_size})
    order = newest_first(groups)
    blocks = [json.dumps([file for same in spellings for file in groups[same]]).encode() for spellings in order]
    return Shelf(JSON, url_of(path) + "/", [spellings[0] for spellings in order], blocks)


def read_local_page(path: str) -> bytes:
    """A page in a file; OSError where it cannot be read, ValueError where it is too large."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        body = stream.read(_MOST_PAGE_BYTES + 1)
    if len(body) > _MOST_PAGE_BYTES:
        raise ValueError(f"is larger than {_MOST_PAGE_BYTES >> 20} MB")
    return body


def shelf_of_tree(path: str, name: str) -> Shelf | None:
    """What a tree laid out like an index offers of a package: a page in its folder, else the files in it; None where it has no folder.

    OSError and ValueError where it cannot be read.
    """
    folder = os.path.join(path, name)
    page = os.path.join(folder, "index.html")
    try:
        return read_page(read_local_page(page), HTML, url_of(folder) + "/", name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    try:
        return shelf_of_folder(folder, sorted(os.listdir(folder)), name)
    except (FileNotFoundError, NotADirectoryError):
        return None
