"""Files that the user names: read within a limit, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator

from cudnn_resolve.errors import InputError, WorldError

STDIN = "-"
"""The name that means standard input."""
_PIECE = 1 << 20
_HOLE = re.compile(rb"\0{16,}")
"""Zeros that are no text in any encoding: a program that goes on writing at its old place in a file that was cut off leaves them."""


def read_bounded(path: str, limit_bytes: int, what: str) -> str:
    """The text of a file, or of standard input for `-`; `what` names its kind in messages (`facts file`).

    InputError (exit 2) where it is missing, unreadable, a directory, larger than `limit_bytes` (seen before it is read, where the
    system knows the size) or not UTF-8. A byte order mark is dropped; one of UTF-16, as PowerShell's `>` writes it, is obeyed.
    """
    hint = "check the path" if os.path.isabs(path) else f"the {what} is looked for from {_here()}"
    with _readable(path, what, hint):
        raw = _read_stdin(limit_bytes) if path == STDIN else _read_file(path, limit_bytes)
    if raw is None:
        raise InputError(f"{path} is too large for a {what}: more than {limit_bytes >> 20} MB", code="input-too-large")
    try:
        return raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the {what} {path} is not UTF-8 text", code="input-encoding", context=f"byte {error.start}", hint="save it as UTF-8"
        ) from None


def read_log(path: str) -> Iterator[bytes]:
    """The bytes of a log, `-` for standard input, in pieces and without the holes that a rotation or a crash left in it.

    InputError where it cannot be read.
    """
    with _readable(path, "log", "check the path; `-` reads standard input"), contextlib.ExitStack() as opened:
        stream = opened.enter_context(open(path, "rb")) if path != STDIN else sys.stdin.buffer if sys.stdin is not None else None
        if stream is None:
            raise OSError(0, "standard input is closed")
        while piece := stream.read(_PIECE):
            yield _without_holes(piece)


def _without_holes(piece: bytes) -> bytes:
    """The piece with an even number of zeros taken out of each hole: two bytes of UTF-16 stay together."""
    return _HOLE.sub(lambda hole: b"\0" * (len(hole[0]) % 2), piece) if b"\0" in piece else piece


@contextlib.contextmanager
def _readable(path: str, what: str, missing: str) -> Iterator[None]:
    """Raise what the system refuses inside as an InputError that names the file; `missing` is the hint where there is none."""
    try:
        yield
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a {what}", code="input-unreadable") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", code="input-missing", hint=missing) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the {what} {path} cannot be read: {reason}", code="input-unreadable") from None


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "a directory that is gone"


def _read_stdin(limit_bytes: int) -> bytes | None:
    if sys.stdin is None:
        raise OSError("standard input is closed")
    raw = sys.stdin.buffer.read(limit_bytes + 1)
    return None if len(raw) > limit_bytes else raw


def _read_file(path: str, limit_bytes: int) -> bytes | None:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > limit_bytes:
            return None
        raw = file.read(limit_bytes + 1)
    return None if len(raw) > limit_bytes else raw


def refuse_unwritable(path: str) -> None:
    """Reject a path that `write_atomic` could not write to; raises WorldError."""
    place = path if os.path.exists(path) else os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path) or not os.access(place, os.W_OK):
        raise WorldError(f"{path} cannot be written", code="output-unwritable", hint="name a file in a folder that can be written to")


def write_atomic(path: str, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all: a failure leaves what was there before.

    The text goes to a file beside it, which then takes its place and its permissions; a link keeps pointing to its file.
    A device or pipe (`/dev/stdout`) is written directly. WorldError (exit 3) where that is not possible.
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

    mode = _mode(path)
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(path)
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as device:
            device.write(raw)
        return
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(13, "it is write-protected")
    handle, beside = tempfile.mkstemp(prefix=".cudnn-resolve-", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def beside(path: str, base: str | None) -> str:
    """`path` as it is meant in the file `base`: relative to that file's folder."""
    if base is None or STDIN in (base, path) or os.path.isabs(path):
        return path
    return os.path.join(os.path.dirname(base), path)


def exists(path: str) -> bool:
    """True where a file or folder of that name can be reached."""
    return os.path.exists(path)


def folder_of(path: str, *, is_folder: bool = False) -> str:
    """The absolute folder that a file is in, or which `path` itself names."""
    where = os.path.abspath(path)
    return where if is_folder else os.path.dirname(where)


def absolute(path: str, base: str | None) -> str:
    """The same from the root on, `~` being the user's home."""
    return os.path.abspath(beside(os.path.expanduser(path), base))
