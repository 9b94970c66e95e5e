"""Packages that are installed: their files, from RECORD, and what else must move when they do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.record import record_rows

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.protocol import Host

_RECORD_BYTES = 64 << 20
_HEAD_BYTES = 65536
_LINE_CHARACTERS = 1 << 17


class Installed(Struct, frozen=True, kw_only=True):
    """One installed package."""

    name: str
    version: str
    info: str
    """Its `.dist-info` or `.egg-info`."""


def installed_packages(host: Host, environment: Environment) -> dict[str, Installed]:
    """Packages in the environment's own folders, by normalized name."""
    found: dict[str, Installed] = {}
    for root in dict.fromkeys((environment.scheme["purelib"], environment.scheme["platlib"])):
        for entry in host.list_dir(root):
            if not entry.endswith((".dist-info", ".egg-info")) or entry.startswith("~"):
                continue
            path = f"{root}/{entry}"
            said = _said(host, path)
            if said is not None:
                found.setdefault(said[0], Installed(name=said[0], version=said[1], info=path))
    return found


def _said(host: Host, path: str) -> tuple[str, str] | None:
    for file in (f"{path}/METADATA", f"{path}/PKG-INFO", path):
        text = host.read_text(file, _HEAD_BYTES)
        if text is None:
            continue
        name = re.search(r"^Name:[ \t]*(\S+)", text, re.MULTILINE)
        version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
        if name and version:
            return canonicalize_name(name[1]), version[1]
    return None


def files_of(one: Installed, host: Host, environment: Environment) -> tuple[str, ...]:
    """Every path that the package owns; WorldError where nobody wrote them down, or where one lies outside of the environment."""
    text = host.read_text(f"{one.info}/RECORD", _RECORD_BYTES)
    if text is None:
        who = f"{one.name} {one.version} has no list of its files (RECORD)"
        raise WorldError(
            f"{who}, so it cannot be replaced and put back",
            code="no-record",
            context=one.info,
            hint=f"remove it by the tool that installed it, or reinstall it by pip: `pip install --force-reinstall {one.name}`",
        )
    faults = {  # behind which a reader of CSV loses lines
        "it holds a NUL character": "\0" in text,
        "a quote in it is not closed": text.count('"') % 2 == 1,
        "a line in it is too long": any(len(line) > _LINE_CHARACTERS for line in text.splitlines()),
    }
    for fault in (fault for fault, is_there in faults.items() if is_there):
        who = f"the list of files of {one.name} {one.version} cannot be read: {fault}"
        raise WorldError(who, code="no-record", context=f"{one.info}/RECORD", hint="reinstall that package first")
    out = []
    for path in record_paths(text, os.path.dirname(one.info)):
        if not environment.holds(path):
            raise WorldError(
                f"{one.name} {one.version} lists a file outside of the environment: {path[:200]!r}",
                code="record-outside",
                context=f"{one.info}/RECORD",
                hint="nothing was changed; remove that package by hand, or use another environment",
            )
        out.append(path)
    out += [f"{one.info}/{name}" for name in host.list_dir(one.info)]
    return tuple(dict.fromkeys(out))


def record_paths(text: str, root: str) -> Iterator[str]:
    """The path of each file in a RECORD, of which the `.dist-info` lies in the folder `root`."""
    for path, _, _ in record_rows(text):
        yield os.path.normpath(os.path.join(root, path)) if "." in path[:1] or "/." in path else os.path.join(root, path)


def listed_files(host: Host, one: Installed) -> Iterator[str]:
    """The paths that a package lists as its own; none where it has no list."""
    return record_paths(host.read_text(f"{one.info}/RECORD", _RECORD_BYTES) or "", os.path.dirname(one.info))
