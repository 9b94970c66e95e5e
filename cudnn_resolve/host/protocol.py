"""What may be asked of a machine: the `Host` protocol and the values that it answers with.

A host never raises for what a machine may look like: a missing file, an unreadable directory, a program that hangs, crashes or
floods its output are answers. It reads and runs; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

TEXT_LIMIT_BYTES = 4 << 20
"""How much of a file `read_text` reads where nobody says otherwise."""


class CommandResult(Struct, frozen=True, kw_only=True):
    """What became of one program; exactly one of `returncode`, `signal`, `timed_out`, `missing`, `flooded` speaks."""

    returncode: int | None = None
    """The exit status; None where the program did not exit by itself."""
    stdout: str = ""
    """Decoded as UTF-8, bytes that are none replaced; cut at the host's limit."""
    stderr: str = ""
    timed_out: bool = False
    """Killed, with its process group, because the time was over."""
    missing: bool = False
    """There is no such program, or it cannot be executed; `stderr` says which."""
    signal: str | None = None
    """Name of the signal that ended it, `SIGSEGV`."""
    flooded: bool = False
    """Killed because it printed more than the host keeps."""

    @property
    def ok(self) -> bool:
        """True where the program ran and exited with 0."""
        return self.returncode == 0

    def why(self) -> str:
        """The failure in words, for a problem's `why`; empty where there was none."""
        if self.ok:
            return ""
        if self.timed_out:
            return "did not answer in time and was stopped"
        if self.missing:
            return self.stderr or "is not there or cannot be executed"
        if self.flooded:
            return "printed without end and was stopped"
        if self.signal:
            return f"crashed ({self.signal})"
        last = self.stderr.strip().splitlines()[-1:] or [""]
        return f"exited with status {self.returncode}" + (f": {last[0][:200]}" if last[0] else "")


class FileStat(Struct, frozen=True, kw_only=True):
    """One existing file or directory, symbolic links followed."""

    is_file: bool
    is_dir: bool
    executable: bool
    """May this user execute it."""
    size: int
    """Bytes."""
    mtime_ns: int
    """Last change, nanoseconds since 1970."""


class Host(Protocol):
    """A machine: the real one, one that was recorded, or one made up in a test. Safe to use from several threads."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables of this process."""
        ...

    @property
    def python(self) -> str:
        """Path of the interpreter that runs this program, for children that need any Python; "" where there is none."""
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
        """What became of the program `argv[0]` (a path, or a name on PATH); no shell, standard input closed unless `input`.

        `env` replaces the whole environment; None: the host's own with `LC_ALL=C`. `memory_limit_mib` limits
        its writable memory; None: to what any probe can do with.
        """
        ...

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """The first `limit_bytes` of a file as UTF-8 with bad bytes replaced; None where there is no readable file."""
        ...

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """At most `size` bytes from `offset`; None where there is no readable file."""
        ...

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where there is no readable directory."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """What is at `path`, links followed; None where nothing is (or a link leads nowhere)."""
        ...

    def realpath(self, path: str) -> str:
        """`path` with every symbolic link resolved, as far as it exists."""
        ...


def is_file(host: Host, path: str) -> bool:
    """True where `path` is a regular file, links followed."""
    found = host.stat(path)
    return found is not None and found.is_file


def is_dir(host: Host, path: str) -> bool:
    """True where `path` is a directory, links followed."""
    found = host.stat(path)
    return found is not None and found.is_dir


def which(host: Host, program: str) -> str | None:
    """Path of an executable `program` on the host's PATH, or of `program` itself where it is a path; None if there is none."""
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
