"""Installed packages and the files that their RECORDs list."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.host.installed_files import RECORD_BYTES, InstalledPackage

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.protocol import Host

_METADATA_BYTES = 65536
_LONGEST_LINE = 1 << 17
"""Characters; the csv module refuses longer fields."""


def installed_packages(host: Host, environment: Environment) -> dict[str, InstalledPackage]:
    """Return the packages in the environment's own folders, by normalized name."""
    packages: dict[str, InstalledPackage] = {}
    for root in environment.packages:
        for entry in host.list_dir(root):
            if not entry.endswith((".dist-info", ".egg-info")) or entry.startswith("~"):
                continue
            package = _read_package(host, f"{root}/{entry}")
            if package is not None:
                packages.setdefault(package.name, package)
    return packages


def _read_package(host: Host, info: str) -> InstalledPackage | None:
    for path in (f"{info}/METADATA", f"{info}/PKG-INFO", info):
        text = host.read_text(path, _METADATA_BYTES)
        if text is None:
            continue
        name = re.search(r"^Name:[ \t]*(\S+)", text, re.MULTILINE)
        version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
        if name and version:
            return InstalledPackage(name=canonicalize_name(name[1]), version=version[1], info=info)
    return None


def files_of(package: InstalledPackage, host: Host, environment: Environment) -> tuple[str, ...]:
    """Return every path that a package owns; raises WorldError if they are not recorded or one is outside of the environment."""
    record = f"{package.info}/RECORD"
    text = host.read_text(record, RECORD_BYTES)
    if text is None:
        raise WorldError(
            f"{package.name} {package.version} has no RECORD, the list of its files, and so cannot be replaced and put back",
            code="no-record",
            context=package.info,
            hint=f"remove it with the tool that installed it, or reinstall it with pip: `pip install --force-reinstall {package.name}`",
        )
    fault = _fault_in(text)
    if fault is not None:
        message = f"the RECORD of {package.name} {package.version} is invalid: {fault}"
        raise WorldError(message, code="no-record", context=record, hint="reinstall that package first")
    paths = []
    for path in record_paths(text, os.path.dirname(package.info)):
        if not environment.holds(path):
            raise WorldError(
                f"{package.name} {package.version} lists a file outside of the environment: {path[:200]!r}",
                code="record-outside",
                context=record,
                hint="nothing was changed; remove that package by hand, or use another environment",
            )
        paths.append(path)
    paths += [f"{package.info}/{name}" for name in host.list_dir(package.info)]
    return tuple(dict.fromkeys(paths))


def _fault_in(record: str) -> str | None:
    """Fault that makes a CSV reader lose the lines behind it; None if there is none."""
    if "\0" in record:
        return "it holds a NUL character"
    if record.count('"') % 2 == 1:
        return "a quote is not closed"
    if any(len(line) > _LONGEST_LINE for line in record.splitlines()):
        return "a line is too long"
    return None


def record_paths(text: str, root: str) -> Iterator[str]:
    """Yield the path of each file in a RECORD whose `.dist-info` is in the folder `root`."""
    for path, _, _ in record_rows(text):
        yield os.path.normpath(os.path.join(root, path)) if "." in path[:1] or "/." in path else os.path.join(root, path)


def listed_files(host: Host, package: InstalledPackage) -> Iterator[str]:
    """Yield the paths in a package's RECORD; nothing if it has none."""
    return record_paths(host.read_text(f"{package.info}/RECORD", RECORD_BYTES) or "", os.path.dirname(package.info))
