"""Does a lock fit a machine, and what would it install there? Apart from whether the lock is still the right answer.

The rules of PEP 751, asked for a machine of which not everything need be known.

`Pylock.select` answers for a machine whose every tag and marker is known, and stops at the first thing that does not fit; a lock is
also held against machines whose Python or C library nobody knows, and every misfit is told with what the lock has and what is here.
A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from packaging.markers import Marker

from cudnn_resolve.facts.model import or_none
from cudnn_resolve.locking.model import Difference, marker_text, name_of
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.marker import NO_MARKER, marker_environment
from cudnn_resolve.resolution.tag import Target, best_file
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.pylock import Package
    from packaging.specifiers import SpecifierSet

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.locking.model import Lock, LockedFile, Source, Stack
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine, MachineGpu


class Chosen(Struct, frozen=True, kw_only=True):
    """An entry of a lock and the one thing of it that a machine installs."""

    package: Package
    source: Source

    @property
    def file(self) -> LockedFile | None:
        """The file; None for a folder and for a repository."""
        return cast("LockedFile", self.source) if hasattr(self.source, "hashes") else None


class Selection(Struct, frozen=True, kw_only=True):
    """What a machine installs from a lock, by name; where `misfits` is not empty, the lock is not for that machine."""

    chosen: tuple[Chosen, ...]
    misfits: tuple[Difference, ...]


def select(lock: Lock, machine: Machine) -> Selection:
    """The entries of the lock that the machine installs, each with its best file, and what does not fit.

    What is not known of the machine (its Python, its C library) excludes nothing.
    """
    misfits = [*_python(lock.file.requires_python, machine, None), *_platform(lock, machine)]
    chosen: list[Chosen] = []
    seen: dict[str, Package] = {}
    for package in lock.packages if not misfits else ():
        if not applies(package.marker, lock, machine):
            continue
        other = seen.setdefault(package.name, package)
        if other is not package:
            now = f"{other.version or 'one entry'} and {package.version or 'another'} are both for this machine"
            misfits.append(Difference(what=package.name, locked="one entry for each platform", now=now))
            continue
        wrong = list(_python(package.requires_python, machine, package))
        source = None if wrong else source_of(package, machine)
        if source is not None:
            chosen.append(Chosen(package=package, source=source))
        misfits += wrong if wrong or source is not None else [_without_file(package, machine)]
    return Selection(chosen=tuple(sorted(chosen, key=lambda one: one.package.name)), misfits=tuple(misfits))


def applies(marker: Marker | str | None, lock: Lock, machine: Machine) -> bool:
    """True where a marker of the lock holds on the machine; one that cannot be judged holds nowhere."""
    groups = frozenset(lock.file.default_groups or ())
    environment = {**marker_environment(machine), "extras": frozenset(), "dependency_groups": groups}
    try:
        return marker is None or Marker(str(marker)).evaluate(environment, context="lock_file")  # type: ignore[arg-type]
    except NO_MARKER:
        return False


def targets_for(lock: Lock, machine: Machine) -> tuple[str, ...]:
    """What the lock was asked for, as far as it is for the machine; empty for another program's lock."""
    said = (one.partition(";") for one in lock.tool.asked.targets) if lock.tool is not None else ()
    return tuple(text.strip() for text, _, marker in said if applies(marker.strip() or None, lock, machine))


def source_of(package: Package, machine: Machine) -> Source | None:
    """What the machine installs of an entry: the wheel that fits it best, else the source; None where nothing fits."""
    direct = package.vcs or package.directory or package.archive
    if direct is not None:
        return direct
    wheels = {name_of(one): one for one in package.wheels or ()}
    target = Target.of(machine)
    best = best_file((File(name, "", {}) for name in wheels), target)
    return wheels[best.filename] if best is not None else package.sdist


def _python(allowed: SpecifierSet | None, machine: Machine, package: Package | None) -> Iterator[Difference]:
    """The Python of the machine, where a specifier refuses it."""
    if allowed is None or machine.python is None:
        return
    full = machine.python_full or f"{machine.python[0]}.{machine.python[1]}"
    # Where only the minor is known, some patch release of it is enough.
    versions = [full] if full.count(".") > 1 else [f"{full}.{patch}" for patch in range(50)]
    if not any(allowed.contains(one, prereleases=True) for one in versions):
        because = f"{package.name} {package.version or ''} requires it".replace("  ", " ") if package is not None else None
        yield Difference(what="Python", locked=str(allowed), now=full, because=because, machine=True)


def _platform(lock: Lock, machine: Machine) -> Iterator[Difference]:
    allowed = lock.file.environments
    if allowed and not any(applies(one, lock, machine) for one in allowed):
        locked = ", ".join(one.platform for one in lock.stacks) or " or ".join(str(marker_text(one)) for one in allowed)
        yield Difference(what="platform", locked=locked, now=machine.platform, machine=True)


def _without_file(package: Package, machine: Machine) -> Difference:
    """Why an entry has no file for the machine: its C library, else its Python or its architecture."""
    what = f"{package.name} {package.version or ''}".rstrip()
    tags = sorted({File(name_of(one), "", {}).tag for one in package.wheels or ()})
    shown = ", ".join(tags[:4]) + (f" and {len(tags) - 4} more" if len(tags) > 4 else "")
    target = Target.of(machine, any_libc=True)
    if machine.glibc is not None and best_file((File(name_of(one), "", {}) for one in package.wheels or ()), target) is not None:
        now = f"glibc {machine.glibc[0]}.{machine.glibc[1]}"
        return Difference(what=what, locked=f"wheels for a newer C library: {shown}", now=now, machine=True)
    python = f"Python {machine.python_full}" if machine.python_full else "a Python that is not known"
    if machine.free_threaded:
        python += " without the GIL"
    return Difference(what=what, locked=f"wheels for {shown}", now=f"{python} on {machine.platform}", machine=True)


def fit(lock: Lock, facts: Facts, book: Book, *, installed: bool = True) -> tuple[Difference, ...]:
    """What of the lock does not fit the machine behind these facts: platform, Python, files, driver, GPUs and apt packages.

    What the facts do not know is not held against it. Without `installed`, apt packages may still have to be installed.
    """
    machine = machine_of(facts, book)
    found = list(select(lock, machine).misfits)
    stack = lock.stack(machine.platform)
    if stack is not None:
        found += _driver(stack, machine)
        found += (one for gpu in machine.gpus for one in _gpu(stack, gpu, machine))
        packages = or_none(facts.packages.apt)
        if installed and packages is not None:
            found += _apt(stack, packages)
    return tuple(found)


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
