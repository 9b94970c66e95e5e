"""The real machine."""

from __future__ import annotations

import os
import stat as modes
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat

_EXECUTABLE = modes.S_IXUSR | modes.S_IXGRP | modes.S_IXOTH


class LinuxHost:
    """The machine that this program runs on; `environ` replaces the environment of this process."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = MappingProxyType(dict(os.environ if environ is None else environ))

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables, as they were when this host was made."""
        return self._environ

    @property
    def python(self) -> str:
        """Path of the interpreter that runs this program."""
        return sys.executable or ""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """What became of a program; see `Host.run`."""
        from cudnn_resolve.host.process import run_process

        return run_process(
            argv,
            timeout_seconds=timeout_seconds,
            env={**self._environ, "LC_ALL": "C"} if env is None else dict(env),
            text=input,
            memory_limit_mib=memory_limit_mib,
        )

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """The beginning of a file as text; None where there is no readable file."""
        content = self.read_bytes(path, 0, limit_bytes)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a regular file (or of one of the kernel's); None where there is no readable file."""
        try:
            # Not blocking: a pipe or a device in the place of a file must not stop us.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            return _read(descriptor, offset, size) if modes.S_ISREG(os.fstat(descriptor).st_mode) else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where there is no readable directory."""
        try:
            return tuple(sorted(os.listdir(path)))
        except (OSError, ValueError):
            return ()

    def stat(self, path: str) -> FileStat | None:
        """What is at a path, links followed; None where nothing is."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        return FileStat(
            is_file=modes.S_ISREG(found.st_mode),
            is_dir=modes.S_ISDIR(found.st_mode),
            executable=bool(found.st_mode & _EXECUTABLE) and os.access(path, os.X_OK),
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
        )

    def realpath(self, path: str) -> str:
        """A path with every link resolved."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path


def _read(descriptor: int, offset: int, size: int) -> bytes:
    """At most `size` bytes; the kernel's own files (/proc, /sys) give less at a time than asked, so until the end."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.pread(descriptor, min(size, 1 << 20), offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return b"".join(pieces)
