"""Sources of the user's defaults: pyproject.toml files, and the environment variables of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.host.payload_door import read
from cudnn_resolve.matrix.toml import decode

_LARGEST_BYTES = 8 * 1024 * 1024


def project_table() -> tuple[str, dict[str, Any]] | None:
    """The nearest pyproject.toml from the current folder upwards with a `[tool.cudnn-resolve]` table: its path and that table.

    None if no file has one; raise InputError if it is not a table. A file that does not mention this program is skipped, whatever its
    state.
    """
    try:
        directory = os.getcwd()
    except OSError:  # it was deleted
        return None
    while True:
        path = os.path.join(directory, "pyproject.toml")
        found = _table(path)
        if found is not None:
            return path, found
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def environment() -> Mapping[str, str]:
    """Environment variables of this process."""
    return os.environ


def modules() -> Mapping[str, Any]:
    """Modules that this process has imported."""
    return sys.modules


def _table(path: str) -> dict[str, Any] | None:
    content = read(path, 0, _LARGEST_BYTES)
    if content is None or b"cudnn-resolve" not in content:
        return None
    try:
        tool = decode(content.decode("utf-8")).get("tool", {})
    except ValueError as error:
        raise InputError(f"is not TOML: {error}", code="settings-invalid", context=path) from None
    found = tool.get("cudnn-resolve") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise InputError("[tool.cudnn-resolve] is not a table", code="settings-invalid", context=path)
    return found
