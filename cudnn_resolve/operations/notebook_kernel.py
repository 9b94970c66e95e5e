"""Notebooks: which frameworks the running kernel has imported already, and its restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.execution.model import Execution
from cudnn_resolve.host import disk, user_folders
from cudnn_resolve.host.notebook import end_process_soon
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.host.settings import modules
from cudnn_resolve.planning.preload import IMPORT_NAMES
from cudnn_resolve.probe.notebook import kernel_above

_ASKED = "restart the runtime: "
_BY_ITSELF = " (--restart does it by itself)"


def imported_here(frameworks: Iterable[str], packages: Sequence[str] = ()) -> tuple[str, ...]:
    """Those of the frameworks that this very process has imported: it keeps the old ones until it ends.

    With `packages`, only what it has imported from these folders: another environment's are none of its own.
    """
    known = modules()
    names = ((name, IMPORT_NAMES.get(name, name)) for name in frameworks)
    return tuple(name for name, module in names if module in known and _lies_in(known[module], packages))


def _lies_in(module: Any, packages: Sequence[str]) -> bool:
    places = [str(place) for place in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if place]
    return not packages or any(disk.real(place).startswith(f"{folder}/") for place in places for folder in packages)


def in_notebook() -> bool:
    """True where this process is a notebook's kernel."""
    module = modules().get("IPython")
    shell = getattr(module, "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def imported_by_kernel(host: Host, pid: int, frameworks: Iterable[str], packages: Sequence[str] = ()) -> tuple[str, ...]:
    """Those of the frameworks whose libraries the kernel has loaded; with `packages`, from these folders."""
    maps = host.read_text(f"/proc/{pid}/maps", 16 << 20) or ""
    folders = packages or ("-packages",)
    return tuple(name for name in frameworks if any(f"{folder}/{IMPORT_NAMES.get(name, name)}/" in maps for folder in folders))


def imported(host: Host, names: Iterable[str], packages: Sequence[str] = ()) -> tuple[str, ...]:
    """Those of the modules that the kernel has imported, this process or the one whose cell started it; empty where there is none.

    To be asked before files move: what is mapped from a file that moved has the new path.
    """
    names = tuple(names)
    here = imported_here(names, packages)
    if here:
        return here
    pid = kernel_above(host)
    return imported_by_kernel(host, pid, names, packages) if pid is not None else ()


def kernel_is_near(host: Host) -> bool:
    """True where this process is a notebook's kernel, or runs in a cell of one: `restart_kernel` can end it."""
    return in_notebook() or kernel_above(host) is not None


def restart_note(names: tuple[str, ...], *, notebook: bool) -> str | None:
    """Why the kernel must be restarted that has imported these; None where it has none of them."""
    if not names:
        return None
    if not notebook:
        return f"this program has imported {', '.join(names)} already, and keeps the old files loaded until it ends: start it anew"
    why = f"this kernel has imported {', '.join(names)} already, and keeps the old files loaded until it ends"
    return f"{_ASKED}{why}; run the cell again afterwards, which then changes nothing{_BY_ITSELF}"


def restart(done: Execution, host: Host, what: Sequence[str]) -> Execution:
    """The same, which says that the kernel is restarted where it is; it ends a moment later.

    For `what` (an environment and the words of a command) it is restarted once: a notebook that is run from its beginning again, and asks
    for a change each time, comes to its end.
    """
    mark = _mark(what)
    if done.restart is None:
        return done
    if disk.kind(mark) is not None:
        disk.remove(mark)
        return replace(done, restart=f"{done.restart.removesuffix(_BY_ITSELF)}; it was restarted for this once already, and is not again")
    disk.make_folder(user_folders.private_folder(mark.rpartition("/")[0]))
    disk.write_whole(mark, b"")
    if not restart_kernel(host):
        disk.remove(mark)
        return done
    return replace(done, restart=done.restart.removesuffix(_BY_ITSELF).replace(_ASKED, "the runtime is restarted: ", 1))


def forget_restart(what: Sequence[str]) -> None:
    """Let the next change restart the kernel: there was nothing to do."""
    disk.remove(_mark(what))


def _mark(what: Sequence[str]) -> str:
    return f"{user_folders.state_folder()}/restarts/{sha256(chr(0).join(what).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def restart_kernel(host: Host) -> bool:
    """True where a kernel was asked to end, so that its server starts it anew; the own one or the one whose cell this is.

    Only where `kernel_is_near`.
    """
    if in_notebook():
        shell = modules()["IPython"].get_ipython()
        shell.kernel.do_shutdown(restart=True)
        return True
    pid = kernel_above(host)
    if pid is None:
        return False
    return end_process_soon(pid)
