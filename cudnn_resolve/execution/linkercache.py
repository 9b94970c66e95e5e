"""A file that puts folders into the linker cache, for libraries of the system that the loader does not find by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.journal import tampered
from cudnn_resolve.host import disk
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tool import Tooling, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.host.port import Host

FILE = "/etc/ld.so.conf.d/cudnn-resolve.conf"
_LDCONFIG = "ldconfig"


def cache_change(task: Task, host: Host) -> str | None:
    """The text that the file is to have; None where it is not needed, or has it already."""
    if not task.cached or not disk.is_root():  # without root there is a script for shells instead
        return None
    text = "".join(f"{path}\n" for path in task.cached)
    return None if host.read_text(FILE) == text else text


def write_cache(text: str, journal: Journal, tooling: Tooling) -> None:
    """Put the folders into the linker cache; WorldError where ldconfig fails."""
    before = disk.content(FILE, 1 << 16)
    journal.add("cache", before=None if before is None else before.decode("utf-8", "replace"))
    journal.add("change")
    disk.write_whole(FILE, text.encode())
    done = run_tool((_LDCONFIG,), tooling, env=_environ())
    if not done.ok:
        raise WorldError(f"ldconfig failed: {done.why()}", code="ldconfig", context=tooling.log)


def restore_cache(past: PastApply, tooling: Tooling) -> tuple[str, ...]:
    """What could not be put back; the file is as it was, or not there."""
    record = past.last("cache")
    if record is None:
        return ()
    before = record.get("before")
    if before is not None and not isinstance(before, str):
        raise tampered(past.folder, "what it says of the linker cache is not readable")
    try:
        if before is None:
            disk.remove(FILE)
        else:
            disk.write_whole(FILE, before.encode("utf-8", "replace"))
    except WorldError as error:
        return (error.message,)
    done = run_tool((_LDCONFIG,), tooling, env=_environ())
    return () if done.ok else (f"ldconfig failed: {done.why()}",)


def _environ() -> dict[str, str]:
    return {**LinuxHost().environ, "LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"}
