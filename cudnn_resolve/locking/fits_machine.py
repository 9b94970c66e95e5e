"""What of a lock does not fit a machine: platform, Python, files, driver, GPUs, apt packages."""

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


def machine_differences(lock: Lock, facts: Facts, book: Book, *, installed: bool = True) -> tuple[Difference, ...]:
    """What of a lock does not fit a machine: platform, Python, files, driver, GPUs and apt packages.

    Unknown facts exclude nothing. Without `installed`, apt packages may still have to be installed.
    """
    machine = machine_of(facts, book)
    found = list(select(lock, machine).differences)
    stack = lock.stack(machine.platform)
    if stack is not None:
        found += _driver_differences(stack, machine)
        found += (difference for gpu in machine.gpus for difference in _gpu_differences(stack, gpu, machine))
        packages = or_none(facts.packages.apt)
        if installed and packages is not None:
            found += _apt_differences(stack, packages)
    return tuple(found)


def _driver_differences(stack: Stack, machine: Machine) -> Iterator[Difference]:
    if stack.driver_min is None:
        return
    locked = f"NVIDIA driver {stack.driver_min} or newer"
    if machine.driver_absent:
        yield Difference(what="driver", locked=locked, now="no NVIDIA driver", machine=True)
    elif machine.user_driver is not None and machine.user_driver < DriverVersion(stack.driver_min):
        yield Difference(what="driver", locked=locked, now=f"driver {machine.driver_text}", machine=True)


def _gpu_differences(stack: Stack, gpu: MachineGpu, machine: Machine) -> Iterator[Difference]:
    own = gpu.capability
    native = [Capability.parse(text) for text in stack.compute_capabilities]
    ptx = [Capability.parse(text) for text in stack.ptx_capabilities]
    if own is None or not (native or ptx) or own in native:
        return
    code = f"code for compute capability {', '.join(stack.compute_capabilities)}" if native else "no machine code"
    if own not in ptx:
        yield Difference(what="gpu", locked=code, now=gpu.label, machine=True)
    elif stack.ptx_driver_min is not None and machine.user_driver is not None and machine.user_driver < DriverVersion(stack.ptx_driver_min):
        now = f"{gpu.label} with driver {machine.driver_text}"
        because = f"for {own} it has only PTX, which needs driver {stack.ptx_driver_min} or newer"
        yield Difference(what="gpu", locked=code, now=now, because=because, machine=True)


def _apt_differences(stack: Stack, packages: Mapping[str, str]) -> Iterator[Difference]:
    for pin in stack.apt:
        here = packages.get(pin.name)
        if here != pin.version:
            yield Difference(what=f"apt package {pin.name}", locked=pin.version, now=here or "not installed", machine=True)
