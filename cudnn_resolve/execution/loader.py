"""The loader part: a preload in site-packages, or a file for the linker cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.plan.preload import IMPORT_NAMES, MODULE, preload_pth, preload_source

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.host.port import Host

_NAMES = re.compile(r"^NAMES = \(([^()\n]{0,500})\)$", re.MULTILINE)
_WORD = re.compile(r"'([A-Za-z_][A-Za-z0-9_.]{0,60})'", re.ASCII)


def preload_change(task: Task, host: Host, environment: Environment) -> dict[str, bytes | None]:
    """Files of the preload that are to be written, or None for those that go; empty where all is as it should be.

    A framework that is installed and not spoken of keeps the preload that it has.
    """
    folder = environment.scheme["purelib"]
    module, link = f"{folder}/{MODULE}.py", f"{folder}/{MODULE}.pth"
    here = host.read_text(module)
    found = _NAMES.search(here) if here is not None else None
    present = _WORD.findall(found[1]) if found else []
    asked = {IMPORT_NAMES.get(name, name) for name in task.frameworks}
    wanted = sorted({IMPORT_NAMES.get(name, name) for name in task.preload} | {name for name in present if name not in asked})
    if not wanted:
        return {path: None for path in (module, link) if host.stat(path) is not None} if found else {}
    files = {module: preload_source(tuple(wanted)), link: preload_pth()}
    return {path: text.encode() for path, text in files.items() if host.read_text(path) != text}


def activation(environ: Mapping[str, str], paths: tuple[str, ...]) -> str:
    """Lines for a shell that puts folders in front of what the user's own LD_LIBRARY_PATH says, and takes them away again."""
    del environ
    joined = ":".join(paths)
    return (
        f'export LD_LIBRARY_PATH="{joined}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
        "# programs that run already do not see it: the loader reads it when a program starts\n"
    )
