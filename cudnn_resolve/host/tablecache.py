"""Compiled tables: reading TOML takes a hundred times as long as reading the MessagePack of its rows.

A wheel brings copies of the shipped tables; those of a checkout and of overlays are kept in the user's cache. A copy counts only for
the very bytes of its source and for the program that wrote it, else the source is read. Without a usable cache nothing fails.
"""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Iterable
from zlib import crc32

from cudnn_resolve._version import __version__
from cudnn_resolve.matrix import column

SHIPPED = "_compiled"
"""The folder of the copies in an installed package."""
FOLDER = "tables-v2"
_LARGEST_BYTES = 128 * 1024 * 1024
_MAKERS = ("anchor", "column", "message", "parse", "row", "symptom", "table", "value", "wheel_content")
"""Modules of `matrix` of which what is compiled comes."""


def cache_folder() -> str | None:
    """Return the program's cache folder, that of the user or else one below `TMPDIR`; None where neither can be written."""
    import platformdirs  # 30 ms, which an installed program need not spend

    from cudnn_resolve.host import disk

    passing = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"cudnn-resolve-{os.geteuid()}")  # noqa: S108 - see `_private`
    for folder in (platformdirs.user_cache_dir("cudnn-resolve"), passing):
        if os.path.isabs(folder) and disk.writable(folder) and _private(folder):
            return folder
    return None


def user_copies(directory: str) -> Copies | None:
    """Return the copies of the tables of one directory in the user's cache; None where nothing can be kept."""
    folder = cache_folder()
    if folder is None:
        return None
    return Copies(os.path.join(folder, FOLDER, checksum((directory.encode("utf-8", "surrogatepass"),))), _stamp())


def checksum(parts: Iterable[bytes]) -> str:
    """Eight letters that tell contents apart which nobody forges."""
    total = 0
    for one in parts:
        total = crc32(one, total)
    return f"{total:08x}"


def _stamp() -> str:
    """Tell programs apart: a checkout changes without its version changing."""
    from cudnn_resolve.host import disk

    folder = os.path.dirname(column.__file__)
    seen = (disk.state_of(os.path.join(folder, f"{name}.py")) for name in _MAKERS)
    return " ".join((__version__, *(".".join(map(str, state[2:4])) for state in seen)))


def _private(folder: str) -> bool:
    """Return False where the directory, or a link in its place, is there and belongs to another user."""
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return True


class Copies:
    """Compiled tables in one directory; `stamp` stands for the program that wrote them."""

    def __init__(self, directory: str, stamp: str = __version__) -> None:
        self.directory, self._stamp = directory, stamp

    def load(self, name: str, source: bytes) -> bytes | None:
        """Return the copy of a table whose file holds `source`; None where there is none of these bytes."""
        try:
            with open(os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
                content = stream.readall() if _ours(os.fstat(stream.fileno())) else b""
        except (OSError, ValueError):
            return None
        end = content.find(b"\n") + 1
        body = content[end:]
        return body if content[:end] == self._header(source, body) else None

    def keep(self, name: str, source: bytes, body: bytes) -> None:
        """Write the copy of a table, whole or not at all; do nothing where that cannot be."""
        path = self._path(name)
        passing = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            if os.stat(self.directory).st_uid != os.geteuid():
                return
            descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            with open(descriptor, "wb") as stream:
                stream.write(self._header(source, body) + body)
            os.replace(passing, path)
        except OSError:
            os.unlink(passing)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{name.replace('/', '-').encode('ascii', 'replace').decode()}.msgpack")

    def _header(self, source: bytes, body: bytes) -> bytes:
        return f"{self._stamp} {len(source)} {crc32(source)} {crc32(body)}\n".encode()


def _ours(seen: os.stat_result) -> bool:
    """Return whether it is a regular file that nobody but this user (or root) can have written."""
    return modes.S_ISREG(seen.st_mode) and seen.st_uid in (os.geteuid(), 0) and not seen.st_mode & 0o022 and seen.st_size <= _LARGEST_BYTES
