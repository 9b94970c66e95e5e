"""A bundle in one tar file: written and read in the only form that it can have.

Each header is compared with the one that would be written for the same file, so that a changed byte is found wherever it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from typing import IO

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.host import disk
from cudnn_resolve.host.bundle import LARGEST_LIST, SUMS, TEMPORARY_PREFIX, BundledFile, Progress, damaged, files_of, parse_list, read_sums
from cudnn_resolve.host.environment_mutex import lock

_CHUNK = 1 << 20
_BLOCK = 512
"""Size of a block of a tar file in bytes."""
_LOCK_SECONDS = 600.0


@contextlib.contextmanager
def locked_tar(path: str, tell: Callable[[str], None]) -> Iterator[tuple[int, ...] | None]:
    """Lock a tar file while it is read and replaced; yields its identity, None if it does not exist yet.

    A previous holder of the lock has put another file in its place, which is then locked instead. `tell` is called before a wait.
    Raise WorldError if that takes too long.
    """
    handle: int | None = None
    try:
        while disk.kind(path) is not None:
            with disk.refused(path):
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            if lock(handle, 0.0) is False:
                tell(f"another process is writing {path}: waiting for at most {_LOCK_SECONDS / 60:.0f} minutes")
                if lock(handle, _LOCK_SECONDS) is False:
                    hint = "nothing was changed; run it again later"
                    raise WorldError(f"another process is still writing {path}", code="bundle-busy", hint=hint)
            locked = os.fstat(handle)
            if _identity(path) == (locked.st_dev, locked.st_ino, locked.st_size, locked.st_mtime_ns):
                break
            os.close(handle)
            handle = None
        yield _identity(path)
    finally:
        if handle is not None:
            os.close(handle)


def _identity(path: str) -> tuple[int, ...] | None:
    """File system, inode, size and time of a file; None if there is none."""
    return disk.state_of(path)[:4] or None


def pack(folder: str, path: str, replaced: tuple[int, ...] | None = None) -> None:
    """Write the listed files of a folder as one tar file, the list first, whole or not at all.

    `replaced` is the identity of the file that is there. Raise WorldError if there is another one by now: also on a file system without
    locks nobody's files are lost.
    """
    import tempfile

    sums = read_sums(folder)
    with disk.refused(path):
        handle, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as out:
            for file in (BundledFile(name=SUMS, sha256="", bytes=disk.size_of(f"{folder}/{SUMS}")), *files_of(folder, sums)):
                out.write(_header(file.name, file.bytes))
                with open(f"{folder}/{file.name}", "rb") as stream:
                    shutil.copyfileobj(stream, out, _CHUNK)
                out.write(bytes(-file.bytes % _BLOCK))
            out.write(bytes(2 * _BLOCK))
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        if _identity(path) != replaced:
            hint = "nothing was changed; run it again, with --add"
            raise WorldError(f"another process has written {path} meanwhile", code="bundle-busy", hint=hint)
        os.replace(temporary, path)
    except OSError as error:
        raise disk.refusal(error, path) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.GNU_FORMAT)


def unpack(path: str, folder: str, progress: Progress | None = None) -> None:
    """Unpack a tar file into an empty folder, verifying each file while it is written; raise InputError if any byte was changed."""
    try:
        if os.stat(path).st_size > disk.free_bytes(folder):
            hint = "make room there, or set XDG_STATE_HOME to a folder on a larger disk"
            raise CudnnResolveError("there is no room to unpack the bundle", code="disk-full", context=folder, hint=hint)
        with open(path, "rb") as stream:
            size = _member_size(stream, SUMS, path, LARGEST_LIST)
            list_text = stream.read(size)
            _skip_padding(stream, size, path)
            sums = parse_list(list_text, path)
            for name, digest in sorted(sums.items()):
                size = _member_size(stream, name, path, os.stat(path).st_size)
                if _copy(stream, size, f"{folder}/{name}", progress) != digest:
                    raise damaged(path, f"{name} does not match {SUMS}")
                _skip_padding(stream, size, path)
            if stream.read(2 * _BLOCK + 1) != bytes(2 * _BLOCK):
                raise damaged(path, "its end was changed")
        disk.write_whole(f"{folder}/{SUMS}", list_text)
    except OSError as error:
        raise disk.refusal(error, str(error.filename or path)) from None


def _member_size(stream: IO[bytes], name: str, path: str, largest: int) -> int:
    """Size of the next member, which must be the file of that name."""
    expected = len(_header(name, 0)) - _BLOCK
    before, raw = stream.read(expected), stream.read(_BLOCK)
    try:
        size = tarfile.TarInfo.frombuf(raw, "utf-8", "surrogateescape").size
    except tarfile.TarError:
        size = -1
    if not 0 <= size <= largest or before + raw != _header(name, size):
        raise damaged(path, f"{name} is not where it belongs")
    return size


def _skip_padding(stream: IO[bytes], size: int, path: str) -> None:
    if any(stream.read(-size % _BLOCK)):
        raise damaged(path, "the padding between its files was changed")


def _copy(stream: IO[bytes], size: int, target: str, progress: Progress | None) -> str:
    """Copy the next bytes of a stream to a new file and return their digest."""
    digest = hashlib.sha256()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "xb") as out:
        while size > 0 and (chunk := stream.read(min(size, _CHUNK))):
            out.write(chunk)
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
            size -= len(chunk)
    return digest.hexdigest()
