"""What a plan hands on to tools: names, versions and folders, as strict as no tool could read them as something else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudnn_resolve.errors import InputError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,120}[a-z0-9])?", re.ASCII)
"""A normalized name of a pip package."""
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,120}", re.ASCII)
APT_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,120}", re.ASCII)
APT_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:-]{0,120}", re.ASCII)
_NO_FOLDER = re.compile(r"[\x00-\x1f\x7f:*?\\%]")
"""What no folder of the linker cache has in its name: its files have lines and patterns, and shells read what writes them."""


def check_name(name: str) -> None:
    """Reject what is not the name of a pip package."""
    _check(NAME, name, "name of a package")


def check_pip(name: str, version: str) -> None:
    """Reject what is not the name and version of a pip package."""
    check_name(name)
    _check(VERSION, version, f"version of {name}")


def check_apt(name: str, version: str) -> None:
    """Reject what is not the name and version of an apt package."""
    _check(APT_NAME, name, "name of an apt package")
    _check(APT_VERSION, version, f"version of {name}")


def check_folders(paths: Iterable[str]) -> None:
    """Reject paths that the linker cache could not have."""
    for path in paths:
        if not path.startswith("/") or _NO_FOLDER.search(path) or "/../" in f"{path}/":
            raise InputError(f"{path!r} is not a valid folder for the linker cache", code="task-invalid")


def _check(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text[:80]!r} is not a valid {what}", code="task-invalid", hint="nothing was changed")
