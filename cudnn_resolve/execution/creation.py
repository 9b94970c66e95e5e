"""A new environment: from an empty folder to the end of the first `apply` in it. Until then, and by its undo, it goes as a whole.

That it is being made is written down with its journals, and holds for this very folder only: its inode, which the next folder may get,
and a word in it that nobody else knows. What goes is what an environment consists of; other files in the folder stay, and so does a
folder that was there before.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.journal import Journal, Journals
from cudnn_resolve.execution.loader_settings import ACTIVATION
from cudnn_resolve.execution.payload_recover import GUIDE, LAYOUT
from cudnn_resolve.host import clock, disk, user_folders
from cudnn_resolve.host.run_tool import Tooling, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudnn_resolve.host.protocol import Host

State = Literal["absent", "unfinished", "made"]
_RECORD = "creation.json"
_RECORD_BYTES = 1 << 20
_MARK = "cudnn-resolve = made"
"""Line in the pyvenv.cfg of an environment that an `apply` made: others are changed with `--python`, never by a slip of `--env`."""


class Creation(Struct, frozen=True, kw_only=True):
    """What is written down of an environment that an `apply` makes or made."""

    inode: int
    words: tuple[str, ...]
    """The words of the command line that makes it."""
    folder: str
    """Where that was given."""
    at: str
    token: str
    """What the guide in the folder holds for as long as it is being made."""
    folders: tuple[str, ...] = ()
    """The folders that were made for it, the innermost first; it goes with them."""
    kernels: tuple[str, ...] = ()
    """The folders of its Jupyter kernels."""
    by: int | None = None
    """The number of the `apply` that made it; None until that came to its end."""
    is_leaving: bool = False
    """True from the beginning of the undo of that `apply`."""


def journals_at(prefix: str) -> Journals:
    """The journals of an environment that may not be there, or not work."""
    return Journals(Environment(python="", version="", prefix=prefix, scheme={}))


def creation_of(journals: Journals) -> Creation | None:
    """What was written down of the folder that is there now; None where it is another one, or nothing was."""
    found = _recorded(journals)
    if found is None:
        return None
    prefix = journals.environment.prefix
    guide = disk.content(f"{prefix}/{GUIDE}", _RECORD_BYTES) or b""
    is_that = found.inode == disk.inode_of(prefix) and (found.by is not None or found.token.encode() in guide)
    return found if is_that else None


def _recorded(journals: Journals) -> Creation | None:
    user_folders.refuse_foreign(journals.folder)
    try:
        return decode(disk.content(f"{journals.folder}/{_RECORD}", _RECORD_BYTES) or b"", type=Creation)
    except DecodeError:
        return None


def state_of(journals: Journals) -> State:
    """Whether the environment is there; UsageError where something else is."""
    prefix = journals.environment.prefix
    found = creation_of(journals)
    if found is not None and (found.by is None or found.is_leaving):
        committed = [one.id for one in journals.all() if one.state == "committed"]  # those of a former environment were dropped
        if not committed or (found.by is not None and found.by not in committed):
            return "unfinished"
        finish(journals, found.by or min(committed))
    config = (disk.content(f"{prefix}/pyvenv.cfg", 1 << 16) or b"").decode("utf-8", "replace")
    if _MARK in config.splitlines():
        return "made"
    if disk.kind(prefix) in (None, "folder") and not disk.names_in(prefix):
        return "absent"
    hint = f"name another folder; `--python {prefix}` changes that environment" if config else "name a folder that is new or empty"
    raise UsageError(f"{prefix} is there, and `apply --env` did not make it", code="env-foreign", context="--env", hint=hint)


def begin(journals: Journals, words: Sequence[str], kernel: str | None, folders: Sequence[str]) -> None:
    """Write down that the empty folder becomes an environment; what journals say of a former one there counts no more."""
    for past in journals.all():
        if past.state not in ("reverted", "dropped"):
            Journal.resume(past).add("dropped", why="repair" if past.is_open or past.state == "begun" else "gone")
    prefix = journals.environment.prefix
    inode = disk.inode_of(prefix)
    assert inode is not None
    token, kernels = uuid4().hex, (kernel,) if kernel is not None else ()
    here, now = disk.folder_here(), clock.moment()
    made = Creation(inode=inode, words=tuple(words), folder=here, at=now, token=token, folders=tuple(folders), kernels=kernels)
    _write(journals, made)
    write_guide(journals, "An apply of cudnn-resolve is making an environment of this folder.\n")


def write_guide(journals: Journals, text: str) -> None:
    """Write how the environment is used into its folder, with the word that says whose it is."""
    found = _recorded(journals)
    token = f"\n({found.token})\n" if found is not None else ""
    disk.write_whole(f"{journals.environment.prefix}/{GUIDE}", (text + token).encode())


def lay_out(journals: Journals, base: str, uv: str | None, host: Host, share: tuple[int, ...]) -> Environment:
    """Make the environment without packages, by uv or by the interpreter `base` itself; a version as `base` is for uv to fetch.

    WorldError where that fails.
    """
    prefix = journals.environment.prefix
    if uv is not None:
        argv = [uv, "venv", "--no-project", "--allow-existing", "--color", "never", "--no-progress", "--python", base, prefix]
    else:
        argv = [base, "-I", "-m", "venv", prefix]
    environ = {name: value for name, value in host.environ.items() if name not in ("VIRTUAL_ENV", "UV_PROJECT", "PYTHONHOME")}
    log = f"{journals.folder}/creation.txt"
    made = run_tool(argv, Tooling(log=log, share=share, cwd=prefix), env=environ)
    if not made.ok:
        what, hint = f"makes no environment of {base}", "`--python PATH` names another interpreter"
        if "/" not in base:  # which uv was to fetch
            what = f"cannot fetch Python {base}"
            hint = f"`apt-get install python{base}-venv` or `conda create -n py python={base}`, or set UV_PYTHON_INSTALL_MIRROR"
        raise WorldError(f"{argv[0]} {what}: {made.why()}", code="env-failed", context=log, hint=f"nothing is left of it; {hint}")
    config = disk.content(f"{prefix}/pyvenv.cfg", 1 << 16) or b""
    disk.write_whole(f"{prefix}/pyvenv.cfg", config.rstrip(b"\n") + f"\n{_MARK}\n".encode())
    _source_settings(f"{prefix}/bin/activate")
    return ask_environment(host, f"{prefix}/bin/python")


def _source_settings(path: str) -> None:
    """Let the activation of an environment take the loader's settings along, should a plan have some."""
    text = disk.content(path, 1 << 20)
    if text is not None:
        script = f'"$VIRTUAL_ENV/bin/{ACTIVATION}"'
        disk.write_whole(path, text + f"\nif [ -r {script} ]; then . {script}; fi\n".encode())


def finish(journals: Journals, by: int) -> None:
    """Write down which `apply` made the environment, and that it is to be kept."""
    _update(journals, by=by, is_leaving=False)


def leave(journals: Journals) -> None:
    """Write down that the environment is to go, once what its first `apply` did is undone."""
    _update(journals, is_leaving=True)


def with_kernel(journals: Journals, kernel: str) -> None:
    """Write down that an environment which is there has a kernel."""
    found = creation_of(journals)
    if found is not None and kernel not in found.kernels:
        _write(journals, replace(found, kernels=(*found.kernels, kernel)))


def discard(journals: Journals, *, keep_folder: bool = False) -> tuple[str, ...]:
    """Remove an environment that was never finished, or is undone, and its kernels; may be repeated after a kill.

    Returns the names of what others put into its folder, which stays then.
    """
    found = creation_of(journals)
    if found is None:
        return ()
    prefix = journals.environment.prefix
    for kernel in found.kernels:
        if is_kernel_of(kernel, prefix):
            disk.remove(f"{kernel}/kernel.json")
            disk.remove_empty(kernel)
    for past in journals.all():
        if past.is_open or past.state == "begun":
            Journal.resume(past).add("dropped", why="repair")  # what was fetched is kept, as of any that is stopped
    journals.unmark()
    for name in LAYOUT:
        disk.remove_tree(f"{prefix}/{name}")
        disk.remove(f"{prefix}/{name}")  # of anything but a folder
    left = disk.names_in(prefix)
    for folder in () if keep_folder else found.folders:
        disk.remove_empty(folder)
    disk.remove(f"{journals.folder}/{_RECORD}")
    return tuple(sorted(left))


def _update(journals: Journals, **known: Any) -> None:
    found = creation_of(journals)
    if found is not None:
        _write(journals, replace(found, **known))


def _write(journals: Journals, creation: Creation) -> None:
    user_folders.private_folder(os.path.dirname(os.path.dirname(journals.folder)))
    user_folders.private_folder(journals.folder)
    disk.write_whole(f"{journals.folder}/{_RECORD}", encode(creation))


# ---- its kernel


def kernel_folder(environ: Mapping[str, str], name: str) -> str:
    """Where Jupyter looks for a kernel of this user."""
    data = environ.get("XDG_DATA_HOME") or f"{environ.get('HOME', '')}/.local/share"
    return f"{environ.get('JUPYTER_DATA_DIR') or f'{data}/jupyter'}/kernels/{name}"


def refuse_other_kernel(folder: str, prefix: str) -> None:
    """Reject the name of a kernel that is there and is another environment's; raises UsageError."""
    if disk.kind(folder) is not None and not is_kernel_of(folder, prefix):
        name = os.path.basename(folder)
        raise UsageError(
            f"there is a kernel {name} of another environment", code="kernel-taken", context=folder, hint="give --kernel another name"
        )


def is_kernel_of(folder: str, prefix: str) -> bool:
    """True for a kernel that runs the interpreter of an environment."""
    argv = _spec(folder).get("argv")
    return isinstance(argv, list) and bool(argv) and str(argv[0]).startswith(f"{prefix}/")


def register_kernel(folder: str, prefix: str, about: str, loader: str) -> None:
    """Register the kernel of an environment; `loader` is what its processes need as LD_LIBRARY_PATH."""
    argv = [f"{prefix}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec: dict[str, Any] = {"argv": argv, "display_name": f"{os.path.basename(folder)} ({about})", "language": "python"}
    if loader:
        spec["env"] = {"LD_LIBRARY_PATH": f"{loader}:${{LD_LIBRARY_PATH}}"}
    if _spec(folder) != spec:
        disk.make_folder(folder)
        disk.write_whole(f"{folder}/kernel.json", json.dumps(spec, indent=1).encode())


def _spec(folder: str) -> dict[str, Any]:
    try:
        found = json.loads(disk.content(f"{folder}/kernel.json", 1 << 20) or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
