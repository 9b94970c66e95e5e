"""What an `apply` has to bring about, whether a plan says so or a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cudnn_resolve.errors import InputError

if TYPE_CHECKING:
    from cudnn_resolve.planning.model import AptAction, AptRepository, Plan

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,120}[a-z0-9])?", re.ASCII)
"""A normalized name of a pip package."""
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,120}", re.ASCII)
_NO_FOLDER = re.compile(r"[\x00-\x1f\x7f:*?\\%]")
"""What no folder of the linker cache has in its name: its files have lines and patterns, and shells read what writes them."""
APT_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,120}", re.ASCII)
APT_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:-]{0,120}", re.ASCII)


class Piece(Struct, frozen=True, kw_only=True):
    """One pip package that is to be there."""

    name: str
    version: str
    file: Any = None
    """The `File` to install; None where nothing says which one."""
    before: str | None = None
    """The version that is there now."""
    index: str | None = None
    """The index that it must come from; None = the configured one."""
    page: bool = False

    @property
    def pin(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


class SystemPackage(Struct, frozen=True, kw_only=True):
    """One apt package that is to be there."""

    name: str
    version: str
    repository: str
    before: str | None = None


class Task(Struct, frozen=True, kw_only=True):
    """Everything that is to be changed, and what must be seen afterwards."""

    targets: tuple[str, ...]
    install: tuple[Piece, ...] = ()
    remove: tuple[str, ...] = ()
    apt: tuple[SystemPackage, ...] = ()
    repositories: tuple[AptRepository, ...] = ()
    frameworks: tuple[str, ...] = ()
    """Those of the stack, as the matrix calls them."""
    preload: tuple[str, ...] = ()
    """Frameworks whose libraries are loaded for them."""
    cached: tuple[str, ...] = ()
    """Folders for the linker cache."""
    pinned: Mapping[str, str] | None = None
    """Every pip package of the stack with its version, kept ones included."""
    cudnn: Mapping[str, str] | None = None
    """Distribution of a framework to the cuDNN that it must load."""
    unpinned: tuple[str, ...] = ()


def task_of(plan: Plan, framework_of: Callable[[str], str | None] = lambda name: name) -> Task:
    """What a plan asks for; InputError where a name or a version is none.

    `framework_of` says which framework a distribution is: `onnxruntime-gpu` is onnxruntime.
    """
    stack = plan.stack.frameworks if plan.stack else ()
    changed = [one for one in plan.pip if one.action in ("install", "upgrade", "downgrade")]
    apt = [one for one in plan.apt if one.action != "keep"]
    task = Task(
        targets=plan.targets,
        install=tuple(
            Piece(name=one.name, version=one.version, file=one.file, before=one.installed, index=one.index, page=one.page)
            for one in changed
        ),
        remove=tuple(one.name for one in plan.pip if one.action == "remove"),
        apt=tuple(_system(one, plan) for one in apt),
        repositories=tuple(step.repository for step in plan.steps if step.repository is not None),
        frameworks=tuple(dict.fromkeys(framework_of(one.name) or one.name for one in stack)),
        preload=tuple(name for one in plan.environment if one.kind == "preload" for name in one.value.split()),
        cached=tuple(path for one in plan.environment if one.kind == "ldconfig" for path in one.value.split(":")),
        pinned={one.name: one.version for one in plan.pip if one.action != "remove"},
        cudnn={one.name: one.cudnn for one in stack if one.cudnn},
        unpinned=plan.unpinned,
    )
    check_task(task)
    return task


def _system(one: AptAction, plan: Plan) -> SystemPackage:
    known = plan.facts.packages.apt
    before = known.get(one.name) if isinstance(known, Mapping) else None
    return SystemPackage(name=one.name, version=one.version, repository=one.repository, before=before)


def check_task(task: Task) -> None:
    """Nothing; InputError where a name, a version or a path could be read as something else by a tool that gets it."""
    for piece in task.install:
        _check(NAME, piece.name, "name of a package")
        _check(VERSION, piece.version, f"version of {piece.name}")
    for name in task.remove:
        _check(NAME, name, "name of a package")
    for one in task.apt:
        check_system(one.name, one.version)
    check_folders(task.cached)


def check_system(name: str, version: str) -> None:
    """Nothing; InputError where these are no name and version of an apt package."""
    _check(APT_NAME, name, "name of an apt package")
    _check(APT_VERSION, version, f"version of {name}")


def check_folders(paths: Iterable[str]) -> None:
    """Nothing; InputError where a path is none that the linker cache could have."""
    for path in paths:
        if not path.startswith("/") or _NO_FOLDER.search(path) or "/../" in f"{path}/":
            raise InputError(f"{path!r} is no folder for the linker cache", code="task-invalid")


def _check(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text[:80]!r} is no {what}", code="task-invalid", hint="nothing was changed")
