"""Folders as indexes: one folder of files for `--find-links`, and `file://` trees laid out like an index."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from msgspec import json

from cudnn_resolve.index.address import url_of
from cudnn_resolve.index.filename import projects_in
from cudnn_resolve.index.page import LinkPage, Page, PageFile, page_of_files

_MOST_PAGE_BYTES = 100 << 20


class Folders:
    """Local folders of files and pages of links; each is read once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._folders: dict[str, dict[str, list[str]]] = {}
        self._pages: dict[str, LinkPage] = {}

    def page(self, path: str, name: str) -> Page:
        """Files of a package in a folder or on a page of links; raise OSError or ValueError if it cannot be read."""
        if path.endswith((".html", ".htm")):
            if path not in self._pages:
                self._pages[path] = _link_page(path, url_of(path))
            return self._pages[path].of(name)
        if path not in self._folders:
            try:
                self._folders[path] = _by_project(path)
            except (FileNotFoundError, NotADirectoryError):
                self._folders[path] = {}
                self._note(f"there is no folder {path}, which is configured as find-links")
        return _page_of_folder(path, self._folders[path].get(name, []), name)


def page_of_tree(path: str, name: str) -> Page | None:
    """Files of a package in a tree laid out like an index: on a page in its folder, else in the folder; None if it has no folder.

    Raise OSError or ValueError if it cannot be read.
    """
    folder = os.path.join(path, name)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return _link_page(os.path.join(folder, "index.html"), url_of(folder) + "/").of(name)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return _page_of_folder(folder, sorted(os.listdir(folder)), name)
    return None


def _by_project(path: str) -> dict[str, list[str]]:
    """Names of wheels and source archives in a folder, by package that they may belong to."""
    names: dict[str, list[str]] = {}
    for file in sorted(os.listdir(path)):
        for project in projects_in(file):
            names.setdefault(project, []).append(file)
    return names


def _page_of_folder(path: str, names: Sequence[str], name: str) -> Page:
    def files() -> Iterator[tuple[str, bytes]]:
        for file in names:
            full = os.path.join(path, file)
            with contextlib.suppress(OSError):
                yield file, json.encode(PageFile(filename=file, url=url_of(full), size=os.stat(full).st_size))

    return page_of_files(files(), url_of(path) + "/", name)


def _link_page(path: str, base: str) -> LinkPage:
    """Read a page from a file; raise OSError if it cannot be read, ValueError if it is too large or not a page."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        body = stream.read(_MOST_PAGE_BYTES + 1)
    if len(body) > _MOST_PAGE_BYTES:
        raise ValueError(f"is larger than {_MOST_PAGE_BYTES >> 20} MB")
    return LinkPage(body, base)
