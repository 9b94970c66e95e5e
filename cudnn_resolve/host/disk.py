"""Changes on the disk: files moved, written whole, removed. Each can be repeated after a kill and then has the same result.

Nothing here follows a symbolic link in the last part of a path, and nothing is deleted that is not named.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Sequence

from cudnn_resolve.errors import WorldError

UNFINISHED = ".cudnn-resolve-new"
"""Suffix of files that take their final name only when they are whole."""
_CHUNK = 1 << 20
_MISSING_NAME = ".cudnn-resolve-is-not-there"
_KINDS = {modes.S_IFREG: "file", modes.S_IFDIR: "folder", modes.S_IFLNK: "link"}


def kind(path: str) -> str | None:
    """Kind of a path, a link not followed: `file`, `folder`, `link` or `other`; None if nothing is there."""
    found = _lstat(path)
    return _KINDS.get(modes.S_IFMT(found.st_mode), "other") if found else None


def _lstat(path: str) -> os.stat_result | None:
    """Status of a path, a link not followed; None if nothing is there, or it cannot be read."""
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def is_missing(path: str) -> bool:
    """Whether a path surely does not exist: in a folder that may not be entered it might."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def is_regular(path: str) -> bool:
    """Whether a path is a file, or a link to one."""
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Whether a path is a folder, or a link to one."""
    return os.path.isdir(path)


def mode_of(path: str) -> int:
    """Permission bits of a path; 0 if nothing is there."""
    found = _lstat(path)
    return modes.S_IMODE(found.st_mode) if found else 0


def size_of(path: str) -> int:
    """Size of a file in bytes, a link not followed; 0 if nothing is there."""
    found = _lstat(path)
    return found.st_size if found else 0


def state_of(path: str) -> tuple[int, ...]:
    """Device, inode, size, mtime and ctime of a file; empty if it is missing.

    They change with every write: no program can set the ctime.
    """
    found = _lstat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else ()


def make_folder(path: str, mode: int = 0o777) -> None:
    """Create a folder and its parents; raise WorldError if that fails."""
    with refused(path):
        os.makedirs(path, mode, exist_ok=True)


def missing_folders(path: str) -> tuple[str, ...]:
    """The folder and those of its parents that do not exist, innermost first."""
    out = []
    while path and not os.path.lexists(path):
        out.append(path)
        path = os.path.dirname(path)
    return tuple(out)


def move(source: str, target: str) -> None:
    """Move `source` to `target`, replacing what is there; across file systems, copy and then remove.

    Raise WorldError if that fails; `source` is still there then.
    """
    try:
        try:
            os.rename(source, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise refusal(error, target) from None
        _move_across(source, target)


def _move_across(source: str, target: str) -> None:
    temporary = f"{target}{UNFINISHED}"
    try:
        if os.path.islink(source):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            os.symlink(os.readlink(source), temporary)
        else:
            from shutil import copy2  # slow to import, as the others below: it brings three compressors along

            copy2(source, temporary, follow_symlinks=False)
            with open(os.open(temporary, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as copy:
                os.fsync(copy)
        os.rename(temporary, target)
        sync_folder(os.path.dirname(target))
        os.unlink(source)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise refusal(error, target) from None


def move_tree(source: str, target: str, roots: Sequence[str]) -> None:
    """Merge the folder `source` into the folder `target`; folders that are new are moved whole.

    Raise WorldError if something of another kind is in the way, or a link that leads out of the `roots`; what was moved before stays.
    """
    inside = tuple(f"{os.path.realpath(root).rstrip('/')}/" for root in roots)
    waiting = [(source, target)]
    try:
        while waiting:
            folder, into = waiting.pop()
            with os.scandir(folder) as entries:
                found = list(entries)
            for entry in found:
                place = f"{into}/{entry.name}"
                if not (entry.is_dir(follow_symlinks=False) and os.path.isdir(place)):
                    _move_entry(entry.path, place)
                    continue
                if os.path.islink(place) and not f"{os.path.realpath(place)}/".startswith(inside):
                    raise WorldError(f"{place} is a link that leads out of the environment", code="link-outside")
                waiting.append((entry.path, place))
    except OSError as error:
        raise refusal(error, str(error.filename2 or target)) from None


def _move_entry(source: str, target: str) -> None:
    """Move a file, a link, or a folder with its content, also to another file system or another mount of the same."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if os.path.isdir(source) and not os.path.islink(source):
            os.mkdir(target)
            for name in os.listdir(source):
                _move_entry(f"{source}/{name}", f"{target}/{name}")
        else:
            _move_across(source, target)


def can_rename(source: str, target: str) -> bool:
    """Whether files can be renamed from one folder to the other, which two mounts of one disk refuse, too. Nothing is changed."""
    try:
        os.rename(f"{source}/{_MISSING_NAME}", f"{target}/{_MISSING_NAME}")
    except OSError as error:
        return error.errno == errno.ENOENT and os.path.isdir(source) and os.path.isdir(target)  # mounts are compared before the file
    return True


def remove(path: str) -> None:
    """Remove a file or link if it exists; raise WorldError if that fails."""
    with refused(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_empty(path: str) -> bool:
    """Remove a folder if it is empty; whether it was removed."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and its content if it exists; raise WorldError if that fails."""
    if kind(path) != "folder":
        return
    from shutil import rmtree

    try:
        rmtree(path)
    except FileNotFoundError:
        return
    except RecursionError:  # nested deeper than Python's recursion limit
        for inner in (*files_below(path), *folders_below(path)):
            (os.rmdir if os.path.isdir(inner) and not os.path.islink(inner) else os.unlink)(inner)
        os.rmdir(path)
    except OSError as error:
        raise refusal(error, path) from None


def names_in(path: str) -> tuple[str, ...]:
    """Names in a folder; empty if it cannot be read."""
    try:
        return tuple(os.listdir(path))
    except OSError:
        return ()


def files_below(path: str) -> Iterator[str]:
    """Files and links below a folder, recursively; links to folders are not followed."""
    return (entry.path for entry in _entries_below(path) if not entry.is_dir(follow_symlinks=False))


def folders_below(path: str) -> Iterator[str]:
    """Folders below a folder, innermost first."""
    return reversed([entry.path for entry in _entries_below(path) if entry.is_dir(follow_symlinks=False)])


def _entries_below(path: str) -> Iterator[os.DirEntry[str]]:
    waiting = [path]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                entries = list(found)
        except OSError:
            continue
        waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from entries


def write_whole(path: str, content: bytes, *, synced: bool = True) -> None:
    """Replace a file atomically and sync it; raise WorldError if that fails, leaving the old content in place.

    `synced=False` is for content that nobody needs after a power failure.
    """
    temporary = f"{path}{UNFINISHED}"
    try:
        with refused(path):
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if synced:
                sync_folder(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def append(path: str, content: bytes, *, synced: bool) -> None:
    """Append to a file; `synced` also syncs what was appended before. Raise WorldError if that fails."""
    with refused(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while content:
                content = content[os.write(handle, content) :]
            if synced:
                os.fsync(handle)
        finally:
            os.close(handle)


def cut(path: str, size: int) -> None:
    """Truncate a file, to remove half a line that a kill left."""
    with refused(path):
        os.truncate(path, size)


def sync_folder(path: str) -> None:
    """Sync the entries of a folder, if the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_file_systems(paths: Iterable[str]) -> None:
    """Flush the file systems of these paths to disk (syncfs(2)); raise WorldError if a disk refuses.

    Installers do not sync what they write: without this, a power failure leaves files that have a name and no content.
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    done: set[int | None] = set()
    for path in paths:
        device = device_of(path)
        if device in done or not os.path.isdir(path):
            continue
        done.add(device)
        with refused(path):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if library.syncfs(handle) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            finally:
                os.close(handle)


def digest(path: str, algorithm: str, progress: Callable[[int], None] | None = None) -> str:
    """Hexadecimal digest of a file; raise WorldError if it cannot be read."""
    import hashlib

    found = hashlib.new(algorithm)
    with refused(path), open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            found.update(piece)
            if progress is not None:
                progress(len(piece))
    return found.hexdigest()


def copy_file(source: str, target: str) -> None:
    """Hard-link `target` to the file, or copy it if the file system cannot link; raise WorldError if neither works."""
    from shutil import copyfile

    with refused(target):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        try:
            os.link(source, target)
        except OSError:
            copyfile(source, target)


def _nearest_existing(path: str) -> str:
    """The path itself, or its nearest parent that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def free_bytes(path: str) -> int:
    """Bytes that this user may still write on the file system of a path, which need not exist yet."""
    from shutil import disk_usage

    try:
        return disk_usage(_nearest_existing(path)).free
    except OSError:
        return 0


def own_bytes(path: str) -> int:
    """Bytes on the disk that removing a folder frees: files with hard links elsewhere free nothing."""
    found = map(_lstat, files_below(path))
    return sum(file.st_blocks * 512 for file in found if file is not None and file.st_nlink == 1)


def device_of(path: str) -> int | None:
    """Number of the file system of a path, which need not exist yet."""
    try:
        return os.stat(_nearest_existing(path)).st_dev
    except OSError:
        return None


def inode_of(path: str) -> int | None:
    """Inode number, links not followed; None if nothing is there."""
    found = _lstat(path)
    return found.st_ino if found else None


def writable(path: str) -> bool:
    """Whether this user can create files in a folder, or in its nearest parent that exists."""
    path = _nearest_existing(path)
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        return False
    try:
        return not os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        return False


def content(path: str, limit_bytes: int) -> bytes | None:
    """Beginning of a file, a link not followed; None if there is no readable file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        try:
            size = os.fstat(handle).st_size  # a buffer of the whole limit costs more than the file; kernel files report 0
            return file.read(min(limit_bytes, size) if size else limit_bytes)
        except OSError:
            return None


def folder_here() -> str:
    """Current working directory; `.` if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return "."


def go_to(path: str) -> bool:
    """Change the working directory; whether that worked."""
    try:
        os.chdir(path)
    except (OSError, ValueError):
        return False
    return True


def real(path: str) -> str:
    """A path with every symbolic link resolved, as far as it exists."""
    return os.path.realpath(path)


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0


@contextlib.contextmanager
def refused(path: str) -> Iterator[None]:
    """Raise an OSError inside as a WorldError that names the path."""
    try:
        yield
    except OSError as error:
        raise refusal(error, path) from None


def refusal(error: OSError, path: str) -> WorldError:
    """WorldError for an OSError: what the system refused, and what helps."""
    reason = error.strerror or str(error)
    code, hint = "system", None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        code, hint = "disk-full", "make room there and run it again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        code, hint = "permission", "use an environment that this user can change, for example one made by `python -m venv`"
    return WorldError(f"{path}: {reason}", code=code, hint=hint)
