"""Plans from locks: the difference between an environment and a lock, without resolving again."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.locking.fits_machine import machine_differences
from cudnn_resolve.locking.locked_file import file_url, with_absolute_url
from cudnn_resolve.locking.model import Environment, because_of, name_of
from cudnn_resolve.locking.proof import proofs
from cudnn_resolve.locking.select import Chosen, select, targets_for
from cudnn_resolve.locking.stack import bundled_cudnns
from cudnn_resolve.planning.difference import apt_actions, pip_actions
from cudnn_resolve.planning.model import AptAction, PipAction, Plan, Stack, StackFramework, Warning
from cudnn_resolve.planning.origin_warning import overlay_warnings
from cudnn_resolve.planning.preload import check_frameworks
from cudnn_resolve.planning.step import steps
from cudnn_resolve.planning.tool_input import check_apt, check_folders, check_pip
from cudnn_resolve.planning.unmet_pins import unmet_overrides, unmet_pins, unmet_warnings
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
_BECAUSE = "it is in the lock"


def plan_of_lock(
    lock: Lock, folder: str, facts: Facts, book: Book, reinstall: Collection[str] = ()
) -> tuple[Plan | None, tuple[Difference, ...]]:
    """Return the plan that installs the lock on this machine, or None with the differences that rule it out.

    `folder` is the absolute path of the lock's folder; `reinstall` names packages whose files are written again even if their version
    stays. Raises InputError if the lock holds something that cannot be installed safely.
    """
    machine = machine_of(facts, book)
    selection = select(lock, machine)
    if selection.differences:
        return None, selection.differences
    stack = lock.stack(machine.platform)
    warnings = (
        Warning(code="lock-misfit", message=f"{difference.what}: the lock wants {difference.locked}, this machine has {difference.now}")
        for difference in machine_differences(lock, facts, book, installed=False)
    )
    wanted = [_wanted(chosen, folder) for chosen in selection.chosen]
    built = {framework.name: framework.cuda_built is not None for framework in stack.frameworks} if stack is not None else {}
    frameworks = (package.name for package in wanted if book.framework_of(package.name) is not None)
    gpu = {name: built.get(name, True) for name in frameworks}  # locks by other tools do not record it
    pip = pip_actions(wanted, machine.pip, book, gpu=gpu, reinstall=reinstall)
    unmet = unmet_pins(machine, book, pip, machine.requires)
    draft = Plan(
        targets=targets_for(lock, machine) or (f"the lock by {lock.file.created_by}",),
        facts=facts,
        stack=_stack(lock, stack, book) if stack is not None else None,
        pip=pip,
        apt=apt_actions(apt_of(stack.apt), or_none(facts.packages.apt) or {}) if stack is not None else (),
        environment=tuple(_checked(entry, folder, book) for entry in stack.environment) if stack is not None else (),
        overrides=tuple(unmet_overrides(unmet, (), {})),
        warnings=(*overlay_warnings(book), *warnings, *unmet_warnings(unmet)),
        proven=tuple(proofs(lock)),
    )
    return replace(draft, steps=steps(draft, machine, book)), ()


def _wanted(chosen: Chosen, folder: str) -> PipAction:
    package, file = chosen.package, chosen.file
    if file is None or package.version is None:
        raise InputError(
            f"the lock takes {package.name} from a folder or a repository instead of a file with a hash",
            code="lock-direct",
            hint="build a wheel of it (`pip wheel`) and lock that",
        )
    return PipAction(
        name=package.name,
        version=str(package.version),
        index=package.index,
        because=because_of(package) or (_BECAUSE,),
        file=_file(file, folder, package.index),
    )


def _file(file: LockedFile, folder: str, index: str | None) -> File:
    url = file.url or file_url(os.path.normpath(os.path.join(folder, file.path or "")))
    return File(filename=name_of(file), url=url, hashes=file.hashes, size=file.size, origin=index)


def _checked(entry: Environment, folder: str, book: Book) -> Environment:
    """Return a loader entry of a lock; raises InputError if a tool could read it as something else."""
    if entry.kind not in _KINDS:
        raise InputError(f"{entry.kind[:80]!r} is not a kind of loader entry", code="lock-invalid", hint=f"use one of {', '.join(_KINDS)}")
    if entry.kind in ("preload", "folder"):
        check_frameworks(tuple(entry.value.split()))
    if (entry.kind == "folder") != (entry.wheel is not None):
        message = f"loader entry of kind {entry.kind} {'with' if entry.wheel else 'without'} a wheel"
        raise InputError(message, code="lock-invalid", hint="`folder` needs a wheel; no other kind takes one")
    if entry.wheel is not None:
        check_pip(entry.wheel.name, entry.wheel.version)
        component = book.component(entry.wheel.name)
        if component is None or component.library != "cudnn":
            raise InputError(f"{entry.wheel.name[:80]} is not a cuDNN wheel; `folder` takes no other", code="lock-invalid")
        if entry.wheel.file is not None:
            entry = replace(entry, wheel=replace(entry.wheel, file=with_absolute_url(entry.wheel.file, folder)))
    if entry.kind == "ldconfig":
        check_folders(entry.value.split(":"))
    return entry


def apt_of(pins: Iterable[AptPin]) -> list[AptAction]:
    """Return the apt packages of a lock; raises InputError for an invalid name or version."""
    packages = [AptAction(name=pin.name, version=pin.version, repository=pin.repository, because=(_BECAUSE,)) for pin in pins]
    for package in packages:
        check_apt(package.name, package.version)
    return packages


def _stack(lock: Lock, stack: LockedStack, book: Book) -> Stack:
    bundled = bundled_cudnns(lock, stack, book)
    in_folder = {name: entry.wheel.version for entry in stack.environment if entry.wheel is not None for name in entry.value.split()}
    channel = "none" if lock.tool is not None and lock.tool.request.device == "cpu" else "apt" if stack.apt else "pip"
    return Stack(
        driver_min=stack.driver_min,
        driver_because=None,
        driver_policy="minor",
        cuda=stack.cuda,
        cudnn=stack.cudnn,
        cudnn_soname=stack.cudnn_soname,
        frameworks=tuple(
            StackFramework(
                **asdict(framework),
                cudnn=bundled.get(framework.name, in_folder.get(book.framework_of(framework.name) or framework.name, stack.cudnn)),
                libraries="bundled" if framework.name in bundled else channel,
            )
            for framework in stack.frameworks
        ),
    )
