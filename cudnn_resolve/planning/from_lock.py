"""A lock as a plan: what an environment lacks of what the lock says, without resolving again."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.locking.file import file_url, with_absolute_url
from cudnn_resolve.locking.model import Environment, because_of, name_of
from cudnn_resolve.locking.proof import proofs
from cudnn_resolve.locking.select import Chosen, machine_differences, select, targets_for
from cudnn_resolve.locking.stack import bundled_cudnns
from cudnn_resolve.planning.difference import apt_actions, pip_actions
from cudnn_resolve.planning.model import AptAction, PipAction, Plan, Stack, StackFramework, Warning
from cudnn_resolve.planning.origin import overlay_warnings
from cudnn_resolve.planning.preload import check_frameworks
from cudnn_resolve.planning.step import steps
from cudnn_resolve.planning.tool_input import check_apt, check_folders, check_pip
from cudnn_resolve.planning.unmet_pins import left_overrides, left_pins, left_warnings
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.locking.model import Difference, Lock, LockedFile
    from cudnn_resolve.locking.model import Stack as LockedStack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.resolution.model import AptPin

_KINDS = ("none", "preload", "folder", "ldconfig", "env")


def plan_of_lock(
    lock: Lock, folder: str, facts: Facts, book: Book, relaid: Collection[str] = ()
) -> tuple[Plan | None, tuple[Difference, ...]]:
    """The plan that leads to the lock on this machine, or what does not fit.

    `folder` is where the lock lies, absolute; `relaid` names packages whose files are written again in any case. InputError where the lock
    holds what cannot be installed safely.
    """
    machine = machine_of(facts, book)
    selection = select(lock, machine)
    if selection.differences:
        return None, selection.differences
    stack = lock.stack(machine.platform)
    warnings = (
        Warning(code="lock-misfit", message=f"{one.what}: the lock wants {one.locked}, here is {one.now}")
        for one in machine_differences(lock, facts, book, installed=False)
    )
    wanted = [_wanted(one, folder) for one in selection.chosen]
    pip = pip_actions(wanted, machine.pip, book, gpu=_frameworks(wanted, stack, book), relaid=relaid)
    left = left_pins(machine, book, pip, machine.requires)
    draft = Plan(
        targets=targets_for(lock, machine) or (f"the lock of {lock.file.created_by}",),
        facts=facts,
        stack=_stack(lock, stack, book) if stack is not None else None,
        pip=pip,
        apt=apt_actions(apt_of(stack.apt), or_none(facts.packages.apt) or {}) if stack is not None else (),
        environment=tuple(_checked(one, folder, book) for one in stack.environment) if stack is not None else (),
        overrides=tuple(left_overrides(left, (), {})),
        warnings=(*overlay_warnings(book), *warnings, *left_warnings(left)),
        proven=tuple(proofs(lock)),
    )
    return replace(draft, steps=steps(draft, machine, book)), ()


def _wanted(chosen: Chosen, folder: str) -> PipAction:
    package, file = chosen.package, chosen.file
    if file is None or package.version is None:
        raise InputError(
            f"{package.name} is not a file with a hash but a folder or a repository",
            code="lock-direct",
            hint="build a wheel of it (`pip wheel`) and lock that",
        )
    return PipAction(
        name=package.name,
        version=str(package.version),
        index=package.index,
        because=because_of(package) or ("it is in the lock",),
        file=_file(file, folder, package.index),
    )


def _frameworks(wanted: list[PipAction], stack: LockedStack | None, book: Book) -> dict[str, bool]:
    """Which packages are frameworks, and whether their builds are for GPUs: another program's lock does not say, and means these."""
    built = {one.name: one.cuda_built is not None for one in stack.frameworks} if stack is not None else {}
    return {one.name: built.get(one.name, True) for one in wanted if book.framework_of(one.name) is not None}


def _file(file: LockedFile, folder: str, index: str | None) -> File:
    url = file.url or file_url(os.path.normpath(os.path.join(folder, file.path or "")))
    return File(filename=name_of(file), url=url, hashes=file.hashes, size=file.size, origin=index)


def _checked(one: Environment, folder: str, book: Book) -> Environment:
    """The environment; InputError where a tool could read it as something else."""
    if one.kind not in _KINDS:
        raise InputError(
            f"{one.kind[:80]!r} is no way in which libraries are found", code="lock-invalid", hint=f"one of {', '.join(_KINDS)}"
        )
    if one.kind in ("preload", "folder"):
        check_frameworks(tuple(one.value.split()))
    if (one.kind == "folder") != (one.wheel is not None):
        raise InputError(f"{one.kind} {'with' if one.wheel else 'without'} a wheel", code="lock-invalid", hint="`folder` has one, alone")
    if one.wheel is not None:
        check_pip(one.wheel.name, one.wheel.version)
        component = book.component(one.wheel.name)
        if component is None or component.library != "cudnn":
            raise InputError(f"{one.wheel.name[:80]} is no wheel of cuDNN, and none other lies in a folder of its own", code="lock-invalid")
        if one.wheel.file is not None:
            one = replace(one, wheel=replace(one.wheel, file=with_absolute_url(one.wheel.file, folder)))
    if one.kind == "ldconfig":
        check_folders(one.value.split(":"))
    return one


def apt_of(pins: Iterable[AptPin]) -> list[AptAction]:
    """The packages of the system that a lock names; InputError where a name or version is none."""
    pins = tuple(pins)
    for one in pins:
        check_apt(one.name, one.version)
    return [AptAction(name=one.name, version=one.version, repository=one.repository, because=("it is in the lock",)) for one in pins]


def _stack(lock: Lock, stack: LockedStack, book: Book) -> Stack:
    own = bundled_cudnns(lock, stack, book)
    apart = {name: one.wheel.version for one in stack.environment if one.wheel is not None for name in one.value.split()}
    brought = "none" if lock.tool is not None and lock.tool.request.device == "cpu" else "apt" if stack.apt else "pip"
    return Stack(
        driver_min=stack.driver_min,
        driver_because=None,
        driver_policy="minor",
        cuda=stack.cuda,
        cudnn=stack.cudnn,
        cudnn_soname=stack.cudnn_soname,
        frameworks=tuple(
            StackFramework(
                name=one.name,
                version=one.version,
                variant=one.variant,
                cuda_built=one.cuda_built,
                cudnn_built=one.cudnn_built,
                cudnn=own.get(one.name, apart.get(book.framework_of(one.name) or one.name, stack.cudnn)),
                libraries="bundled" if one.name in own else brought,
            )
            for one in stack.frameworks
        ),
    )
