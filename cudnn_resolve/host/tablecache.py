"""Compiled tables: the MessagePack of rows is read a hundred times as fast as TOML.

A wheel brings copies of the shipped tables; those of a checkout and of overlays are kept in the user's cache. A copy is used only for
the very bytes of its source and for the program that wrote it; otherwise the source is read. Without a usable cache nothing fails.
"""

from __future__ import annotations

import contextlib
import os
import stat as modes
import time
from collections.abc import Iterable
from zlib import crc32

from cudnn_resolve._version import __version__
from cudnn_resolve.matrix import column

SHIPPED = "_compiled"
"""Folder of the copies in an installed package."""
FOLDER = "tables-v2"
_LARGEST_BYTES = 128 * 1024 * 1024
_COMPILER_MODULES = ("anchor", "column", "message", "parse", "row", "symptom", "table", "value", "wheel_content")
"""Modules of `matrix` that determine what is compiled."""


def user_copies(directory: str) -> Copies | None:
    """Copies, in the user's cache, of the tables of one directory; None if nothing can be cached."""
    from cudnn_resolve.host.user_folders import cache_folder

    folder = cache_folder()
    if folder is None:
        return None
    return Copies(os.path.join(folder, FOLDER, checksum((directory.encode("utf-8", "surrogatepass"),))), _stamp())


def checksum(parts: Iterable[bytes]) -> str:
    """CRC-32 as eight hexadecimal digits, for contents that nobody has a reason to forge."""
    return f"{crc32(b''.join(parts)):08x}"


def _stamp() -> str:
    """Identify the program: a checkout changes without its version changing."""
    from cudnn_resolve.host.disk import state_of

    folder = os.path.dirname(column.__file__)
    states = (state_of(os.path.join(folder, f"{name}.py")) for name in _COMPILER_MODULES)
    return " ".join((__version__, *(".".join(map(str, state[2:4])) for state in states)))


class Copies:
    """Compiled tables in one directory; `stamp` identifies the program that wrote them."""

    def __init__(self, directory: str, stamp: str = __version__) -> None:
        self.directory, self._stamp = directory, stamp

    def load(self, name: str, source: bytes) -> bytes | None:
        """Return the copy of a table whose file holds `source`; None if there is none of these bytes."""
        try:
            with open(os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
                content = stream.readall() if _is_trusted(os.fstat(stream.fileno())) else b""
        except (OSError, ValueError):
            return None
        end = content.find(b"\n") + 1
        body = content[end:]
        return body if content[:end] == self._header(source, body) else None

    def keep(self, name: str, source: bytes, body: bytes) -> None:
        """Write the copy of a table atomically; do nothing if that is not possible."""
        path = self._path(name)
        temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            if os.stat(self.directory).st_uid != os.geteuid():
                return
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            with open(descriptor, "wb") as stream:
                stream.write(self._header(source, body) + body)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # `clean` may have removed the folder meanwhile
                os.unlink(temporary)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, f"{name.replace('/', '-').encode('ascii', 'replace').decode()}.msgpack")

    def _header(self, source: bytes, body: bytes) -> bytes:
        return f"{self._stamp} {len(source)} {crc32(source)} {crc32(body)}\n".encode()


def _is_trusted(found: os.stat_result) -> bool:
    """Whether it is a regular file that only this user, or root, can have written."""
    return (
        modes.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022 and found.st_size <= _LARGEST_BYTES
    )
