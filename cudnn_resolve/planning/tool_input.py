"""Validate what a plan passes to other tools, so strictly that none could mistake a name, version or folder for something else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudnn_resolve.errors import InputError

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,120}[a-z0-9])?", re.ASCII)
"""Normalized name of a pip package."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,120}", re.ASCII)
APT_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,120}", re.ASCII)
APT_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:-]{0,120}", re.ASCII)
_FORBIDDEN_IN_FOLDER = re.compile(r"[\x00-\x1f\x7f:*?\\%]")
"""Characters with a meaning in the linker cache's configuration, which has lines and patterns, or in the shell lines that write it."""


def check_name(name: str) -> None:
    """Raise InputError for an invalid pip package name."""
    _check(_NAME, name, "package name")


def check_pip(name: str, version: str) -> None:
    """Raise InputError for an invalid pip package name or version."""
    check_name(name)
    _check(_VERSION, version, f"version of {name}")


def check_apt(name: str, version: str) -> None:
    """Raise InputError for an invalid apt package name or version."""
    _check(APT_NAME, name, "apt package name")
    _check(APT_VERSION, version, f"version of {name}")


def check_folders(paths: Iterable[str]) -> None:
    """Raise InputError for a path that the linker cache cannot take."""
    for path in paths:
        if not path.startswith("/") or _FORBIDDEN_IN_FOLDER.search(path) or "/../" in f"{path}/":
            raise InputError(f"{path!r} is not a valid folder for the linker cache", code="task-invalid")


def _check(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text[:80]!r} is not a valid {what}", code="task-invalid", hint="nothing was changed")
