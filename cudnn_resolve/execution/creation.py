"""New environments: from an empty folder to the end of the first `apply`. Until then, and when that is undone, they are removed as a whole.

A record next to the environment's journals says that it is being made. The record holds for one folder only: it has the folder's inode,
which a later folder may get, and a random token that is also in the folder. Removal deletes what an environment consists of; other files
stay, and so does a folder that existed before.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.journal import Journal
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.loader_settings import ACTIVATION
from cudnn_resolve.execution.payload_recover import GUIDE, LAYOUT
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.run_tool import Tooling, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudnn_resolve.host.protocol import Host

State = Literal["absent", "unfinished", "made"]
_RECORD = "creation.json"
_GUIDE_BYTES = 1 << 20
_MARK = "cudnn-resolve = made"
"""Line in the pyvenv.cfg of environments made by `apply --env`, which changes no others: those need an explicit `--python`."""


class Creation(Struct, frozen=True, kw_only=True):
    """Record of an environment that an `apply` makes or made."""

    inode: int
    words: tuple[str, ...]
    """Command-line words that request it."""
    folder: str
    """Working directory of that command."""
    at: str
    token: str
    """Random text, also in the guide in the folder while the environment is being made."""
    folders: tuple[str, ...] = ()
    """Folders that were created for it, innermost first; they are removed with it."""
    kernels: tuple[str, ...] = ()
    """Folders of its Jupyter kernels."""
    by: int | None = None
    """Number of the `apply` that made it; None until that finished."""
    is_leaving: bool = False
    """True once the undo of that `apply` has begun."""


def journals_at(prefix: str) -> Journals:
    """Return the journals of an environment that may be missing or broken."""
    return Journals(Environment(python="", version="", prefix=prefix, scheme={}))


def creation_of(journals: Journals) -> Creation | None:
    """Return the record of the folder that is there now; None if there is none, or it is of an earlier folder."""
    record = _read_record(journals)
    if record is None:
        return None
    prefix = journals.environment.prefix
    guide = disk.content(f"{prefix}/{GUIDE}", _GUIDE_BYTES) or b""
    is_same = record.inode == disk.inode_of(prefix) and (record.by is not None or record.token.encode() in guide)
    return record if is_same else None


def _read_record(journals: Journals) -> Creation | None:
    with suppress(ValueError, RecursionError):
        return journals.read_record(_RECORD, Creation)
    return None


def state_of(journals: Journals) -> State:
    """Return whether the environment exists; raises UsageError if something else is in its place."""
    prefix = journals.environment.prefix
    record = creation_of(journals)
    if record is not None and (record.by is None or record.is_leaving):
        committed = [past.id for past in journals.all() if past.state == "committed"]  # those of an earlier environment were dropped
        if not committed or (record.by is not None and record.by not in committed):
            return "unfinished"
        finish(journals, record.by or min(committed))
    config = (disk.content(f"{prefix}/pyvenv.cfg", 1 << 16) or b"").decode("utf-8", "replace")
    if _MARK in config.splitlines():
        return "made"
    if disk.kind(prefix) in (None, "folder") and not disk.names_in(prefix):
        return "absent"
    hint = f"name another folder; `--python {prefix}` changes that environment" if config else "name a new or empty folder"
    raise UsageError(f"{prefix} exists and was not made by `apply --env`", code="env-foreign", context="--env", hint=hint)


def begin(journals: Journals, words: Sequence[str], kernel: str | None, folders: Sequence[str]) -> None:
    """Record that an environment is being made in the empty folder, and drop the journals of an earlier environment there."""
    for past in journals.all():
        if past.state not in ("reverted", "dropped"):
            Journal.resume(past).add("dropped", why="repair" if past.is_open or past.state == "begun" else "gone")
    inode = disk.inode_of(journals.environment.prefix)
    assert inode is not None
    record = Creation(
        inode=inode,
        words=tuple(words),
        folder=disk.folder_here(),
        at=clock.moment(),
        token=uuid4().hex,
        folders=tuple(folders),
        kernels=(kernel,) if kernel is not None else (),
    )
    journals.write_record(_RECORD, record)
    write_guide(journals, "An apply of cudnn-resolve is making an environment in this folder.\n")


def write_guide(journals: Journals, text: str) -> None:
    """Write the guide, the file in the environment that says how to use it; its token identifies the folder."""
    record = _read_record(journals)
    token = f"\n({record.token})\n" if record is not None else ""
    disk.write_whole(f"{journals.environment.prefix}/{GUIDE}", (text + token).encode())


def make_environment(journals: Journals, base: str, uv: str | None, host: Host, share: tuple[int, ...]) -> Environment:
    """Make the environment without packages, by uv or by the interpreter `base`; uv fetches `base` if it is a version.

    Raises WorldError if that fails.
    """
    prefix = journals.environment.prefix
    if uv is not None:
        argv = [uv, "venv", "--no-project", "--allow-existing", "--color", "never", "--no-progress", "--python", base, prefix]
    else:
        argv = [base, "-I", "-m", "venv", prefix]
    environ = {name: value for name, value in host.environ.items() if name not in ("VIRTUAL_ENV", "UV_PROJECT", "PYTHONHOME")}
    log = f"{journals.folder}/creation.txt"
    result = run_tool(argv, Tooling(log=log, share=share, cwd=prefix), env=environ)
    if not result.ok:
        failure, hint = f"cannot make an environment with {base}", "name another interpreter with `--python PATH`"
        if "/" not in base:  # a version for uv to fetch
            failure = f"cannot fetch Python {base}"
            hint = f"`apt-get install python{base}-venv` or `conda create -n py python={base}`, or set UV_PYTHON_INSTALL_MIRROR"
        raise WorldError(f"{argv[0]} {failure}: {result.why()}", code="env-failed", context=log, hint=f"nothing is left of it; {hint}")
    config = disk.content(f"{prefix}/pyvenv.cfg", 1 << 16) or b""
    disk.write_whole(f"{prefix}/pyvenv.cfg", config.rstrip(b"\n") + f"\n{_MARK}\n".encode())
    _source_loader_settings(f"{prefix}/bin/activate")
    return ask_environment(host, f"{prefix}/bin/python")


def _source_loader_settings(activate: str) -> None:
    """Let an environment's activation source the loader's activation script, if a plan writes one."""
    text = disk.content(activate, 1 << 20)
    if text is not None:
        script = f'"$VIRTUAL_ENV/bin/{ACTIVATION}"'
        disk.write_whole(activate, text + f"\nif [ -r {script} ]; then . {script}; fi\n".encode())


def finish(journals: Journals, by: int) -> None:
    """Record that the environment is complete, and which `apply` made it."""
    _update_record(journals, by=by, is_leaving=False)


def begin_removal(journals: Journals) -> None:
    """Record that the environment is to be removed once its first `apply` is undone."""
    _update_record(journals, is_leaving=True)


def add_kernel(journals: Journals, kernel: str) -> None:
    """Record a further kernel of an existing environment."""
    record = creation_of(journals)
    if record is not None and kernel not in record.kernels:
        journals.write_record(_RECORD, replace(record, kernels=(*record.kernels, kernel)))


def discard(journals: Journals, *, keep_folder: bool = False) -> tuple[str, ...]:
    """Remove an environment that was never finished or is undone, and its kernels; may be repeated after a kill.

    Returns the names of other files in its folder, which stays then.
    """
    record = creation_of(journals)
    if record is None:
        return ()
    prefix = journals.environment.prefix
    for kernel in record.kernels:
        if is_kernel_of(kernel, prefix):
            disk.remove(f"{kernel}/kernel.json")
            disk.remove_empty(kernel)
    for past in journals.all():
        if past.is_open or past.state == "begun":
            Journal.resume(past).add("dropped", why="repair")  # keeps its downloads, as for any interrupted `apply`
    journals.unmark()
    for name in LAYOUT:
        disk.remove_tree(f"{prefix}/{name}")
        disk.remove(f"{prefix}/{name}")  # anything but a folder
    left = disk.names_in(prefix)
    for folder in () if keep_folder else record.folders:
        disk.remove_empty(folder)
    disk.remove(f"{journals.folder}/{_RECORD}")
    return tuple(sorted(left))


def _update_record(journals: Journals, **changes: Any) -> None:
    record = creation_of(journals)
    if record is not None:
        journals.write_record(_RECORD, replace(record, **changes))


# ---- Jupyter kernels


def kernel_folder(environ: Mapping[str, str], name: str) -> str:
    """Return the folder in which Jupyter looks for this user's kernel of that name."""
    data = environ.get("XDG_DATA_HOME") or f"{environ.get('HOME', '')}/.local/share"
    return f"{environ.get('JUPYTER_DATA_DIR') or f'{data}/jupyter'}/kernels/{name}"


def refuse_other_kernel(folder: str, prefix: str) -> None:
    """Raise UsageError for the folder of a kernel that belongs to another environment."""
    if disk.kind(folder) is not None and not is_kernel_of(folder, prefix):
        name = os.path.basename(folder)
        message = f"the kernel {name} belongs to another environment"
        raise UsageError(message, code="kernel-taken", context=folder, hint="choose another name for --kernel")


def is_kernel_of(folder: str, prefix: str) -> bool:
    """Return whether a kernel runs the interpreter of an environment."""
    argv = _kernel_spec(folder).get("argv")
    return isinstance(argv, list) and bool(argv) and str(argv[0]).startswith(f"{prefix}/")


def register_kernel(folder: str, prefix: str, about: str, loader: str) -> None:
    """Register the kernel of an environment; `loader` is the LD_LIBRARY_PATH that its processes need."""
    argv = [f"{prefix}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec: dict[str, Any] = {"argv": argv, "display_name": f"{os.path.basename(folder)} ({about})", "language": "python"}
    if loader:
        spec["env"] = {"LD_LIBRARY_PATH": f"{loader}:${{LD_LIBRARY_PATH}}"}
    if _kernel_spec(folder) != spec:
        disk.make_folder(folder)
        disk.write_whole(f"{folder}/kernel.json", json.dumps(spec, indent=1).encode())


def _kernel_spec(folder: str) -> dict[str, Any]:
    try:
        spec = json.loads(disk.content(f"{folder}/kernel.json", 1 << 20) or b"")
    except (ValueError, RecursionError):
        return {}
    return spec if isinstance(spec, dict) else {}
