"""A bundle on the disk: a folder, or a tar file of one, in which a list of sums holds every byte.

`SHA256SUMS` is as sha256sum(1) reads it, in one form only, and its first line holds the sum of the others: a byte that is changed anywhere
is found. A tar file is compared with the one that would be written of the same files, header by header. Files lie in the folder itself or
one folder below, so that no name leads elsewhere; a link is no file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO

from msgspec import Struct

from cudnn_resolve.errors import CudnnResolveError, InputError, WorldError
from cudnn_resolve.host import disk
from cudnn_resolve.host.environment_lock import lock

SUMS = "SHA256SUMS"
WHEELS = "wheels"
_HEAD = "# cudnn-resolve bundle 1: sha256 of the lines below "
_NAME = r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,30}/)?[A-Za-z0-9][A-Za-z0-9._+!~%-]{0,230}"
_LINE = re.compile(rf"([0-9a-f]{{64}})  ({_NAME})")
_LARGEST_SUMS = 16 << 20
_PIECE = 1 << 20
_BLOCK = 512
"""Of a tar file."""
_TICK_NS = 2_000_000_000
"""The coarsest clock of a file system."""
_MOUNTS = "/proc/self/mountinfo"
_TIMED = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems with a time of change that no program sets: FAT, exFAT and most of those in user space have none."""
_ARRIVING = ".arriving-"
_FORGOTTEN_SECONDS = 24 * 3600.0
_LOCK = ".lock"
_LOCK_SECONDS = 60.0
_TAR_LOCK_SECONDS = 600.0
_TRIES = 10
Progress = Callable[[int], None]


class Kept(Struct, frozen=True, kw_only=True):
    """A file that a bundle lists."""

    name: str
    sha256: str
    size: int


def is_bundle(path: str) -> bool:
    """True for a folder with a list of sums, and for a tar file that begins with one."""
    if disk.is_folder(path):
        return disk.kind(f"{path}/{SUMS}") == "file"
    if not disk.is_regular(path):
        return False
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        return stream.read(len(SUMS) + 1) == f"{SUMS}\0".encode()
    return False


def bundle_of(lock: str | None) -> tuple[str, str | None] | None:
    """The bundle that the word for a lock leads into, and which of its locks is named; None where it leads into none."""
    if lock is None:
        return None
    if is_bundle(lock):
        return lock, None
    folder, _, name = lock.rpartition("/")
    with contextlib.suppress(InputError):
        if name in read_sums(folder or "."):
            return folder or ".", name
    return None


def read_sums(folder: str) -> dict[str, str]:
    """The digest of each file that the bundle lists; empty for a folder without a list. InputError where the list is not as written."""
    raw = disk.content(f"{folder}/{SUMS}", _LARGEST_SUMS + 1) if disk.kind(f"{folder}/{SUMS}") is not None else None
    return {} if raw is None else _parsed(raw, folder)


def _parsed(raw: bytes, where: str) -> dict[str, str]:
    lines = raw.decode("ascii", "replace").split("\n")
    found = [_LINE.fullmatch(line) for line in lines[1:-1]]
    sums = {match[2]: match[1] for match in found if match is not None}
    if len(raw) > _LARGEST_SUMS or None in found or SUMS in sums or _text(sums) != raw:
        raise damaged(where, f"its list {SUMS} is not as it was written")
    return sums


def _text(sums: Mapping[str, str]) -> bytes:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()
    return f"{_HEAD}{hashlib.sha256(lines).hexdigest()}\n".encode() + lines


def damaged(where: str, why: str) -> InputError:
    """The refusal of a bundle."""
    hint = "nothing was changed; copy the bundle again, or make it anew (`cudnn-resolve bundle`)"
    return InputError(f"the bundle is damaged: {why}", code="bundle-damaged", context=where, hint=hint)


def files_of(folder: str, sums: Mapping[str, str]) -> tuple[Kept, ...]:
    """The listed files with their sizes; InputError where one is missing, or is no file."""
    for name in sums:
        inside, _, base = name.rpartition("/")
        if (inside and disk.kind(f"{folder}/{inside}") != "folder") or disk.kind(f"{folder}/{name}") != "file":
            there = disk.kind(f"{folder}/{name}")
            raise damaged(folder, f"{name} is {'missing' if there is None or not base else 'no plain file'}")
    return tuple(Kept(name=name, sha256=digest, size=disk.size_of(f"{folder}/{name}")) for name, digest in sorted(sums.items()))


def verify(folder: str, files: Iterable[Kept], progress: Progress | None = None) -> None:
    """Read every file; InputError that names those which are not the listed ones."""

    def wrong(one: Kept) -> str | None:
        return None if disk.digest(f"{folder}/{one.name}", "sha256", progress) == one.sha256 else one.name

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        found = [name for name in threads.map(wrong, sorted(files, key=lambda one: -one.size)) if name is not None]
    if found:
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise damaged(folder, f"{', '.join(sorted(found)[:4])}{more} {'is' if len(found) == 1 else 'are'} not as written")


def verify_touched(folder: str, files: Sequence[Kept], progress: Progress | None = None) -> None:
    """As `verify`, but nothing is read where an earlier run of this user found every file as listed and none was written to since.

    Whoever writes to a file changes its time of change, which no program sets where the file system is known to keep one. What was changed
    moments ago is not remembered: it may change again within one tick of its clock.
    """
    from cudnn_resolve.host.tablecache import Copies
    from cudnn_resolve.host.user_folders import cache_folder

    cache = cache_folder() if _file_system(folder) in _TIMED else None
    if cache is None:
        return verify(folder, files, progress)
    memory, name = Copies(f"{cache}/bundles"), hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()
    state = _state(folder, files)
    found = hashlib.sha256(state).digest()
    if memory.load(name, state) == found:
        return None
    began = time.time_ns()
    verify(folder, files, progress)
    newest = max((disk.state_of(f"{folder}/{one.name}")[-1:] for one in files), default=())
    if newest < (began - _TICK_NS,) and _state(folder, files) == state:
        memory.keep(name, state, found)
    return None


def _file_system(folder: str) -> str:
    """The kind of file system that a folder lies on, `ext4`; empty where nothing tells."""
    path, found = f"{os.path.realpath(folder)}/", (0, "")
    for line in (disk.content(_MOUNTS, _LARGEST_SUMS) or b"").decode("utf-8", "surrogateescape").splitlines():
        mount, _, kind = line.partition(" - ")
        name = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount.split(" ", 5)[4] if mount.count(" ") > 3 else "-")
        point = f"{name.rstrip('/')}/"
        if path.startswith(point) and len(point) >= found[0]:  # of two at one place, the later lies on top
            found = len(point), kind.partition(" ")[0]
    return found[1]


def _state(folder: str, files: Iterable[Kept]) -> bytes:
    """What changes when one of the files, or what is listed of it, changes."""
    return "".join(f"{one.sha256} {one.name} {disk.state_of(f'{folder}/{one.name}')}\n" for one in files).encode()


def unlisted(folder: str, sums: Mapping[str, str]) -> tuple[str, ...]:
    """Files in the folder that the bundle does not list; what is on its way or a lock does not count."""
    names = (path[len(folder) + 1 :] for path in disk.files_below(folder))
    return tuple(
        sorted(name for name in names if name not in sums and name != SUMS and not any(part[0] == "." for part in name.split("/")))
    )


# ---- adding


def place(folder: str, name: str, content: bytes) -> str:
    """Put a file in its place at once; its digest."""
    os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
    with arriving(folder) as passing:
        path = f"{passing}/new"
        disk.write_whole(path, content)
        os.chmod(path, 0o644)
        os.replace(path, f"{folder}/{name}")
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def arriving(folder: str) -> Iterator[str]:
    """A folder of its own in the bundle, from which a file that is whole is renamed into its place."""
    with working(folder) as passing:
        try:
            yield passing
        except OSError as error:
            raise disk.refusal(error, str(error.filename or folder)) from None


@contextlib.contextmanager
def working(above: str) -> Iterator[str]:
    """An empty folder that is gone afterwards."""
    import tempfile

    with disk.refused(above):
        folder = tempfile.mkdtemp(prefix=_ARRIVING, dir=above)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _forget(above)


def safe(filename: str) -> str:
    """The name of a wheel, fit for the list; InputError for any other."""
    check_name(f"{WHEELS}/{filename}" if filename.endswith(".whl") else "/")
    return filename


def check_name(name: str) -> None:
    """Reject what the list cannot hold; raises InputError."""
    if not re.fullmatch(_NAME, name):
        raise InputError(f"{name[:80]!r} is not a name that a bundle can hold", code="bundle-name")


def own_pip() -> tuple[str, bytes] | None:
    """The name and content of the wheel of pip that comes with a Python; None where it has none, as Debian's."""
    import importlib.util
    import sysconfig

    found = importlib.util.find_spec("ensurepip")
    origin = os.path.dirname(found.origin or "") if found is not None else ""
    for folder in (f"{origin}/_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR") or "", "/usr/share/python-wheels"):
        for name in sorted(disk.names_in(folder), reverse=True) if folder else ():
            if re.fullmatch(r"pip-[0-9.]+-py3-none-any\.whl", name):
                with open(f"{folder}/{name}", "rb") as stream:
                    return name, stream.read()
    return None


def _forget(folder: str) -> None:
    """Remove what somebody who was killed left long ago."""
    for name in disk.names_in(folder):
        with contextlib.suppress(OSError):
            path = f"{folder}/{name}"
            if name.startswith(_ARRIVING) and time.time() - os.lstat(path).st_mtime > _FORGOTTEN_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def list_files(folder: str, new: Mapping[str, str], texts: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None) -> None:
    """Add files to the list, beside those that others add at the same time; `texts` makes further ones of what is listed before.

    Where the file system has no locks, the list is read again afterwards: what another writer left out of it is added once more.
    """
    with _locked(folder):
        more = texts(read_sums(folder)) if texts is not None else {}
        new = {**new, **{name: place(folder, name, text.encode()) for name, text in more.items()}}
        for _ in range(_TRIES):
            place(folder, SUMS, _text({**read_sums(folder), **new}))
            there = read_sums(folder)
            if all(there.get(name) == digest for name, digest in new.items()):
                return
    raise damaged(folder, f"{SUMS} could not be written beside others")


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Alone with the list, as far as the file system has locks (NFS has them of files that are open for writing, and of no folders)."""
    with disk.refused(folder):
        handle = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        lock(handle, _LOCK_SECONDS)
        yield
    finally:
        os.close(handle)


# ---- one file


@contextlib.contextmanager
def alone_with(path: str, tell: Callable[[str], None]) -> Iterator[tuple[int, ...] | None]:
    """Alone with a tar file while it is read and replaced; which file it is, None for one that is not there yet.

    Whoever was alone with it before has put another file in its place, which then is the one to lock. `tell` hears what is waited for.
    WorldError where that takes too long.
    """
    handle: int | None = None
    try:
        while disk.kind(path) is not None:
            with disk.refused(path):
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            if lock(handle, 0.0) is False:
                tell(f"{path} is being written by somebody else: waiting for at most {_TAR_LOCK_SECONDS / 60:.0f} minutes")
                if lock(handle, _TAR_LOCK_SECONDS) is False:
                    raise WorldError(f"somebody else is writing {path}", code="bundle-busy", hint="nothing was changed; run it again later")
            held = os.fstat(handle)
            if _which(path) == (held.st_dev, held.st_ino, held.st_size, held.st_mtime_ns):
                break
            os.close(handle)
            handle = None
        yield _which(path)
    finally:
        if handle is not None:
            os.close(handle)


def _which(path: str) -> tuple[int, ...] | None:
    """File system, inode, size and time of a file; None where there is none."""
    return disk.state_of(path)[:4] or None


def pack(folder: str, path: str, replaced: tuple[int, ...] | None = None) -> None:
    """Write the listed files of a folder as one tar file, the list first: whole, or not at all.

    `replaced` is the file that is there. WorldError where another one is there by now: on a file system without locks, too, nobody's
    files are lost.
    """
    import tempfile

    sums = read_sums(folder)
    with disk.refused(path):
        handle, passing = tempfile.mkstemp(prefix=_ARRIVING, dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as out:
            for one in (Kept(name=SUMS, sha256="", size=disk.size_of(f"{folder}/{SUMS}")), *files_of(folder, sums)):
                out.write(_header(one.name, one.size))
                with open(f"{folder}/{one.name}", "rb") as stream:
                    shutil.copyfileobj(stream, out, _PIECE)
                out.write(bytes(-one.size % _BLOCK))
            out.write(bytes(2 * _BLOCK))
            os.fsync(out.fileno())
        os.chmod(passing, 0o644)
        if _which(path) != replaced:
            hint = "nothing was changed; run it again, with --add"
            raise WorldError(f"somebody else has written {path} meanwhile", code="bundle-busy", hint=hint)
        os.replace(passing, path)
    except OSError as error:
        raise disk.refusal(error, path) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(passing)


def _header(name: str, size: int) -> bytes:
    import tarfile  # only a bundle in one file needs it

    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.GNU_FORMAT)


def unpack(path: str, folder: str, progress: Progress | None = None) -> None:
    """Lay the files of a tar file into an empty folder, each verified while it is written; InputError where one byte is not as it was."""
    try:
        if os.stat(path).st_size > disk.free_bytes(folder):
            hint = "make room there, or set XDG_STATE_HOME to a folder on a larger disk"
            raise CudnnResolveError("there is no room to unpack the bundle", code="disk-full", context=folder, hint=hint)
        with open(path, "rb") as stream:
            raw = _member(stream, SUMS, path, _LARGEST_SUMS)
            list_text = stream.read(raw)
            _padding(stream, raw, path)
            sums = _parsed(list_text, path)
            for name, digest in sorted(sums.items()):
                size = _member(stream, name, path, os.stat(path).st_size)
                if _copied(stream, size, f"{folder}/{name}", progress) != digest:
                    raise damaged(path, f"{name} is not as written")
                _padding(stream, size, path)
            if stream.read(2 * _BLOCK + 1) != bytes(2 * _BLOCK):
                raise damaged(path, "its end is not as written")
        disk.write_whole(f"{folder}/{SUMS}", list_text)
    except OSError as error:
        raise disk.refusal(error, str(error.filename or path)) from None


def _member(stream: IO[bytes], name: str, path: str, largest: int) -> int:
    """The size of the next member, which must be the file of that name."""
    import tarfile

    expected = len(_header(name, 0)) - _BLOCK
    before, raw = stream.read(expected), stream.read(_BLOCK)
    try:
        size = tarfile.TarInfo.frombuf(raw, "utf-8", "surrogateescape").size
    except tarfile.TarError:
        size = -1
    if not 0 <= size <= largest or before + raw != _header(name, size):
        raise damaged(path, f"{name} is not where it was written")
    return size


def _padding(stream: IO[bytes], size: int, path: str) -> None:
    if any(stream.read(-size % _BLOCK)):
        raise damaged(path, "it holds what was not written")


def _copied(stream: IO[bytes], size: int, target: str, progress: Progress | None) -> str:
    made = hashlib.sha256()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "xb") as out:
        while size > 0 and (piece := stream.read(min(size, _PIECE))):
            out.write(piece)
            made.update(piece)
            if progress is not None:
                progress(len(piece))
            size -= len(piece)
    return made.hexdigest()
