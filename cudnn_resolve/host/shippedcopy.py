"""Compiled tables that come with the wheel: who has just installed the program does not wait until they are compiled.

A copy counts where it is of this version of the program and of the very bytes of the table beside it; else the table itself is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from cudnn_resolve._version import __version__
from cudnn_resolve.matrix.parse import Compiled

FOLDER = "_compiled"
"""Beside the folder of the tables, in an installed package only."""
_LARGEST_BYTES = 128 * 1024 * 1024


class ShippedCopies:
    """The compiled copies in one directory, each of three lines: what it is of, the head of the table, and its rows."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def table(self, name: str, source: str) -> Compiled | None:
        """The compiled form of the table `name` in the file `source`; None where there is none of its present bytes."""
        parts = self._parts(name, source, whole=True)
        return None if parts is None else {"head": parts[0], **parts[1]}

    def head(self, name: str, source: str) -> Mapping[str, Any] | None:
        """The head alone; None as for `table`."""
        parts = self._parts(name, source, whole=False)
        return None if parts is None else parts[0]

    def _parts(self, name: str, source: str, *, whole: bool) -> tuple[dict[str, Any], dict[str, Any]] | None:
        try:
            with open(os.path.join(self.directory, f"{name}.json"), "rb") as stream:
                header = json.loads(stream.readline(4096))
                head = stream.readline(_LARGEST_BYTES)
                rows = stream.read(_LARGEST_BYTES) if whole else b""
            with open(source, "rb") as stream:
                if header != _header(stream.read(_LARGEST_BYTES)):
                    return None
            parts = json.loads(head), json.loads(rows) if whole else {}
            return parts if all(isinstance(part, dict) for part in parts) else None
        except (OSError, ValueError, RecursionError):
            return None


def copy_of(content: bytes, compiled: Compiled) -> bytes:
    """The copy of a table: its own bytes, and what they were compiled to."""
    rows = {key: value for key, value in compiled.items() if key != "head"}
    return b"".join(json.dumps(part, separators=(",", ":")).encode() + b"\n" for part in (_header(content), compiled["head"], rows))


def _header(content: bytes) -> list[Any]:
    return [__version__, len(content), crc32(content)]
