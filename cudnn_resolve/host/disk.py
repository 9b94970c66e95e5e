"""Changes on the disk: moved, written whole, removed; each of them can be done again after a kill and then ends the same.

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
"""How names of files end that take their place only when they are whole."""
_CHUNK = 1 << 20
_NOBODY = ".cudnn-resolve-is-not-there"
_KINDS = {modes.S_IFREG: "file", modes.S_IFDIR: "folder", modes.S_IFLNK: "link"}


def kind(path: str) -> str | None:
    """What is at a path, a link not followed: `file`, `folder`, `link`, `other`, or None for nothing."""
    found = _seen(path)
    return _KINDS.get(modes.S_IFMT(found.st_mode), "other") if found else None


def _seen(path: str) -> os.stat_result | None:
    """What is at a path, a link not followed; None where nothing is, or it cannot be told."""
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def is_missing(path: str) -> bool:
    """True where there surely is nothing: a folder that may not be looked into tells nothing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def is_regular(path: str) -> bool:
    """True for a file, or a link that leads to one."""
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """True for a folder, or a link that leads to one."""
    return os.path.isdir(path)


def mode_of(path: str) -> int:
    """The permission bits of what is there; 0 where nothing is."""
    found = _seen(path)
    return modes.S_IMODE(found.st_mode) if found else 0


def size_of(path: str) -> int:
    """Bytes of a file, a link not followed; 0 where nothing is."""
    found = _seen(path)
    return found.st_size if found else 0


def state_of(path: str) -> tuple[int, ...]:
    """Numbers that change with whatever is written to a file (whose time of change no program sets); empty where nothing is."""
    found = _seen(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else ()


def make_folder(path: str, mode: int = 0o777) -> None:
    """Create a folder and those above it; WorldError where that is not possible."""
    with refused(path):
        os.makedirs(path, mode, exist_ok=True)


def missing_folders(path: str) -> tuple[str, ...]:
    """The folder, and those above it, that are not there; the innermost first."""
    out = []
    while path and not os.path.lexists(path):
        out.append(path)
        path = os.path.dirname(path)
    return tuple(out)


def move(source: str, target: str) -> None:
    """Move `source` to `target`, replacing what is there; across file systems it is copied, then removed.

    WorldError where that is not possible; then `source` is still there.
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
    beside = f"{target}{UNFINISHED}"
    try:
        if os.path.islink(source):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            os.symlink(os.readlink(source), beside)
        else:
            from shutil import copy2  # slow to import, as its neighbours: it brings three compressors along

            copy2(source, beside, follow_symlinks=False)
            with open(os.open(beside, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as copy:
                os.fsync(copy)
        os.rename(beside, target)
        sync_folder(os.path.dirname(target))
        os.unlink(source)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise refusal(error, target) from None


def move_tree(source: str, target: str, roots: Sequence[str]) -> None:
    """Move what is in the folder `source` into the folder `target`, among what is there; folders that are new move as they are.

    WorldError where something of another kind is in the way, or a link that leads out of the `roots`; what has been moved by then stays.
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
    """A file, a link, or a folder with all in it, also to another file system, or another mount of the same."""
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
    """True where a file of one folder can be renamed into the other: two mounts of one disk refuse that, too. Nothing is changed."""
    try:
        os.rename(f"{source}/{_NOBODY}", f"{target}/{_NOBODY}")
    except OSError as error:
        return error.errno == errno.ENOENT and os.path.isdir(source) and os.path.isdir(target)  # mounts are compared first
    return True


def remove(path: str) -> None:
    """Remove a file or link, if it is there; WorldError where it cannot be removed."""
    with refused(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_empty(path: str) -> bool:
    """True where the folder was empty and is gone now."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and all in it, if there is one; WorldError where that is not possible."""
    if kind(path) != "folder":
        return
    from shutil import rmtree

    try:
        rmtree(path)
    except FileNotFoundError:
        return
    except RecursionError:  # deeper than Python can go by itself
        for one in (*files_below(path), *folders_below(path)):
            (os.rmdir if os.path.isdir(one) and not os.path.islink(one) else os.unlink)(one)
        os.rmdir(path)
    except OSError as error:
        raise refusal(error, path) from None


def names_in(path: str) -> tuple[str, ...]:
    """Names in a folder; empty where there is no readable one."""
    try:
        return tuple(os.listdir(path))
    except OSError:
        return ()


def files_below(path: str) -> Iterator[str]:
    """Every file and link below a folder; links to folders are not gone into."""
    return (entry.path for entry in _entries_below(path) if not entry.is_dir(follow_symlinks=False))


def folders_below(path: str) -> Iterator[str]:
    """Every folder below a folder, inner ones first."""
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
    """Replace a file by this content, whole and synced; WorldError where it cannot be written, and what was there stays.

    What nobody asks for after a power failure need not be `synced`.
    """
    beside = f"{path}{UNFINISHED}"
    try:
        with refused(path):
            with open(beside, "wb") as file:
                file.write(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.replace(beside, path)
            if synced:
                sync_folder(os.path.dirname(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def append(path: str, content: bytes, *, synced: bool) -> None:
    """Append to a file, `synced` with all that was appended before; WorldError where it cannot be written."""
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
    """Cut a file off after `size` bytes, where a kill left half a line."""
    with refused(path):
        os.truncate(path, size)


def sync_folder(path: str) -> None:
    """Sync the names in a folder, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_file_systems(paths: Iterable[str]) -> None:
    """Write all that the file systems of these paths hold in memory to their disks (syncfs(2)); WorldError where a disk refuses.

    Installers do not sync what they lay down: without this a power failure leaves files that have a name and no content.
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
    """The hexadecimal digest of a file; WorldError where it cannot be read."""
    import hashlib

    found = hashlib.new(algorithm)
    with refused(path), open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            found.update(piece)
            if progress is not None:
                progress(len(piece))
    return found.hexdigest()


def copy_file(source: str, target: str) -> None:
    """Link `target` to the file, or copy it where the file system cannot link; WorldError where neither works."""
    from shutil import copyfile

    with refused(target):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        try:
            os.link(source, target)
        except OSError:
            copyfile(source, target)


def _existing(path: str) -> str:
    """The path, or the nearest folder above it that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def free_bytes(path: str) -> int:
    """Bytes that this user may still write on the file system of a path, or of the nearest folder above it that exists."""
    from shutil import disk_usage

    try:
        return disk_usage(_existing(path)).free
    except OSError:
        return 0


def own_bytes(path: str) -> int:
    """Bytes on the disk that removing a folder would give back: files that lie elsewhere, too, give nothing."""
    found = map(_seen, files_below(path))
    return sum(one.st_blocks * 512 for one in found if one is not None and one.st_nlink == 1)


def device_of(path: str) -> int | None:
    """The file system that a path is on, or that of the nearest folder above it that exists."""
    try:
        return os.stat(_existing(path)).st_dev
    except OSError:
        return None


def inode_of(path: str) -> int | None:
    """The number by which its file system knows a folder, links not followed; None where nothing is."""
    found = _seen(path)
    return found.st_ino if found else None


def writable(path: str) -> bool:
    """True where this user may make files in the folder, or in the nearest one above it that exists."""
    path = _existing(path)
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        return False
    try:
        return not os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        return False


def state_folder() -> str:
    """The folder for what this program must remember: below `XDG_STATE_HOME`, else below `~/.local/state`."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):  # the XDG base directory specification: a relative path counts as unset
        home = os.path.expanduser("~/.local/state")
    if not os.path.isabs(home):
        return f"/var/tmp/cudnn-resolve-{os.geteuid()}"  # noqa: S108 - `private_folder` refuses what belongs to others
    return os.path.join(home, "cudnn-resolve")


def private_folder(path: str) -> str:
    """The folder, made where it is missing, which only this user can change; WorldError where it belongs to another."""
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        refused = refusal(error, path)
        hint = "what is put back is kept there: set XDG_STATE_HOME to a folder that this user may write to"
        raise WorldError(refused.message, code=refused.code, hint=hint) from None
    refuse_foreign(path)
    return path


def refuse_foreign(path: str) -> None:
    """Reject a folder that others than this user can change: what it says is not believed. Raises WorldError."""
    found = _seen(path)
    if found is None:
        return
    if modes.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return
    if not modes.S_ISDIR(found.st_mode):
        help_ = "put a folder there"
    else:
        help_ = f"`chmod go-w {path}`" if found.st_uid == os.geteuid() else f"`chown` it to user {os.geteuid()}"
    raise WorldError(
        f"{path} is not a folder of this user alone",
        code="state-folder",
        context=path,
        hint=f"what is put back is kept there, and others could have changed it: look at it, then {help_}, "
        "or set XDG_STATE_HOME to a folder of yours",
    )


def content(path: str, limit_bytes: int) -> bytes | None:
    """The beginning of a file, a link not followed; None where there is no readable one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        try:
            size = os.fstat(handle).st_size  # a buffer of the whole limit costs more than the file; some files say 0
            return file.read(min(limit_bytes, size) if size else limit_bytes)
        except OSError:
            return None


def folder_here() -> str:
    """The folder that relative paths start from; `.` where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return "."


def go_to(path: str) -> bool:
    """True where relative paths start from that folder from now on."""
    try:
        os.chdir(path)
    except (OSError, ValueError):
        return False
    return True


def real(path: str) -> str:
    """The path with every link resolved, as far as it exists."""
    return os.path.realpath(path)


def is_root() -> bool:
    """True where this process is root."""
    return os.geteuid() == 0


@contextlib.contextmanager
def refused(path: str) -> Iterator[None]:
    """Raise what the system refuses inside as a WorldError that names the path."""
    try:
        yield
    except OSError as error:
        raise refusal(error, path) from None


def refusal(error: OSError, path: str) -> WorldError:
    """The error that says what the system refused, and what helps."""
    reason = error.strerror or str(error)
    code, hint = "system", None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        code, hint = "disk-full", "make room there and run it again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        code, hint = "permission", "use an environment that this user may change, such as one of `python -m venv`"
    return WorldError(f"{path}: {reason}", code=code, hint=hint)
