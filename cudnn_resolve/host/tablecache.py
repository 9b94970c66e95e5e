"""Compiled tables in the user's cache directory: reading TOML takes a hundred times as long as reading its JSON.

A copy holds the path, size and times of the file that it was made from and the version of the program; where any of them differs,
or the copy is damaged, it does not count and is written anew. Without a usable cache directory nothing is kept, and nothing fails.
"""

from __future__ import annotations

import json
import os
import stat as modes
import time
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from cudnn_resolve._version import __version__
from cudnn_resolve.matrix import column
from cudnn_resolve.matrix.parse import Compiled

FOLDER = "tables-v1"
_LARGEST_BYTES = 128 * 1024 * 1024
_MAKERS = ("anchor", "column", "message", "pack", "parse", "table")
"""Modules of which what is compiled comes."""


def default_cache() -> TableCache | None:
    """The compiled tables of this user; None where nothing can be kept."""
    folder = cache_folder()
    return TableCache(os.path.join(folder, FOLDER)) if folder is not None else None


def cache_folder() -> str | None:
    """The program's folder below `XDG_CACHE_HOME`, else below `~/.cache`, else a directory of this user's below `TMPDIR`.

    The first of them that can be written; None where none can.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # the XDG base directory specification: a relative path counts as unset
        home = os.path.expanduser("~/.cache")
    passing = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"cudnn-resolve-{os.geteuid()}")  # noqa: S108 - see `_private`
    for folder in (os.path.join(home, "cudnn-resolve"), passing):
        if os.path.isabs(folder) and _writable(folder) and _private(folder):
            return folder
    return None


def _writable(folder: str) -> bool:
    """True where the directory, or the nearest one above it that exists, can be written."""
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _private(folder: str) -> bool:
    """False where the directory, or a link in its place, is there and belongs to another user."""
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return True


class TableCache:
    """Compiled copies of table files in one directory.

    A copy is three lines: a header with the identity of the source and check sums, the head of the table, and its rows.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._stamp: str | None = None

    def table(self, source: str) -> Compiled | None:
        """The compiled form of a file; None where there is no copy of its present state."""
        parts = self._parts(source, whole=True)
        return None if parts is None else {"head": parts[0], **parts[1]}

    def head(self, source: str) -> Mapping[str, Any] | None:
        """The head alone; None as for `table`."""
        parts = self._parts(source, whole=False)
        return None if parts is None else parts[0]

    def keep(self, source: str, seen: os.stat_result, compiled: Compiled) -> None:
        """Writes the copy of a file whose state was `seen` when it was read; silently does nothing where that cannot be."""
        head = _line(compiled["head"])
        rows = _line({key: value for key, value in compiled.items() if key != "head"})
        header = _line({"source": self._identity(source, seen), "head": crc32(head), "rows": crc32(rows)})
        try:
            if self._identity(source, os.stat(source)) == self._identity(source, seen):
                self._write(self._copy(source), header + head + rows)
        except OSError:
            return

    def _parts(self, source: str, *, whole: bool) -> tuple[dict[str, Any], dict[str, Any]] | None:
        try:
            with open(os.open(self._copy(source), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                if not _ours(os.fstat(stream.fileno())):
                    return None
                header = json.loads(stream.readline(4096 + 4 * len(source)))
                head = stream.readline(_LARGEST_BYTES)
                rows = stream.read(_LARGEST_BYTES) if whole else b""
            if header["source"] != self._identity(source, os.stat(source)) or header["head"] != crc32(head):
                return None
            if whole and header["rows"] != crc32(rows):
                return None
            return json.loads(head), json.loads(rows) if whole else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _copy(self, source: str) -> str:
        folder, name = os.path.split(source)
        return os.path.join(self.directory, f"{crc32(os.fsencode(folder)):08x}-{name.encode('ascii', 'replace').decode()}.json")

    def _identity(self, source: str, seen: os.stat_result) -> list[Any]:
        if self._stamp is None:
            self._stamp = f"{__version__} {' '.join(map(_module_stamp, _MAKERS))}"
        path = os.fsencode(source).decode("ascii", "backslashreplace")
        return [self._stamp, path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]

    def _write(self, path: str, content: bytes) -> None:
        """Writes a whole file or none; another process that writes the same one at the same time does no harm."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        if os.stat(self.directory).st_uid != os.geteuid():
            return
        passing = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
        descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(content)
            os.replace(passing, path)
        except BaseException:
            os.unlink(passing)
            raise


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _ours(seen: os.stat_result) -> bool:
    """True for a regular file that nobody but this user (or root) can have written."""
    return modes.S_ISREG(seen.st_mode) and seen.st_uid in (os.geteuid(), 0) and not seen.st_mode & 0o022 and seen.st_size <= _LARGEST_BYTES


def _module_stamp(name: str) -> str:
    """Size and time of a module's file: a checkout changes without its version changing."""
    try:
        seen = os.stat(os.path.join(os.path.dirname(column.__file__), f"{name}.py"))
    except OSError:
        return "-"
    return f"{seen.st_size}.{seen.st_mtime_ns}"
