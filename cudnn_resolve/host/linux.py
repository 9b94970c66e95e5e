"""The real machine, or the files of one below some directory."""

from __future__ import annotations

import os
import stat as modes
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cudnn_resolve.host.port import TEXT_LIMIT_BYTES, CommandResult, FileStat

_MOST_LINKS = 40
"""As many symbolic links as Linux itself follows before it gives up."""


class LinuxHost:
    """The machine that this program runs on.

    With a `root` other than `/` files are those below `root` (absolute links lead inside it) and nothing is executed: `run`
    answers from `commands`, and any other program is missing. `environ` replaces the environment of this process.
    """

    def __init__(
        self,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
        commands: Mapping[tuple[str, ...], CommandResult] | None = None,
        python: str | None = None,
    ) -> None:
        self._root = os.path.abspath(root)
        self._environ = MappingProxyType(dict(os.environ if environ is None else environ))
        self._commands = dict(commands or {})
        self._python = (sys.executable or "") if python is None else python

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables, as they were when this host was made."""
        return self._environ

    @property
    def python(self) -> str:
        """Path of the interpreter that runs this program."""
        return self._python

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
        if self._root != "/":
            nothing = CommandResult(missing=True, stderr=f"{argv[0]} is not there")
            return self._commands.get(tuple(argv), nothing)
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
            descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
            return tuple(sorted(os.listdir(self._inside(path))))
        except (OSError, ValueError):
            return ()

    def stat(self, path: str) -> FileStat | None:
        """What is at a path, links followed; None where nothing is."""
        inside = self._inside(path)
        try:
            found = os.stat(inside)
        except (OSError, ValueError):
            return None
        return FileStat(
            is_file=modes.S_ISREG(found.st_mode),
            is_dir=modes.S_ISDIR(found.st_mode),
            executable=os.access(inside, os.X_OK),
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
        )

    def realpath(self, path: str) -> str:
        """A path with every link resolved, as this host's programs would name it."""
        if self._root == "/":
            try:
                return os.path.realpath(path)
            except (OSError, ValueError):
                return path
        inside = self._inside(path)
        return "/" + os.path.relpath(inside, self._root) if inside != self._root else "/"

    def _inside(self, path: str) -> str:
        """Where a path of this host really lies; links are followed by hand below another root, so that none leads out of it."""
        if self._root == "/":
            return path
        done: list[str] = []
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            here = "/".join([self._root, *done, part])
            if links < _MOST_LINKS and os.path.islink(here):
                links += 1
                target = os.readlink(here)
                if target.startswith("/"):
                    done = []
                todo.extend(piece for piece in reversed(target.split("/")) if piece not in ("", "."))
                continue
            done.append(part)
        return "/".join([self._root, *done])


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
