"""Notebook kernels: the frameworks that a running kernel has imported, and its restart."""

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

_REQUEST = "restart the runtime: "
_OPTION = " (--restart does it automatically)"


def imported_here(frameworks: Iterable[str], packages: Sequence[str]) -> tuple[str, ...]:
    """Frameworks that this process has imported from these folders, and whose old files it keeps until it ends."""
    loaded = modules()
    names = ((name, IMPORT_NAMES.get(name, name)) for name in frameworks)
    return tuple(name for name, module in names if module in loaded and _lies_in(loaded[module], packages))


def _lies_in(module: Any, packages: Sequence[str]) -> bool:
    places = [str(place) for place in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if place]
    return any(disk.real(place).startswith(f"{folder}/") for place in places for folder in packages)


def in_notebook() -> bool:
    """True if this process is a notebook kernel."""
    module = modules().get("IPython")
    shell = getattr(module, "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def imported(host: Host, names: Iterable[str], packages: Sequence[str]) -> tuple[str, ...]:
    """Modules that the kernel has imported from these folders: this process, or the one whose cell started it; empty without a kernel.

    Call it before files are moved: the mapping of a moved file shows its new path.
    """
    names = tuple(names)
    in_this_process = imported_here(names, packages)
    if in_this_process:
        return in_this_process
    pid = kernel_above(host)
    maps = (host.read_text(f"/proc/{pid}/maps", 16 << 20) if pid is not None else None) or ""
    return tuple(name for name in names if any(f"{folder}/{IMPORT_NAMES.get(name, name)}/" in maps for folder in packages))


def kernel_is_near(host: Host) -> bool:
    """True if this process is a notebook kernel or runs in a cell, so that `restart_kernel` works."""
    return in_notebook() or kernel_above(host) is not None


def restart_note(names: tuple[str, ...], *, notebook: bool) -> str | None:
    """Why the kernel must be restarted if it has imported these modules; None without any."""
    if not names:
        return None
    why = f"has already imported {', '.join(names)}, and keeps the old files loaded until it ends"
    if not notebook:
        return f"restart this program: it {why}"
    return f"{_REQUEST}this kernel {why}; run the cell again afterwards, which then changes nothing{_OPTION}"


def restart(execution: Execution, host: Host, command: Sequence[str]) -> Execution:
    """Restart the kernel if needed, a moment after this returns, and say so in the result.

    For one `command` (the environment and the words) this happens once: otherwise a notebook that is run from the beginning after each
    restart, and requests a change each time, would never finish.
    """
    mark = _mark(command)
    if execution.restart is None:
        return execution
    if disk.kind(mark) is not None:
        disk.remove(mark)
        note = f"{execution.restart.removesuffix(_OPTION)}; it was already restarted for this command, and is not restarted again"
        return replace(execution, restart=note)
    disk.make_folder(user_folders.private_folder(mark.rpartition("/")[0]))
    disk.write_whole(mark, b"")
    if not restart_kernel(host):
        disk.remove(mark)
        return execution
    return replace(execution, restart=execution.restart.removesuffix(_OPTION).replace(_REQUEST, "restarting the runtime: ", 1))


def forget_restart(command: Sequence[str]) -> None:
    """Allow the next change by this command to restart the kernel: there was nothing to do."""
    disk.remove(_mark(command))


def _mark(command: Sequence[str]) -> str:
    return f"{user_folders.state_folder()}/restarts/{sha256(chr(0).join(command).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def restart_kernel(host: Host) -> bool:
    """End the kernel (this process, or the one whose cell started it), so that its server starts a new one; False without a kernel.

    Precondition: `kernel_is_near`.
    """
    if in_notebook():
        shell = modules()["IPython"].get_ipython()
        shell.kernel.do_shutdown(restart=True)
        return True
    pid = kernel_above(host)
    return pid is not None and end_process_soon(pid)
