"""The `Host` protocol, through which a machine is asked, and the values of its answers.

Nothing that a machine may look like raises an exception: a missing file, an unreadable directory, a program that hangs, crashes or
floods its output are answers. A host reads and runs; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

TEXT_LIMIT_BYTES = 4 << 20
"""Default bound on what `read_text` reads of a file."""


class CommandResult(Struct, frozen=True, kw_only=True):
    """Outcome of one program; exactly one of `returncode`, `signal`, `timed_out`, `missing`, `flooded` is set."""

    returncode: int | None = None
    """Exit status; None if the program did not exit by itself."""
    stdout: str = ""
    """Decoded as UTF-8, invalid bytes replaced; cut at the host's limit."""
    stderr: str = ""
    timed_out: bool = False
    """Killed, with its process group, at the time limit."""
    missing: bool = False
    """Not found, or not executable; `stderr` says which."""
    signal: str | None = None
    """Name of the signal that ended it, `SIGSEGV`."""
    flooded: bool = False
    """Killed because it printed more than the host keeps."""

    @property
    def ok(self) -> bool:
        """Whether the program ran and exited with 0."""
        return self.returncode == 0

    def why(self) -> str:
        """Failure in words, for a problem's `why`; empty if there was none."""
        if self.ok:
            return ""
        if self.timed_out:
            return "did not answer in time and was stopped"
        if self.missing:
            return self.stderr or "does not exist or cannot be executed"
        if self.flooded:
            return "printed too much and was stopped"
        if self.signal:
            return f"crashed ({self.signal})"
        last = self.stderr.strip().splitlines()[-1:] or [""]
        return f"exited with status {self.returncode}" + (f": {last[0][:200]}" if last[0] else "")


class FileStat(Struct, frozen=True, kw_only=True):
    """An existing file or directory, symbolic links followed."""

    is_file: bool
    is_dir: bool
    executable: bool
    """Whether this user may execute it."""
    size: int
    """In bytes."""
    mtime_ns: int
    """Last modification, nanoseconds since 1970."""


class Host(Protocol):
    """A machine: the real one, a recorded one, or a test double. Safe to use from several threads."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables of this process."""
        ...

    @property
    def python(self) -> str:
        """Path of the interpreter that runs this program, for children that need any Python; "" if unknown."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """Run the program `argv[0]`, a path or a name on PATH; no shell, standard input closed unless `input`.

        `env` replaces the whole environment; None: the host's own with `LC_ALL=C`. `memory_limit_mib` limits
        its writable memory; None: to what any probe can do with.
        """
        ...

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """The first `limit_bytes` of a file as UTF-8, invalid bytes replaced; None if there is no readable file."""
        ...

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """At most `size` bytes from `offset`; None if there is no readable file."""
        ...

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty if there is no readable directory."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """The file or directory at `path`, links followed; None if there is none, or a link is broken."""
        ...

    def realpath(self, path: str) -> str:
        """`path` with every symbolic link resolved, as far as it exists."""
        ...


def is_file(host: Host, path: str) -> bool:
    """Whether `path` is a regular file, links followed."""
    found = host.stat(path)
    return found is not None and found.is_file


def is_dir(host: Host, path: str) -> bool:
    """Whether `path` is a directory, links followed."""
    found = host.stat(path)
    return found is not None and found.is_dir


def which(host: Host, program: str) -> str | None:
    """Path of an executable on the host's PATH, or of `program` itself if it is a path; None if there is none."""
    if "/" in program:
        candidates = [program]
    else:
        directories = host.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").split(":")
        candidates = [f"{directory.rstrip('/')}/{program}" for directory in directories if directory.startswith("/")]
    for candidate in candidates:
        found = host.stat(candidate)
        if found is not None and found.is_file and found.executable:
            return candidate
    return None
