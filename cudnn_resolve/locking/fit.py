"""Does a lock fit a machine? Its own question, apart from whether the lock is still the right answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.facts.model import or_none
from cudnn_resolve.locking.model import Difference
from cudnn_resolve.locking.select import select
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.locking.model import Lock, Stack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine, MachineGpu


def fit(lock: Lock, facts: Facts, book: Book, *, installed: bool = True) -> tuple[Difference, ...]:
    """What of the lock does not fit the machine behind these facts: platform, Python, files, driver, GPUs and apt packages.

    What the facts do not know is not held against it. Without `installed`, apt packages may still have to be installed.
    """
    machine = machine_of(facts, book)
    found = list(select(lock, machine).misfits)
    stack = stack_for(lock, machine)
    if stack is not None:
        found += _driver(stack, machine)
        found += (one for gpu in machine.gpus for one in _gpu(stack, gpu, machine))
        packages = or_none(facts.packages.apt)
        if installed and packages is not None:
            found += _apt(stack, packages)
    return tuple(found)


def stack_for(lock: Lock, machine: Machine) -> Stack | None:
    """The stack of the lock for the platform of a machine; None where it has none."""
    stacks = lock.tool.stacks if lock.tool is not None else ()
    return next((one for one in stacks if one.platform == f"linux_{machine.arch}"), None)


def _driver(stack: Stack, machine: Machine) -> Iterator[Difference]:
    if stack.driver_min is None:
        return
    locked = f"NVIDIA driver {stack.driver_min} or newer"
    if machine.driver_absent:
        yield Difference(what="driver", locked=locked, now="no NVIDIA driver", machine=True)
    elif machine.user_driver is not None and machine.user_driver < DriverVersion(stack.driver_min):
        yield Difference(what="driver", locked=locked, now=f"driver {machine.driver_text}", machine=True)


def _gpu(stack: Stack, gpu: MachineGpu, machine: Machine) -> Iterator[Difference]:
    own = gpu.capability
    native = [Capability.parse(one) for one in stack.compute_capabilities]
    ptx = [Capability.parse(one) for one in stack.ptx_capabilities]
    if own is None or not (native or ptx) or own in native:
        return
    code = f"code for compute capability {', '.join(stack.compute_capabilities)}" if native else "no machine code"
    if own not in ptx:
        yield Difference(what="gpu", locked=code, now=gpu.label, machine=True)
    elif stack.ptx_driver_min is not None and machine.user_driver is not None and machine.user_driver < DriverVersion(stack.ptx_driver_min):
        now = f"{gpu.label} with driver {machine.driver_text}"
        because = f"for {own} it has only PTX, which a driver from {stack.ptx_driver_min} on compiles"
        yield Difference(what="gpu", locked=code, now=now, because=because, machine=True)


def _apt(stack: Stack, packages: Mapping[str, str]) -> Iterator[Difference]:
    for one in stack.apt:
        here = packages.get(one.name)
        if here != one.version:
            yield Difference(what=f"apt package {one.name}", locked=one.version, now=here or "not installed", machine=True)
