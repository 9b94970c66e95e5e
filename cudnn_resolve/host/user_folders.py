"""Folders of this program in the user's home: the cache, which may be deleted, and the state, which must be private."""

from __future__ import annotations

import os
import stat as modes

from cudnn_resolve.errors import WorldError
from cudnn_resolve.host import disk


def cache_folder() -> str | None:
    """Cache folder of the user, or else one below `TMPDIR`; None if neither can be written."""
    import platformdirs  # takes 30 ms, which an installed program need not spend

    temporary = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"cudnn-resolve-{os.geteuid()}")  # noqa: S108 - see `_is_others`
    for folder in (platformdirs.user_cache_dir("cudnn-resolve"), temporary):
        if os.path.isabs(folder) and disk.writable(folder) and not _is_others(folder):
            return folder
    return None


def _is_others(folder: str) -> bool:
    """Whether the folder, or a link in its place, belongs to another user."""
    try:
        return os.lstat(folder).st_uid != os.geteuid()
    except OSError:
        return False


def state_folder() -> str:
    """Folder for persistent state: below `XDG_STATE_HOME`, else below `~/.local/state`."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):  # XDG base directory specification: a relative path counts as unset
        home = os.path.expanduser("~/.local/state")
    if not os.path.isabs(home):
        return f"/var/tmp/cudnn-resolve-{os.geteuid()}"  # noqa: S108 - `private_folder` refuses one of another user
    return os.path.join(home, "cudnn-resolve")


def private_folder(path: str) -> str:
    """Create the folder if it is missing; raise WorldError if anybody else can change it."""
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        refused = disk.refusal(error, path)
        hint = "the files for an undo are kept there: set XDG_STATE_HOME to a folder that this user may write to"
        raise WorldError(refused.message, code=refused.code, hint=hint) from None
    refuse_foreign(path)
    return path


def refuse_foreign(path: str) -> None:
    """Reject a folder that other users can change, since its content cannot be trusted; raises WorldError."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return
    is_folder, is_own = modes.S_ISDIR(found.st_mode), found.st_uid == os.geteuid()
    if is_folder and is_own and not found.st_mode & 0o022:
        return
    if not is_folder:
        remedy = "put a folder there"
    elif is_own:
        remedy = f"`chmod go-w {path}`"
    else:
        remedy = f"`chown` it to user {os.geteuid()}"
    raise WorldError(
        f"{path} is not a folder that only this user can change",
        code="state-folder",
        context=path,
        hint=f"the files for an undo are kept there, and others may have changed them: check it, then {remedy}, "
        "or set XDG_STATE_HOME to a folder of yours",
    )
