"""Files that the user names: read up to a limit, written atomically."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import IO

from cudnn_resolve.errors import InputError, WorldError

STDIN = "-"
"""Name that means standard input."""
_CHUNK = 1 << 20
_HOLE = re.compile(rb"\0{16,}")
"""Zeros that are text in no encoding: a program leaves them that keeps writing at its old offset in a truncated file."""


def read_bounded(path: str, limit_bytes: int, what: str) -> str:
    """Text of a file, or of standard input for `-`; `what` names its kind in messages (`facts file`).

    Raise InputError (exit 2) if it is missing, unreadable, a directory, larger than `limit_bytes` (checked before reading, if the system
    knows the size) or not UTF-8. A byte order mark is dropped; one of UTF-16, as PowerShell's `>` writes it, is obeyed.
    """
    hint = "check the path" if os.path.isabs(path) else f"the path of the {what} is relative to {_working_folder()}"
    with _opened(path, what, hint) as stream:
        status = os.fstat(stream.fileno()) if path != STDIN else None
        is_large = status is not None and stat.S_ISREG(status.st_mode) and status.st_size > limit_bytes
        raw = b"" if is_large else stream.read(limit_bytes + 1)
    if is_large or len(raw) > limit_bytes:
        raise InputError(f"{path} is too large for a {what}: more than {limit_bytes >> 20} MB", code="input-too-large")
    try:
        return raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the {what} {path} is not UTF-8 text", code="input-encoding", context=f"byte {error.start}", hint="save it as UTF-8"
        ) from None


def read_log(path: str) -> Iterator[bytes]:
    """Chunks of a log, `-` for standard input, without the holes that a rotation or a crash left in it.

    Raise InputError if it cannot be read.
    """
    with _opened(path, "log", "check the path; `-` reads standard input") as stream:
        while chunk := stream.read(_CHUNK):
            # Remove an even number of zeros from each hole, to keep the two bytes of UTF-16 together.
            filled = _HOLE.sub(lambda hole: b"\0" * (len(hole[0]) % 2), chunk) if b"\0" in chunk else chunk
            if filled:
                yield filled


@contextlib.contextmanager
def _opened(path: str, what: str, missing: str) -> Iterator[IO[bytes]]:
    """Open the file, or standard input for `-`; raise InputError for a system error, with the hint `missing` if there is no file."""
    if path == STDIN and sys.stdin is None:
        raise InputError(f"the {what} {path} cannot be read: standard input is closed", code="input-unreadable")
    try:
        with open(path, "rb") if path != STDIN else contextlib.nullcontext(sys.stdin.buffer) as stream:
            yield stream
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a {what}", code="input-unreadable") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", code="input-missing", hint=missing) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the {what} {path} cannot be read: {reason}", code="input-unreadable") from None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "a deleted directory"


def refuse_unwritable(path: str) -> None:
    """Reject a path to which `write_atomic` could not write; raises WorldError."""
    place = path if os.path.exists(path) else os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path) or not os.access(place, os.W_OK):
        raise WorldError(f"{path} cannot be written", code="output-unwritable", hint="name a file in a folder that can be written to")


def write_atomic(path: str, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all: a failure leaves the old content.

    The text goes to a temporary file beside it, which then takes its place and its permissions; a link keeps pointing to its file.
    A device or pipe (`/dev/stdout`) is written directly. Raise WorldError (exit 3) if that is not possible.
    """
    try:
        _write(os.path.realpath(path), text.encode("utf-8", "backslashreplace"))
    except IsADirectoryError:
        raise WorldError(f"{path} is a directory", code="output-directory", hint="name a file in it") from None
    except FileNotFoundError:
        missing = os.path.dirname(path) or "."
        raise WorldError(f"{path} cannot be written: there is no directory {missing}", code="output-missing") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WorldError(f"{path} cannot be written: {reason}", code="output-unwritable") from None


def _write(path: str, raw: bytes) -> None:
    import tempfile  # slow to import, and most runs write nothing

    mode = os.stat(path).st_mode if os.path.exists(path) else None
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(path)
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as device:
            device.write(raw)
        return
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(13, "it is write-protected")
    handle, temporary = tempfile.mkstemp(prefix=".cudnn-resolve-", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def path_from(path: str, base: str | None) -> str:
    """A path that the file `base` names, resolved against that file's folder."""
    if base is None or STDIN in (base, path) or os.path.isabs(path):
        return path
    return os.path.join(os.path.dirname(base), path)


def exists(path: str) -> bool:
    """Whether a file or folder can be reached at that path."""
    return os.path.exists(path)


def folder_of(path: str, *, is_folder: bool = False) -> str:
    """Absolute folder of a file, or `path` itself if it is a folder."""
    where = os.path.abspath(path)
    return where if is_folder else os.path.dirname(where)


def absolute(path: str, base: str | None) -> str:
    """Absolute form of a path that the file `base` names; `~` is the user's home."""
    return os.path.abspath(path_from(os.path.expanduser(path), base))
