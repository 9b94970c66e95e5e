"""Put back the environment that an interrupted `cudnn-resolve apply` was changing; Python 3.6 grammar, standard library only.

A copy of this file, `recover.py`, is written next to every journal before anything changes. It works even if the program that wrote the
journal, or something which that program needs, is gone. The program itself puts files back with the same functions.

usage: python3 recover.py [--force]

--force puts files back although others changed the environment since. Exit code 0: everything is as it was; 1: refused; 5: something could
not be put back, and is listed.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

JOURNAL = "journal.jsonl"
UNFINISHED = ".cudnn-resolve-new"
MARK = ".cudnn-resolve-unfinished"
"""File in the packages folder of an environment while it is half changed; it tells other users, and programs with other state folders."""
GUIDE = "cudnn-resolve.txt"
"""File in an environment made by an apply: how to use it."""
LAYOUT = (
    *("bin", "include", "lib", "lib64", "share", "etc", "man", "pyvenv.cfg", "CACHEDIR.TAG", ".gitignore", ".lock"),
    *(GUIDE + UNFINISHED, GUIDE),  # removed last: it identifies the folder
)
"""Everything that uv, venv and wheels make in such an environment; other files in its folder belong to others."""
_STATES = {
    "change": "changing",
    "commit": "committed",
    "revert": "reverting",
    "reverted": "reverted",
    "dropped": "dropped",
    "left": "broken",
}
OPEN = ("changing", "reverting", "broken")
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")
_COMPILING = re.compile(r"\.pyc\.[0-9]{1,20}$")


# ---- the journal


def next_sum(before: str, body: str) -> str:
    """Return the checksum of a record, which covers the checksum of the record before it."""
    return hashlib.sha256("{}\n{}".format(before, body).encode("utf-8")).hexdigest()[:24]


def read_records(content: bytes) -> "tuple[list[dict[str, Any]], str, int]":
    """Return the valid records at the beginning of a journal, the checksum of the last one, and their size in bytes."""
    records, before, size = [], "", 0
    for raw in content.split(b"\n")[:-1]:
        checksum, _, body = raw.decode("utf-8", "replace").partition(" ")
        if checksum != next_sum(before, body):
            break
        try:
            record = json.loads(body)
        except (ValueError, RecursionError):
            break
        if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
            break
        records.append(record)
        before = checksum
        size += len(raw) + 1
    return records, before, size


def state_of(records: "Sequence[Mapping[str, Any]]") -> str:
    """Return `begun`, `changing`, `committed`, `reverting`, `reverted`, `dropped` or `broken`."""
    state = "begun"
    for record in records:
        state = _STATES.get(record["kind"], state)
    return state


# ---- the environment: the same one, unchanged by others


def identity_of(prefix: str) -> "dict[str, Any]":
    """Return what distinguishes an environment from another one at the same path: its folder's inode and its pyvenv.cfg."""
    identity = {"inode": None, "config": None, "written": None}  # type: dict[str, Any]
    try:
        identity["inode"] = os.stat(prefix).st_ino
        path = os.path.join(prefix, "pyvenv.cfg")
        with open(path, "rb") as file:
            identity["config"] = hashlib.sha256(file.read(1 << 20)).hexdigest()
        identity["written"] = os.stat(path).st_mtime_ns
    except OSError:
        pass
    return identity


def is_another(begin: "Mapping[str, Any]") -> bool:
    """Return whether the environment was made again since the journal began, so that saved files do not belong to it."""
    before = begin.get("identity")
    return isinstance(before, dict) and before != identity_of(str(begin.get("prefix")))


def changed_since(begin: "Mapping[str, Any]", files: "Mapping[str, Any]", folders: "Sequence[str]") -> "list[str]":
    """Describe what others installed since the journal was written; `folders` are those of the environment's packages."""
    changes = []
    touched = [*(row[0] for row in begin.get("install", []) if row), *begin.get("remove", [])]
    names = {_normalized(str(name)) for name in touched}
    saved = {os.path.dirname(path) for path in files.get("save", [])}
    known = set(files.get("infos", [])) | {path for path in saved if path.endswith(".dist-info")}
    for folder in sorted(set(folders)):
        for entry in _names_in(folder):
            path = os.path.join(folder, entry)
            if entry.endswith(".dist-info") and _normalized(entry.partition("-")[0]) in names and path not in known and _names_in(path):
                changes.append("{} was installed by another program".format(entry[: -len(".dist-info")]))
    return changes


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- files


def kind(path: str) -> "str | None":
    """Return `file`, `folder`, `link`, `other`, or None if nothing exists; links are not followed."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def holds(path: str, roots: "Sequence[str]") -> bool:
    """Return whether a path is absolute, normalized, and below one of the roots."""
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        return False
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def leads_out(path: str, roots: "Sequence[str]") -> "str | None":
    """Return the real folder of a path if a link leads it out of the roots; None otherwise."""
    real = os.path.realpath(os.path.dirname(path))
    inside = [os.path.realpath(root) for root in roots]
    return None if any(real == root or real.startswith(root.rstrip("/") + "/") for root in inside) else real


class Caches:
    """Compiled files by module; lists each `__pycache__` once."""

    def __init__(self) -> None:
        self._listings = {}  # type: dict[str, dict[str, list[str]]]

    def of(self, path: str) -> "list[str]":
        """Return the compiled and half-compiled files of a module; empty for any other file."""
        if not path.endswith(".py"):
            return []
        folder, name = os.path.split(path)
        cache = folder + "/__pycache__"
        if cache not in self._listings:
            stems = self._listings.setdefault(cache, {})
            for entry in _names_in(cache) if kind(cache) == "folder" else ():  # a link leads to files of others
                stems.setdefault(entry.partition(".")[0], []).append(cache + "/" + entry)
        return self._listings[cache].get(name[:-3], [])


def with_compiled(paths: "Iterable[str]") -> "Iterator[str]":
    """Yield the paths, and the existing compiled files of the modules among them."""
    caches = Caches()
    for path in paths:
        yield path
        yield from (compiled for compiled in caches.of(path) if compiled.endswith(".pyc"))


def half_made(paths: "Iterable[str]") -> "Iterator[str]":
    """Yield temporary files that only a program which was writing or compiling one of these paths can have left."""
    caches = Caches()
    for path in paths:
        if kind(path + UNFINISHED) is not None:
            yield path + UNFINISHED
        yield from (compiled for compiled in caches.of(path) if _COMPILING.search(os.path.basename(compiled)))


def temporary_folders(folders: "Iterable[str]") -> "Iterator[str]":
    """Yield folders among the packages with the names that uv gives to those in which it makes a replacement for a file."""
    for root in dict.fromkeys(folders):
        for name in _names_in(root):
            if _TEMPORARY.match(name) and len(name) == 10 and kind(root + "/" + name) == "folder":
                yield root + "/" + name


def put_back(files: "Mapping[str, Any]", folders: "Sequence[str]", *, finished: bool) -> "list[str]":
    """Remove the files that came and put back those that left; return what failed. May be repeated after a kill.

    `files` is the checked record of a journal; `folders` are those of the environment's packages; `finished` says whether the installer
    had finished.
    """
    left = []  # type: list[str]
    _remove_added(files, left)
    if not finished:
        _remove_leftovers(files, folders, left)
    caches = ["{}/__pycache__".format(folder) for folder in (*files["made"], *(os.path.dirname(path) for path in files["add"]))]
    for folder in sorted({*files["made"], *files["infos"], *caches}, key=len, reverse=True):
        _remove_empty(folder)
        if kind(folder) == "folder" and not _names_in(folder):
            _try(left, os.rmdir, folder)
    for number, path in enumerate(files["save"]):
        source = "{}/{}".format(files["store"], number)
        if kind(source) is not None:
            _try(left, _move, source, path)
    for folder, mode in files["modes"].items():
        if kind(folder) == "folder" and stat.S_IMODE(os.lstat(folder).st_mode) != mode:
            _try([], os.chmod, folder, mode)
    return left


def _remove_added(files: "Mapping[str, Any]", left: "list[str]") -> None:
    kept = set(files["save"])
    for path in list(with_compiled(files["add"])):
        if path not in kept and kind(path) in ("file", "link"):
            _try(left, os.unlink, path)
    for info in [folder for folder in files["infos"] if kind(folder) == "folder"]:  # a link leads to files of others
        for top, inner, names in os.walk(info, topdown=False):
            for name in names:
                if os.path.join(top, name) not in kept:
                    _try(left, os.unlink, os.path.join(top, name))
            for name in inner:
                _remove_empty(os.path.join(top, name))


def _remove_leftovers(files: "Mapping[str, Any]", folders: "Sequence[str]", left: "list[str]") -> None:
    """Remove the temporary files of a killed installer: those that were to become a file of the exchange, never others of such a name."""
    for path in list(half_made(files["add"])):
        if path not in files["names"]:
            _try(left, os.unlink, path)
    if files["moved"]:
        return  # no installer wrote into the environment
    coming = {os.path.basename(path) for path in files["add"]}
    for folder in list(temporary_folders(folders)):
        found = _names_in(folder)
        if folder not in files["names"] and coming.issuperset(found) and all(kind(folder + "/" + name) == "file" for name in found):
            for name in found:
                _try(left, os.unlink, folder + "/" + name)
            _remove_empty(folder)


def _names_in(folder: str) -> "list[str]":
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _remove_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _move(source: str, target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target + UNFINISHED
        if os.path.islink(source):
            if kind(beside) is not None:
                os.unlink(beside)
            os.symlink(os.readlink(source), beside)
        else:
            shutil.copy2(source, beside, follow_symlinks=False)
            handle = os.open(beside, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        os.rename(beside, target)
        os.unlink(source)


def _try(left: "list[str]", act: "Callable[..., object]", *paths: "Any") -> None:
    try:
        act(*paths)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        left.append("{}: {}".format(paths[-1], getattr(error, "strerror", None) or error))


# ---- run as a program


def checked(records: "Sequence[Mapping[str, Any]]", roots: "Sequence[str]", folder: str) -> "dict[str, Any] | None":
    """Return the `files` record with all of it checked; None if there is none, ValueError if it is not one that an apply wrote."""
    found = [record for record in records if record["kind"] == "files"]
    if not found:
        return None
    files = dict(found[-1])
    extra = [record.get("extra", []) for record in records if record["kind"] == "installed"]
    lists = [*(files.get(name) for name in ("save", "add", "infos", "made", "names")), *extra]
    if not all(isinstance(paths, list) for paths in lists) or not isinstance(files.get("modes"), dict):
        raise ValueError("its record `files` is not readable")
    for path in (path for paths in (*lists, files["modes"]) for path in paths):
        if not isinstance(path, str) or not holds(path, roots):
            raise ValueError("it names a path outside of the environment: {!r}".format(path)[:300])
    number = os.path.basename(folder)
    if not isinstance(files.get("store"), str) or not files["store"].endswith((number + "/saved", "/" + number)):
        raise ValueError("its saved files are elsewhere")
    files["add"] = list(dict.fromkeys([*files["add"], *(path for paths in extra for path in paths)]))
    files["modes"] = {path: mode & 0o3777 for path, mode in files["modes"].items() if isinstance(mode, int)}
    files["moved"] = files.get("moved") is True
    return files


def detour_in(files: "Mapping[str, Any]", roots: "Sequence[str]") -> "str | None":
    """Return a path of a record that a link leads out of the roots; None if there is none."""
    paths = (*files["save"], *files["add"], *files["infos"], *files["made"], *files["modes"])
    folders = {os.path.dirname(path): path for path in paths}
    return next((path for path in folders.values() if leads_out(path, roots)), None)


def unfinished() -> "Iterator[str]":
    """Yield the path of `recover.py` for each unfinished apply of this user."""
    home = os.environ.get("XDG_STATE_HOME", "")
    home = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    root = os.path.join(home, "cudnn-resolve", "environments")
    for environment in sorted(_names_in(root)):
        for number in sorted(_names_in(os.path.join(root, environment))):
            program = os.path.join(root, environment, number, "recover.py")
            if _state_in(os.path.dirname(program)) in OPEN and kind(program) == "file":
                yield program


def _state_in(folder: str) -> str:
    """Return the state of the journal in a folder, as `state_of` does; empty if there is none."""
    with contextlib.suppress(OSError), open(os.path.join(folder, JOURNAL), "rb") as file:
        return state_of(read_records(file.read())[0])
    return ""


def _append(folder: str, before: str, kind_: str, **values: object) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = json.dumps(dict(values, kind=kind_, at=at), separators=(",", ":"), sort_keys=True)
    checksum = next_sum(before, body)
    with open(os.path.join(folder, JOURNAL), "ab") as file:
        file.write("{} {}\n".format(checksum, body).encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    return checksum


def _system_commands(records: "Sequence[Mapping[str, Any]]") -> "Iterator[str]":
    """Yield the commands for root that put system packages and the linker cache back."""
    for record in records:
        if record["kind"] == "apt":
            rows = [*record.get("packages", []), *([name, *pair] for name, pair in record.get("along", {}).items())]
            old = ["{}={}".format(name, before) for name, _, before in rows if before]
            new = [str(name) for name, _, before in rows if not before]
            if old:
                yield "apt-get install --allow-downgrades --allow-change-held-packages " + " ".join(old)
            if new:
                yield "apt-get purge " + " ".join(new)
        elif record["kind"] == "cache":
            yield "rm -f /etc/ld.so.conf.d/cudnn-resolve.conf && ldconfig"


def _is_held(folders: "Sequence[str]") -> bool:
    """Take the lock of an apply until this process ends; return whether another process has it."""
    try:
        handle = os.open(folders[0], os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, IndexError) as error:
        return getattr(error, "errno", None) in (errno.EWOULDBLOCK, errno.EACCES)
    return False


def _is_marked(folders: "Sequence[str]", journal: str) -> bool:
    """Return whether the environment is marked as half changed by the journal in a folder."""
    for folder in folders:
        with contextlib.suppress(OSError), open(os.path.join(folder, MARK), "rb") as file:
            command = re.search(rb"^python3 (/.*)/recover\.py$", file.read(1 << 12), re.MULTILINE)
            if command and os.path.realpath(os.fsdecode(command.group(1))) == journal:
                return True
    return False


def _was_being_made(folder: str, prefix: str) -> bool:
    """Return whether the unfinished apply was making the environment itself, which is then removed as a whole."""
    try:
        with open(os.path.join(os.path.dirname(folder), "creation.json"), "rb") as file:
            creation = json.loads(file.read().decode("utf-8"))
        with open(os.path.join(prefix, GUIDE), "rb") as file:
            is_same = creation["inode"] == os.lstat(prefix).st_ino and str(creation["token"]).encode() in file.read(1 << 20)
        if creation["by"] is not None:
            return bool(is_same and creation["is_leaving"] and str(creation["by"]) == os.path.basename(folder).lstrip("0"))
        others = os.path.dirname(folder)
        return bool(is_same and not any(_state_in(os.path.join(others, name)) == "committed" for name in _names_in(others)))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _clear(prefix: str) -> "list[str]":
    """Remove an environment, and its folder if nothing else is in it; return the names of what else is."""
    for name in LAYOUT:
        path = os.path.join(prefix, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
    left = sorted(_names_in(prefix))
    with contextlib.suppress(OSError):
        os.rmdir(prefix)
    return left


def _end(code: int, *lines: str) -> int:
    print("\n".join(lines))
    return code


def main(words: "Sequence[str]") -> int:
    """Put back what the journal next to this file was changing; return the exit code."""
    folder = os.path.dirname(os.path.realpath(__file__))
    try:
        with open(os.path.join(folder, JOURNAL), "rb") as file:
            content = file.read()
    except OSError as error:
        return _end(1, "the journal in {} cannot be read: {}".format(folder, error.strerror))
    records, before, size = read_records(content)
    if b"\n" in content[size:] or not records or records[0]["kind"] != "begin":
        return _end(1, "the journal in {} was modified; nothing was changed".format(folder))
    begin, state = records[0], state_of(records)
    folders = begin.get("packages", [])
    if state not in OPEN and _is_marked(folders, folder):
        return _end(1, "the end of the journal in {} is lost, and the environment is half changed; nothing was changed".format(folder))
    if state not in OPEN:
        return _end(0, "nothing to put back: this apply was {}".format(state))
    try:
        files = checked(records, begin.get("roots", []), folder)
    except (ValueError, KeyError, TypeError) as error:
        return _end(1, "the journal in {} was modified: {}; nothing was changed".format(folder, error))
    detour = None if files is None else detour_in(files, begin.get("roots", []))
    if detour is not None:
        return _end(1, "{} is outside of the environment: a link leads there; nothing was changed".format(detour))
    if is_another(begin):
        what = "{} was made again since and is another environment now".format(begin.get("prefix"))
        return _end(1, what, "the saved files do not belong to it; `cudnn-resolve apply --force ...` discards that apply")
    reasons = changed_since(begin, files or {}, folders)
    if reasons and "--force" not in words:
        return _end(1, "refused, nothing was changed:", *reasons, "inspect the environment; --force puts everything back anyway")
    if _is_held(folders):
        return _end(1, "another process is changing {}; nothing was changed".format(begin.get("prefix")))
    with contextlib.suppress(OSError):  # a full disk must not stop the way back, which only moves and removes files
        os.truncate(os.path.join(folder, JOURNAL), size)
        before = _append(folder, before, "revert", why="recover.py")
    finished = any(record["kind"] == "commit" for record in records)
    left = [] if files is None else put_back(files, folders, finished=finished)
    os.sync()
    return _finish(folder, before, records, left)


def _finish(folder: str, before: str, records: "Sequence[Mapping[str, Any]]", left: "list[str]") -> int:
    begin = records[0]
    if left:
        _append(folder, before, "left", what=left[:50])
        return _end(5, "could not be put back:", *left)
    marks = [os.path.join(packages, MARK) for packages in begin.get("packages", [])]
    for path in (*marks, os.path.join(os.path.dirname(folder), "at-work")):
        _try(left, os.unlink, path)
        _try(left, os.unlink, path + UNFINISHED)
    os.sync()
    commands = list(_system_commands(records))
    if commands:
        print("The files of {} were put back; the system packages were not.".format(begin.get("prefix")))
        return _end(5, "`cudnn-resolve apply --undo` puts them back, or, as root:", *commands)
    _append(folder, before, "reverted")
    if _was_being_made(folder, str(begin.get("prefix"))):
        others = _clear(str(begin.get("prefix")))
        notes = ["other files in it were kept: " + ", ".join(others[:5])] if others else []
        return _end(0, "{} was being made, and is removed".format(begin.get("prefix")), *notes)
    return _end(0, "{} is as it was before apply number {}".format(begin.get("prefix"), begin.get("id")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
