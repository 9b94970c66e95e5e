"""A log file, or standard input, read in pieces, without the holes that a rotation or a crash left in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from cudnn_resolve.errors import InputError
from cudnn_resolve.host.files import STDIN

_PIECE = 1 << 20
_HOLE = re.compile(rb"\0{16,}")
"""Zeros that are no text in any encoding: a program that goes on writing at its old place in a file that was cut off leaves them."""


def read_log(path: str) -> Iterator[bytes]:
    """The bytes of a log, `-` for standard input, in pieces and without holes; InputError where it cannot be read."""
    try:
        if path == STDIN:
            yield from map(_without_holes, _standard_input())
            return
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield from map(_without_holes, _pieces(handle))
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", code="input-missing", hint="check the path; `-` reads standard input") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a log", code="input-unreadable") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the log {path} cannot be read: {reason}", code="input-unreadable") from None


def _without_holes(piece: bytes) -> bytes:
    """The piece with an even number of zeros taken out of each hole: two bytes of UTF-16 stay together."""
    return _HOLE.sub(lambda hole: b"\0" * (len(hole[0]) % 2), piece) if b"\0" in piece else piece


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise OSError(0, "standard input is closed")
    while piece := sys.stdin.buffer.read(_PIECE):
        yield piece


def _pieces(handle: int) -> Iterator[bytes]:
    while piece := os.read(handle, _PIECE):
        yield piece
