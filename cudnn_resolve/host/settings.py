"""The user's defaults: the `[tool.cudnn-resolve]` table of the pyproject.toml in or above the working directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.matrix.toml import decode, quote

_LARGEST_BYTES = 8 * 1024 * 1024

TEXTS = ("cuda", "cudnn", "index-url", "exclude-newer")
LISTS = ("matrix", "framework", "extra-index-url", "find-links", "no-binary", "only-binary")
FLAGS = ("pre", "strict-pins", "offline", "no-variant-indexes")
CHOICES = {
    "channel": ("pip", "apt", "auto"),
    "driver-policy": ("minor", "strict"),
    "prefer": ("installed", "newest"),
    "device": ("gpu", "cpu"),
    "index-strategy": ("first-index", "best-match"),
}


def read_project_settings(start: str | os.PathLike[str]) -> dict[str, Any]:
    """The table's keys and values, checked; empty where no pyproject.toml from `start` upwards has one.

    `matrix` comes back as absolute paths, read relative to that file, and `path` is the file itself. InputError names every wrong
    key at once. A pyproject.toml that does not speak of this program is not read further, whatever its state.
    """
    directory = os.path.abspath(os.fspath(start))
    while True:
        path = os.path.join(directory, "pyproject.toml")
        found = _table(path)
        if found is not None:
            return {**_checked(found, path), "path": path}
        parent = os.path.dirname(directory)
        if parent == directory:
            return {}
        directory = parent


def environment() -> Mapping[str, str]:
    """The environment variables of this process."""
    return os.environ


def modules() -> Mapping[str, Any]:
    """The modules that this process has imported."""
    return sys.modules


def _table(path: str) -> dict[str, Any] | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            content = stream.read(_LARGEST_BYTES)
    except OSError:
        return None
    if b"cudnn-resolve" not in content:
        return None
    try:
        tool = decode(content.decode("utf-8")).get("tool", {})
    except ValueError as error:
        raise InputError(f"is not TOML: {error}", code="settings-invalid", context=path) from None
    found = tool.get("cudnn-resolve") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise InputError("[tool.cudnn-resolve] is not a table", code="settings-invalid", context=path)
    return found


def _checked(found: dict[str, Any], path: str) -> dict[str, Any]:
    faults = [f"{key}: {message}" for key, value in found.items() if (message := _fault(key, value))]
    if faults:
        raise InputError("; ".join(faults), code="settings-invalid", context=f"{path}: [tool.cudnn-resolve]")
    if "matrix" in found:
        base = os.path.dirname(path)
        return {**found, "matrix": [os.path.join(base, os.path.expanduser(one)) for one in found["matrix"]]}
    return found


def _fault(key: str, value: object) -> str | None:
    """What is wrong with one setting, None where nothing is."""
    if key in CHOICES:
        return None if value in CHOICES[key] else f"{quote(value)} is not one of {', '.join(CHOICES[key])}"
    if key in LISTS:
        good = isinstance(value, list) and all(isinstance(one, str) and one and "\0" not in one for one in value)
        return None if good else f"{quote(value)} is not a list of texts"
    if key in TEXTS:
        return None if isinstance(value, str) and value else f"{quote(value)} is not a text"
    if key in FLAGS:
        return None if isinstance(value, bool) else f"{quote(value)} is not true or false"
    import difflib

    near = difflib.get_close_matches(key[:60], [*CHOICES, *LISTS, *TEXTS, *FLAGS], n=1)
    return "is not a setting" + (f"; did you mean {near[0]}?" if near else "")
