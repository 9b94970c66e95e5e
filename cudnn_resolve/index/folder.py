"""Folders as indexes: one folder of files for `--find-links`, and `file://` trees laid out like an index."""

from __future__ import annotations

import json
import os

from cudnn_resolve.index import filename
from cudnn_resolve.index.address import url_of
from cudnn_resolve.index.page import HTML, JSON, Shelf, group_newest_first, read_page

_MOST_PAGE_BYTES = 100 << 20


def shelf_of_folder(path: str, names: list[str], name: str) -> Shelf:
    """What a folder with the files `names` offers of a package."""
    groups: dict[str, list[dict[str, object]]] = {}
    skipped = 0
    for file in names:
        version = filename.version_in(file, name)
        if version is None:
            skipped += 1
            continue
        full = os.path.join(path, file)
        try:
            size = os.stat(full).st_size
        except OSError:
            continue
        groups.setdefault(version, []).append({"filename": file, "url": url_of(full), "size": size})
    order = group_newest_first(groups)
    blocks = [json.dumps([file for same in spellings for file in groups[same]]).encode() for spellings in order]
    return Shelf(JSON, url_of(path) + "/", [spellings[0] for spellings in order], blocks, skipped)


def list_files(path: str) -> list[str]:
    """Names of the wheels and source archives in a folder, sorted; OSError where it cannot be read."""
    return sorted(name for name in os.listdir(path) if name.endswith((".whl", *filename.SDIST_ENDINGS)))


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
        return shelf_of_folder(folder, list_files(folder), name)
    except (FileNotFoundError, NotADirectoryError):
        return None
