"""A log file, or standard input, read in pieces."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from cudnn_resolve.errors import InputError
from cudnn_resolve.host.files import STDIN

_PIECE = 1 << 20


def read_log(path: str) -> Iterator[bytes]:
    """The bytes of a log, `-` for standard input, in pieces; InputError where it cannot be read."""
    try:
        if path == STDIN:
            yield from _standard_input()
            return
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield from _pieces(handle)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", code="input-missing", hint="check the path; `-` reads standard input") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a log", code="input-unreadable") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the log {path} cannot be read: {reason}", code="input-unreadable") from None


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise OSError(0, "standard input is closed")
    while piece := sys.stdin.buffer.read(_PIECE):
        yield piece


def _pieces(handle: int) -> Iterator[bytes]:
    while piece := os.read(handle, _PIECE):
        yield piece
