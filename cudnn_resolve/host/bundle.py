"""A bundle on disk: a folder, or a tar file of one, in which a list of checksums covers every byte.

`SHA256SUMS` is written as sha256sum(1) reads it, in one canonical form, and its first line holds the checksum of the others: any changed
byte is found. Files lie in the folder itself or one folder below, so that no name leads elsewhere; links do not count as files.
`bundle_tar` reads and writes the tar file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from cudnn_resolve.errors import InputError, first_few
from cudnn_resolve.host import disk
from cudnn_resolve.host.environment_mutex import lock

SUMS = "SHA256SUMS"
WHEELS = "wheels"
_HEAD = "# cudnn-resolve bundle 1: sha256 of the lines below "
_NAME = r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,30}/)?[A-Za-z0-9][A-Za-z0-9._+!~%-]{0,230}"
_LINE = re.compile(rf"([0-9a-f]{{64}})  ({_NAME})")
LARGEST_LIST = 16 << 20
_TICK_NS = 2_000_000_000
"""Resolution of the coarsest clock of a file system."""
_MOUNTS = "/proc/self/mountinfo"
_LARGEST_MOUNTS = 16 << 20
_WITH_CTIME = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems with a ctime, which no program can set: FAT, exFAT and most file systems in user space have none."""
TEMPORARY_PREFIX = ".arriving-"
_ABANDONED_SECONDS = 24 * 3600.0
_LOCK = ".lock"
_LOCK_SECONDS = 60.0
_MOST_TRIES = 10
Progress = Callable[[int], None]


class BundledFile(Struct, frozen=True, kw_only=True):
    """A file in a bundle."""

    name: str
    sha256: str
    bytes: int


def is_bundle(path: str) -> bool:
    """Whether a path is a folder with a list of checksums, or a tar file that begins with one."""
    if disk.is_folder(path):
        return disk.kind(f"{path}/{SUMS}") == "file"
    if not disk.is_regular(path):
        return False
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        return stream.read(len(SUMS) + 1) == f"{SUMS}\0".encode()
    return False


def bundle_of(lock: str | None) -> tuple[str, str | None] | None:
    """Bundle that the path of a lock leads into, and the lock in it that is named, if any; None if it leads into no bundle."""
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
    """Digests of the listed files; empty for a folder without a list. Raise InputError if the list was changed."""
    raw = disk.content(f"{folder}/{SUMS}", LARGEST_LIST + 1) if disk.kind(f"{folder}/{SUMS}") is not None else None
    return {} if raw is None else parse_list(raw, folder)


def parse_list(raw: bytes, where: str) -> dict[str, str]:
    """Digests of the files in a list; raise InputError, with `where` as context, if it was changed."""
    lines = raw.decode("ascii", "replace").split("\n")
    matches = [_LINE.fullmatch(line) for line in lines[1:-1]]
    sums = {match[2]: match[1] for match in matches if match is not None}
    if len(raw) > LARGEST_LIST or None in matches or SUMS in sums or _list_text(sums) != raw:
        raise damaged(where, f"its list {SUMS} was changed")
    return sums


def _list_text(sums: Mapping[str, str]) -> bytes:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()
    return f"{_HEAD}{hashlib.sha256(lines).hexdigest()}\n".encode() + lines


def damaged(where: str, why: str) -> InputError:
    """Error for a bundle that is damaged."""
    hint = "nothing was changed; copy the bundle again, or make a new one (`cudnn-resolve bundle`)"
    return InputError(f"the bundle is damaged: {why}", code="bundle-damaged", context=where, hint=hint)


def files_of(folder: str, sums: Mapping[str, str]) -> tuple[BundledFile, ...]:
    """The listed files with their sizes; raise InputError if one is missing, or is not a regular file."""
    for name in sums:
        subfolder = name.rpartition("/")[0]
        kind = disk.kind(f"{folder}/{name}")
        if kind != "file" or (subfolder and disk.kind(f"{folder}/{subfolder}") != "folder"):
            raise damaged(folder, f"{name} is {'missing' if kind is None else 'not a regular file'}")
    return tuple(BundledFile(name=name, sha256=digest, bytes=disk.size_of(f"{folder}/{name}")) for name, digest in sorted(sums.items()))


def has_digest(path: str, algorithm: str, digest: str) -> bool:
    """Whether there is a regular file with that digest."""
    return disk.kind(path) == "file" and disk.digest(path, algorithm) == digest


def verify(folder: str, files: Iterable[BundledFile], progress: Progress | None = None) -> None:
    """Read every file; raise InputError that names those with another digest."""

    def is_changed(file: BundledFile) -> bool:
        return disk.digest(f"{folder}/{file.name}", "sha256", progress) != file.sha256

    from concurrent.futures import ThreadPoolExecutor

    largest_first = sorted(files, key=lambda file: -file.bytes)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        changed = [file.name for file, is_bad in zip(largest_first, threads.map(is_changed, largest_first), strict=True) if is_bad]
    if changed:
        raise damaged(folder, f"{first_few(sorted(changed), 4)} {'does' if len(changed) == 1 else 'do'} not match {SUMS}")


def verify_touched(folder: str, files: Sequence[BundledFile], progress: Progress | None = None) -> None:
    """As `verify`, but skip the reading if an earlier run of this user found every file as listed and none was written to since.

    Every write changes a file's ctime, which no program can set if the file system is known to keep one. A file that changed moments ago
    is not remembered: it may change again within one tick of the clock.
    """
    from cudnn_resolve.host.tablecache import Copies
    from cudnn_resolve.host.user_folders import cache_folder

    cache = cache_folder() if _file_system(folder) in _WITH_CTIME else None
    if cache is None:
        verify(folder, files, progress)
        return
    verified = Copies(f"{cache}/bundles")
    key = hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()
    state = _state(folder, files)
    digest = hashlib.sha256(state).digest()
    if verified.load(key, state) == digest:
        return
    began = time.time_ns()
    verify(folder, files, progress)
    newest = max((disk.state_of(f"{folder}/{file.name}")[-1:] for file in files), default=())
    if newest < (began - _TICK_NS,) and _state(folder, files) == state:
        verified.keep(key, state, digest)


def _file_system(folder: str) -> str:
    """Type of the file system of a folder, `ext4`; empty if unknown. Source of the format: proc(5), mountinfo."""
    path = f"{os.path.realpath(folder)}/"
    longest, file_system = 0, ""
    for line in (disk.content(_MOUNTS, _LARGEST_MOUNTS) or b"").decode("utf-8", "surrogateescape").splitlines():
        mount, _, kind = line.partition(" - ")
        fields = mount.split(" ", 5)
        name = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]) if len(fields) > 4 else "-"
        point = f"{name.rstrip('/')}/"
        if path.startswith(point) and len(point) >= longest:  # of two mounts at one place, the later one is on top
            longest, file_system = len(point), kind.partition(" ")[0]
    return file_system


def _state(folder: str, files: Iterable[BundledFile]) -> bytes:
    """Text that changes with the files and with what is listed of them."""
    return "".join(f"{file.sha256} {file.name} {disk.state_of(f'{folder}/{file.name}')}\n" for file in files).encode()


def unlisted(folder: str, sums: Mapping[str, str]) -> tuple[str, ...]:
    """Files in the folder that the bundle does not list, except for hidden ones: locks, and files that are being added."""
    names = (path[len(folder) + 1 :] for path in disk.files_below(folder))
    return tuple(
        sorted(name for name in names if name not in sums and name != SUMS and not any(part[0] == "." for part in name.split("/")))
    )


# ---- adding


def place(folder: str, name: str, content: bytes) -> str:
    """Write a file atomically and return its digest."""
    os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
    with staging_folder(folder) as staging:
        path = f"{staging}/new"
        disk.write_whole(path, content)
        os.chmod(path, 0o644)
        os.replace(path, f"{folder}/{name}")
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def staging_folder(folder: str) -> Iterator[str]:
    """Temporary folder in the bundle, from which complete files are renamed into place; raise an OSError inside as WorldError."""
    with temporary_folder(folder) as staging:
        try:
            yield staging
        except OSError as error:
            raise disk.refusal(error, str(error.filename or folder)) from None


@contextlib.contextmanager
def temporary_folder(parent: str) -> Iterator[str]:
    """Empty folder that is removed afterwards, with those that killed processes have left."""
    import tempfile

    with disk.refused(parent):
        folder = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _remove_abandoned(parent)


def _remove_abandoned(folder: str) -> None:
    for name in disk.names_in(folder):
        with contextlib.suppress(OSError):
            path = f"{folder}/{name}"
            if name.startswith(TEMPORARY_PREFIX) and time.time() - os.lstat(path).st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def wheel_name(filename: str) -> str:
    """The name of a wheel; raise InputError if the list cannot hold it."""
    check_name(f"{WHEELS}/{filename}" if filename.endswith(".whl") else "/")
    return filename


def check_name(name: str) -> None:
    """Reject a name that the list cannot hold; raises InputError."""
    if not re.fullmatch(_NAME, name):
        raise InputError(f"{name[:80]!r} is not a name that a bundle can hold", code="bundle-name")


def own_pip() -> tuple[str, bytes] | None:
    """Name and content of the pip wheel that comes with this Python; None if it has none, as Debian's."""
    import importlib.util
    import sysconfig

    spec = importlib.util.find_spec("ensurepip")
    origin = os.path.dirname(spec.origin or "") if spec is not None else ""
    for folder in (f"{origin}/_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR") or "", "/usr/share/python-wheels"):
        for name in sorted(disk.names_in(folder), reverse=True) if folder else ():
            if re.fullmatch(r"pip-[0-9.]+-py3-none-any\.whl", name):
                with open(f"{folder}/{name}", "rb") as stream:
                    return name, stream.read()
    return None


def add_to_list(folder: str, new: Mapping[str, str], texts: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None) -> None:
    """Add files with their digests to the list, while others may do the same; `texts` writes further files from what is listed so far.

    Without locks on the file system, another writer may drop entries: the list is read again, and what is missing is added once more.
    """
    with _list_lock(folder):
        more = texts(read_sums(folder)) if texts is not None else {}
        new = {**new, **{name: place(folder, name, text.encode()) for name, text in more.items()}}
        for _ in range(_MOST_TRIES):
            place(folder, SUMS, _list_text({**read_sums(folder), **new}))
            listed = read_sums(folder)
            if all(listed.get(name) == digest for name, digest in new.items()):
                return
    raise damaged(folder, f"{SUMS} could not be written: other processes keep replacing it")


@contextlib.contextmanager
def _list_lock(folder: str) -> Iterator[None]:
    """Hold the lock of the list, if the file system has locks; NFS has them for files that are open for writing, not for folders."""
    with disk.refused(folder):
        handle = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        lock(handle, _LOCK_SECONDS)
        yield
    finally:
        os.close(handle)
