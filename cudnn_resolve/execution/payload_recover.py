"""Put back the environment that an interrupted `cudnn-resolve apply` was changing; Python 3.6 grammar, standard library only.

A copy lies beside every journal as `recover.py`, written before anything changes: it works where the program that wrote the journal, or
what that program needs, is gone. The program itself puts files back by the same functions.

usage: python3 recover.py [--force]

--force puts back although the environment is another one now, or was changed by others. Exit code 0: all is as it was; 1: refused;
5: something could not be put back, which it names.
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
"""File beside the packages of an environment while it is neither the old nor the new one, for other users and other state folders."""
GUIDE = "cudnn-resolve.txt"
"""File in an environment that an apply made: how it is used."""
LAYOUT = (
    *("bin", "include", "lib", "lib64", "share", "etc", "man", "pyvenv.cfg", "CACHEDIR.TAG", ".gitignore", ".lock"),
    *(GUIDE + UNFINISHED, GUIDE),  # the last to go: it says whose the folder is
)
"""What such an environment consists of: what uv, venv and wheels make beside one another. Other files in its folder are somebody's."""
_STATES = {
    "change": "changing",
    "commit": "committed",
    "revert": "reverting",
    "reverted": "reverted",
    "dropped": "dropped",
    "left": "broken",
}
_OPEN = ("changing", "reverting", "broken")
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")
_COMPILING = re.compile(r"\.pyc\.[0-9]{1,20}$")


# ---- the journal


def next_sum(before: str, body: str) -> str:
    """Return the sum of a record, which follows from that of the record before it."""
    return hashlib.sha256("{}\n{}".format(before, body).encode("utf-8")).hexdigest()[:24]


def read_records(content: bytes) -> "tuple[list[dict[str, Any]], str, int]":
    """Return the whole records from the beginning of a journal, the sum of the last one, and how many bytes they take."""
    records, before, size = [], "", 0
    for raw in content.split(b"\n")[:-1]:
        found, _, body = raw.decode("utf-8", "replace").partition(" ")
        if found != next_sum(before, body):
            break
        try:
            one = json.loads(body)
        except (ValueError, RecursionError):
            break
        if not isinstance(one, dict) or not isinstance(one.get("kind"), str):
            break
        records.append(one)
        before = found
        size += len(raw) + 1
    return records, before, size


def state_of(records: "Sequence[Mapping[str, Any]]") -> str:
    """Return `begun`, `changing`, `committed`, `reverting`, `reverted`, `dropped` or `broken`."""
    state = "begun"
    for one in records:
        state = _STATES.get(one["kind"], state)
    return state


# ---- is it still that environment


def identity_of(prefix: str) -> "dict[str, Any]":
    """Return what tells an environment from another one at the same path: its folder's inode, and its pyvenv.cfg."""
    found = {"inode": None, "config": None, "written": None}  # type: dict[str, Any]
    try:
        found["inode"] = os.stat(prefix).st_ino
        path = os.path.join(prefix, "pyvenv.cfg")
        with open(path, "rb") as file:
            found["config"] = hashlib.sha256(file.read(1 << 20)).hexdigest()
        found["written"] = os.stat(path).st_mtime_ns
    except OSError:
        pass
    return found


def is_another(begin: "Mapping[str, Any]") -> bool:
    """Return whether the environment was made again since: what an apply took from the former one has no place in it."""
    before = begin.get("identity")
    return isinstance(before, dict) and before != identity_of(str(begin.get("prefix")))


def changed_since(begin: "Mapping[str, Any]", files: "Mapping[str, Any]", folders: "Sequence[str]") -> "list[str]":
    """Return, in words, what others did to the environment since the journal was written; `folders` are those of its packages."""
    out = []
    touched = [*(row[0] for row in begin.get("install", []) if row), *begin.get("remove", [])]
    names = {_normalized(str(one)) for one in touched}
    saved = {os.path.dirname(path) for path in files.get("save", [])}
    known = set(files.get("infos", [])) | {path for path in saved if path.endswith(".dist-info")}
    for folder in sorted(set(folders)):
        for entry in _names_in(folder):
            path = os.path.join(folder, entry)
            if entry.endswith(".dist-info") and _normalized(entry.partition("-")[0]) in names and path not in known and _names_in(path):
                out.append("{} was installed by something else meanwhile".format(entry[: -len(".dist-info")]))
    return out


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- files


def kind(path: str) -> "str | None":
    """Return `file`, `folder`, `link`, `other`, or None where nothing is; links are not followed."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def holds(path: str, roots: "Sequence[str]") -> bool:
    """Return whether a path is written plainly and lies below one of the roots."""
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        return False
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def leads_out(path: str, roots: "Sequence[str]") -> "str | None":
    """Return where a path really lies, if a link on the way to it leads out of the roots; None otherwise."""
    real = os.path.realpath(os.path.dirname(path))
    inside = [os.path.realpath(root) for root in roots]
    return None if any(real == root or real.startswith(root.rstrip("/") + "/") for root in inside) else real


class Caches:
    """The folders of compiled files, each listed once."""

    def __init__(self) -> None:
        self._listings = {}  # type: dict[str, dict[str, list[str]]]

    def of(self, path: str) -> "list[str]":
        """Return what lies compiled, or half compiled, for a module; nothing for another file."""
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
    """Yield the paths, and the compiled files of the modules among them that are there, listed or not."""
    caches = Caches()
    for path in paths:
        yield path
        for one in caches.of(path):
            if one.endswith(".pyc"):
                yield one


def half_made(paths: "Iterable[str]") -> "Iterator[str]":
    """Yield files that only somebody who was making one of these paths, or compiling it, can have left."""
    caches = Caches()
    for path in paths:
        if kind(path + UNFINISHED) is not None:
            yield path + UNFINISHED
        for one in caches.of(path):
            if _COMPILING.search(os.path.basename(one)):
                yield one


def temporary_folders(folders: "Iterable[str]") -> "Iterator[str]":
    """Yield folders beside the packages that are named as those in which uv makes a file that takes another's place."""
    for root in dict.fromkeys(folders):
        for name in _names_in(root):
            if _TEMPORARY.match(name) and len(name) == 10 and kind(root + "/" + name) == "folder":
                yield root + "/" + name


def put_back(files: "Mapping[str, Any]", folders: "Sequence[str]", *, finished: bool) -> "list[str]":
    """Remove what came and lay back what left; return what could not be done, in words. May be repeated after a kill.

    `files` is the record of a journal, its paths checked; `folders` are those of the environment's packages; `finished` says that the
    installer had come to its end.
    """
    left = []  # type: list[str]
    _remove_what_came(files, left)
    if not finished:
        _remove_leftovers(files, folders, left)
    caches = ["{}/__pycache__".format(one) for one in (*files["made"], *(os.path.dirname(path) for path in files["add"]))]
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


def _remove_what_came(files: "Mapping[str, Any]", left: "list[str]") -> None:
    kept = set(files["save"])
    for path in list(with_compiled(files["add"])):
        if path not in kept and kind(path) in ("file", "link"):
            _try(left, os.unlink, path)
    for info in [one for one in files["infos"] if kind(one) == "folder"]:  # a link leads to files of others
        for top, inner, names in os.walk(info, topdown=False):
            for name in names:
                if os.path.join(top, name) not in kept:
                    _try(left, os.unlink, os.path.join(top, name))
            for name in inner:
                _remove_empty(os.path.join(top, name))


def _remove_leftovers(files: "Mapping[str, Any]", folders: "Sequence[str]", left: "list[str]") -> None:
    """Remove what an installer that was killed had half made: known by the file that it was to become, never by its name alone."""
    for path in list(half_made(files["add"])):
        if path not in files["names"]:
            _try(left, os.unlink, path)
    if files["moved"]:
        return  # no tool wrote into the environment
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


# ---- as a program of its own


def checked(records: "Sequence[Mapping[str, Any]]", roots: "Sequence[str]", folder: str) -> "dict[str, Any] | None":
    """Return the `files` record with all of it looked at; None where nothing was written down, ValueError where it was not written so."""
    found = [one for one in records if one["kind"] == "files"]
    if not found:
        return None
    files = dict(found[-1])
    extra = [one.get("extra", []) for one in records if one["kind"] == "installed"]
    lists = [*(files.get(name) for name in ("save", "add", "infos", "made", "names")), *extra]
    if not all(isinstance(one, list) for one in lists) or not isinstance(files.get("modes"), dict):
        raise ValueError("what it says of files is not readable")
    for path in (path for some in (*lists, files["modes"]) for path in some):
        if not isinstance(path, str) or not holds(path, roots):
            raise ValueError("it names a path outside of the environment: {!r}".format(path)[:300])
    number = os.path.basename(folder)
    if not isinstance(files.get("store"), str) or not files["store"].endswith((number + "/saved", "/" + number)):
        raise ValueError("what it saved lies elsewhere")
    files["add"] = list(dict.fromkeys([*files["add"], *(path for some in extra for path in some)]))
    files["modes"] = {path: mode & 0o3777 for path, mode in files["modes"].items() if isinstance(mode, int)}
    files["moved"] = files.get("moved") is True
    return files


def detour_in(files: "Mapping[str, Any]", roots: "Sequence[str]") -> "str | None":
    """Return a path of a record to which a link leads out of the roots; None where there is none."""
    paths = (*files["save"], *files["add"], *files["infos"], *files["made"], *files["modes"])
    folders = {os.path.dirname(path): path for path in paths}
    return next((path for path in folders.values() if leads_out(path, roots)), None)


def unfinished() -> "Iterator[str]":
    """Yield the path of the `recover.py` of each apply of this user that did not come to its end."""
    home = os.environ.get("XDG_STATE_HOME", "")
    home = home if os.path.isabs(home) else os.path.expanduser("~/.local/state")
    root = os.path.join(home, "cudnn-resolve", "environments")
    for environment in sorted(_names_in(root)):
        for number in sorted(_names_in(os.path.join(root, environment))):
            program = os.path.join(root, environment, number, "recover.py")
            if _state_in(os.path.dirname(program)) in _OPEN and kind(program) == "file":
                yield program


def _state_in(folder: str) -> str:
    """Return the state of the journal in a folder, as `state_of` does; empty where there is none."""
    with contextlib.suppress(OSError), open(os.path.join(folder, JOURNAL), "rb") as file:
        return state_of(read_records(file.read())[0])
    return ""


def _append(folder: str, before: str, kind_: str, **values: object) -> str:
    body = json.dumps(
        dict(values, kind=kind_, at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())), separators=(",", ":"), sort_keys=True
    )
    found = next_sum(before, body)
    with open(os.path.join(folder, JOURNAL), "ab") as file:
        file.write("{} {}\n".format(found, body).encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    return found


def _system_words(records: "Sequence[Mapping[str, Any]]") -> "Iterator[str]":
    """Yield what is still to be done by hand, or by the program, for the packages of the system."""
    for one in records:
        if one["kind"] == "apt":
            rows = [*one.get("packages", []), *([name, *pair] for name, pair in one.get("along", {}).items())]
            old = ["{}={}".format(name, before) for name, _, before in rows if before]
            new = [str(name) for name, _, before in rows if not before]
            if old:
                yield "apt-get install --allow-downgrades --allow-change-held-packages " + " ".join(old)
            if new:
                yield "apt-get purge " + " ".join(new)
        elif one["kind"] == "cache":
            yield "rm -f /etc/ld.so.conf.d/cudnn-resolve.conf && ldconfig"


def _is_held(folders: "Sequence[str]") -> bool:
    """Take the lock that an apply takes, until this process ends; return whether somebody else has it."""
    try:
        handle = os.open(folders[0], os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, IndexError) as error:
        return getattr(error, "errno", None) in (errno.EWOULDBLOCK, errno.EACCES)
    return False


def _is_marked(folders: "Sequence[str]", folder: str) -> bool:
    """Return whether the environment is marked as one that this journal was changing."""
    for one in folders:
        with contextlib.suppress(OSError), open(os.path.join(one, MARK), "rb") as file:
            named = re.search(rb"^python3 (/.*)/recover\.py$", file.read(1 << 12), re.MULTILINE)
            if named and os.path.realpath(os.fsdecode(named.group(1))) == folder:
                return True
    return False


def _was_being_made(folder: str, prefix: str) -> bool:
    """Return whether the environment itself is of the apply that did not come to its end: then it goes as a whole."""
    try:
        with open(os.path.join(os.path.dirname(folder), "creation.json"), "rb") as file:
            told = json.loads(file.read().decode("utf-8"))
        with open(os.path.join(prefix, GUIDE), "rb") as file:
            is_that = told["inode"] == os.lstat(prefix).st_ino and str(told["token"]).encode() in file.read(1 << 20)
        if told["by"] is not None:
            return bool(is_that and told["is_leaving"] and str(told["by"]) == os.path.basename(folder).lstrip("0"))
        others = os.path.dirname(folder)
        return bool(is_that and not any(_state_in(os.path.join(others, name)) == "committed" for name in _names_in(others)))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _clear(prefix: str) -> "list[str]":
    """Remove what an environment consists of, and its folder where nothing else is in it; return what is."""
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
    """Put back what the journal beside this file was changing."""
    folder = os.path.dirname(os.path.realpath(__file__))
    try:
        with open(os.path.join(folder, JOURNAL), "rb") as file:
            content = file.read()
    except OSError as error:
        return _end(1, "the journal in {} cannot be read: {}".format(folder, error.strerror))
    records, before, size = read_records(content)
    if b"\n" in content[size:] or not records or records[0]["kind"] != "begin":
        return _end(1, "the journal in {} is not as it was written; nothing was changed".format(folder))
    begin, state = records[0], state_of(records)
    if state not in _OPEN and _is_marked(begin.get("packages", []), folder):
        return _end(1, "the end of the journal in {} is lost, and the environment is half changed; nothing was done".format(folder))
    if state not in _OPEN:
        return _end(0, "nothing to put back: this apply was {}".format(state))
    folders = begin.get("packages", [])
    try:
        files = checked(records, begin.get("roots", []), folder)
    except (ValueError, KeyError, TypeError) as error:
        return _end(1, "the journal in {} is not as it was written: {}; nothing was changed".format(folder, error))
    detour = None if files is None else detour_in(files, begin.get("roots", []))
    if detour is not None:
        return _end(1, "{} lies outside of the environment: a link leads there; nothing was changed".format(detour))
    if is_another(begin):
        what = "{} is another environment than the one that was being changed: it was made again".format(begin.get("prefix"))
        return _end(1, what, "nothing of that apply has a place in it; `cudnn-resolve apply --force ...` forgets it")
    reasons = changed_since(begin, files or {}, folders)
    if reasons and "--force" not in words:
        return _end(1, "refused, nothing was changed:", *reasons, "look at it; with --force everything is put back all the same")
    if _is_held(folders):
        return _end(1, "somebody is changing {} right now; nothing was done".format(begin.get("prefix")))
    with contextlib.suppress(OSError):  # a full disk must not stop the way back, which only moves and removes
        os.truncate(os.path.join(folder, JOURNAL), size)
        before = _append(folder, before, "revert", why="recover.py")
    left = [] if files is None else put_back(files, folders, finished=any(one["kind"] == "commit" for one in records))
    os.sync()
    return _finish(folder, before, records, left)


def _finish(folder: str, before: str, records: "Sequence[Mapping[str, Any]]", left: "list[str]") -> int:
    begin = records[0]
    if left:
        _append(folder, before, "left", what=left[:50])
        return _end(5, "could not be put back:", *left)
    for path in (*(os.path.join(one, MARK) for one in begin.get("packages", [])), os.path.join(os.path.dirname(folder), "at-work")):
        _try(left, os.unlink, path)
        _try(left, os.unlink, path + UNFINISHED)
    os.sync()
    system = list(_system_words(records))
    if system:
        print("The files of {} are as they were; the packages of the system are not.".format(begin.get("prefix")))
        return _end(5, "`cudnn-resolve apply --undo` puts them back, or, as root:", *system)
    _append(folder, before, "reverted")
    if _was_being_made(folder, str(begin.get("prefix"))):
        remains = _clear(str(begin.get("prefix")))
        said = ["what others put there stays: " + ", ".join(remains[:5])] if remains else []
        return _end(0, "{} was being made, and is gone".format(begin.get("prefix")), *said)
    return _end(0, "{} is as it was before apply number {}".format(begin.get("prefix"), begin.get("id")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
