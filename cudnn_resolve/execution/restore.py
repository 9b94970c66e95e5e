"""The way back for files: the record of a journal, checked, and what `payload_recover` makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import payload_recover
from cudnn_resolve.execution.exchange import refuse_detour
from cudnn_resolve.execution.journal import inside, tampered
from cudnn_resolve.host import disk

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import PastApply
    from cudnn_resolve.execution.journals import Journals


def put_back(past: PastApply, journals: Journals, environment: Environment) -> tuple[str, ...]:
    """Put the files of the environment back; return what could not be, in words. May be repeated after a kill."""
    files = read_files(past, journals, environment)
    if files is None:
        return ()
    finished = any(one["kind"] == "commit" for one in past.records)
    return tuple(payload_recover.put_back(files, environment.packages, finished=finished))


def read_files(past: PastApply, journals: Journals, environment: Environment) -> dict[str, Any] | None:
    """Return the `files` record of a journal, every path of it checked; None where there is none.

    WorldError where it names anything outside of the environment: better said before anything is begun.
    """
    files = past.last("files")
    if files is None:
        return None
    store = files.get("store")
    if not journals.is_store(store, past.id):
        raise tampered(past.folder, "what it saved lies elsewhere")
    extra = [path for one in past.all("installed") for path in inside(one.get("extra", []), environment, past.folder)]
    modes, names = files.get("modes"), files.get("names")
    if not isinstance(modes, dict) or not isinstance(names, list):
        raise tampered(past.folder, "what it says of folders is not readable")
    paths = {name: inside(files.get(name), environment, past.folder) for name in ("save", "add", "infos", "made")}
    kept = {folder: mode & 0o3777 for folder, mode in modes.items() if isinstance(mode, int) and environment.holds(folder)}
    checked: set[str] = set()
    for path in (*(path for some in paths.values() for path in some), *extra, *kept):
        folder = path.rpartition("/")[0]
        if folder not in checked:
            checked.add(folder)
            refuse_detour(path, environment)
    return {
        **paths,
        "add": tuple(dict.fromkeys((*paths["add"], *extra))),
        "store": str(store),
        "modes": kept,
        "names": frozenset(one for one in names if isinstance(one, str)),
        "moved": files.get("moved") is True,
    }


def changed_meanwhile(past: PastApply, journals: Journals, environment: Environment) -> tuple[str, ...]:
    """Return, in words, what others did to the environment since the journal was written."""
    try:
        files = read_files(past, journals, environment)
    except WorldError:
        return ()  # what is wrong with the journal is told by those who follow it
    return tuple(payload_recover.changed_since(past.begin, files or {}, environment.packages))


def mark_path(environment: Environment) -> str:
    """Path of the file that tells everybody that the environment is neither the old nor the new one."""
    return f"{environment.packages[0]}/{payload_recover.MARK}"


def mark_environment(environment: Environment, folder: str) -> None:
    """Write that mark; it names the command that puts everything back."""
    text = f"An apply of cudnn-resolve did not come to its end. This puts the environment back:\n\npython3 {folder}/recover.py\n"
    disk.write_whole(mark_path(environment), text.encode())


def unmark_environment(environment: Environment) -> None:
    """Remove that mark."""
    for path in (mark_path(environment), f"{mark_path(environment)}{disk.UNFINISHED}"):
        if disk.kind(path) is not None:  # a disk that cannot be written refuses also to remove what is not there
            disk.remove(path)
