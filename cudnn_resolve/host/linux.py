"""The real machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cudnn_resolve.host.payload_door import read, status
from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat


class LinuxHost:
    """The machine that this program runs on; `environ` replaces the environment of this process."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ: Mapping[str, str] = MappingProxyType(dict(os.environ if environ is None else environ))
        """Snapshot at the time of construction."""
        self.python = sys.executable or ""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """Run a program; see `Host.run`."""
        from cudnn_resolve.host.process import run_process

        return run_process(
            argv,
            timeout_seconds=timeout_seconds,
            env={**self.environ, "LC_ALL": "C"} if env is None else dict(env),
            text=input,
            memory_limit_mib=memory_limit_mib,
        )

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """Beginning of a file as text; None if there is no readable file."""
        content = self.read_bytes(path, 0, limit_bytes)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a regular file or of one of the kernel's; None if there is no readable file."""
        return read(path, offset, size)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty if there is no readable directory."""
        try:
            return tuple(sorted(os.listdir(path)))
        except (OSError, ValueError):
            return ()

    def stat(self, path: str) -> FileStat | None:
        """The file or directory at a path, links followed; None if there is none."""
        try:
            return FileStat(**status(path))
        except (OSError, ValueError):
            return None

    def realpath(self, path: str) -> str:
        """A path with every symbolic link resolved."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path
