"""A lock as a plan: what an environment is from what the lock says, without resolving again."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.execution.task import check_folders, check_system
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.locking.fit import fit, stack_for
from cudnn_resolve.locking.library import bundled_cudnns
from cudnn_resolve.locking.proof import proofs
from cudnn_resolve.locking.select import Chosen, select, targets_for
from cudnn_resolve.planning.model import AptAction, Environment, PipAction, Plan, Proven, Stack, StackFramework, Warning
from cudnn_resolve.planning.preload import check_frameworks
from cudnn_resolve.planning.step import steps
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.locking.difference import Difference
    from cudnn_resolve.locking.model import Lock, LockedEnvironment, LockedFile
    from cudnn_resolve.locking.model import Stack as LockedStack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine


_KINDS = ("none", "preload", "ldconfig", "env")


def plan_of_lock(lock: Lock, folder: str, facts: Facts, book: Book) -> tuple[Plan | None, tuple[Difference, ...]]:
    """The plan that leads to the lock on this machine, or what does not fit; `folder` is where the lock lies, absolute.

    InputError where the lock holds what cannot be installed safely.
    """
    machine = machine_of(facts, book)
    selection = select(lock, machine)
    if selection.misfits:
        return None, selection.misfits
    stack = stack_for(lock, machine)
    targets = targets_for(lock, machine)
    pip = tuple(_action(one, folder, machine.pip) for one in selection.chosen)
    apt = tuple(_apt(stack, facts, machine))
    removals = tuple(_removals(pip, machine, book))
    warnings = [
        Warning(code="lock-misfit", message=f"{one.what}: the lock wants {one.locked}, here is {one.now}")
        for one in fit(lock, facts, book, installed=False)
    ]
    draft = Plan(
        targets=targets or (f"the lock of {lock.created_by}",),
        facts=facts,
        stack=_stack(lock, stack, book),
        pip=(*pip, *removals),
        apt=apt,
        environment=tuple(_environment(one) for one in stack.environment) if stack is not None else (),
        warnings=tuple(warnings),
        proven=tuple(
            Proven(words=one.words, record=one.record, because=one.because, is_open=one.is_open, here=one.is_of(facts))
            for one in proofs(lock)
        ),
    )
    return replace(draft, steps=steps(draft, machine, book)), ()


def _action(chosen: Chosen, folder: str, installed: Mapping[str, str]) -> PipAction:
    package, file = chosen.package, chosen.file
    if file is None or package.version is None:
        raise InputError(
            f"{package.name} is no file with a hash but a folder or a repository",
            code="lock-direct",
            hint="build a wheel of it (`pip wheel`) and lock that",
        )
    here = installed.get(package.name)
    action = "install" if here is None else _compare(here, package.version)
    return PipAction(
        name=package.name,
        version=package.version,
        action=action,
        index=package.index,
        because=package.because or ("it is in the lock",),
        installed=here,
        file=_file(file, folder, package.index),
    )


def _environment(one: LockedEnvironment) -> Environment:
    if one.kind not in _KINDS:
        raise InputError(
            f"{one.kind[:80]!r} is no way in which libraries are found", code="lock-invalid", hint=f"one of {', '.join(_KINDS)}"
        )
    if one.kind == "preload":
        check_frameworks(tuple(one.value.split()))
    if one.kind == "ldconfig":
        check_folders(one.value.split(":"))
    return Environment(kind=one.kind, value=one.value, why=one.why)


def _file(file: LockedFile, folder: str, index: str | None) -> File:
    url = file.url or f"file://{quote(os.path.normpath(os.path.join(folder, file.path or '')))}"
    return File(filename=file.name, url=url, hashes=dict(file.hashes), size=file.size, origin=index)


def _compare(here: str, wanted: str) -> str:
    try:
        old, new = Version(here), Version(wanted)
    except InvalidVersion:
        return "upgrade"
    return "keep" if old == new else "upgrade" if new > old else "downgrade"


def _removals(pip: tuple[PipAction, ...], machine: Machine, book: Book) -> Iterator[PipAction]:
    """Installed packages that own the same files as one of the lock."""
    names = {one.name for one in pip}
    owners = {slot: one.name for one in pip if (slot := book.slot(one.name)) is not None}
    for name, version in sorted(machine.pip.items()):
        slot = book.slot(name)
        if name not in names and slot is not None and slot in owners:
            because = f"it owns the same files as {owners[slot]}; the two overwrite one another"
            yield PipAction(name=name, version=version, action="remove", index=None, because=(because,), installed=version)


def _apt(stack: LockedStack | None, facts: Facts, machine: Machine) -> Iterator[AptAction]:
    known = or_none(facts.packages.apt) or {}
    del machine
    for one in stack.apt if stack is not None else ():
        check_system(one.name, one.version)
        here = known.get(one.name)
        action = "install" if here is None else "keep" if here == one.version else "upgrade"
        yield AptAction(name=one.name, version=one.version, repository=one.repository, action=action, because=("it is in the lock",))


def _stack(lock: Lock, stack: LockedStack | None, book: Book) -> Stack | None:
    if stack is None:
        return None
    own = bundled_cudnns(lock, stack, book)
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
                cudnn=own.get(one.name, stack.cudnn),
                libraries="bundled" if one.name in own else "apt" if stack.apt else "pip",
            )
            for one in stack.frameworks
        ),
    )
