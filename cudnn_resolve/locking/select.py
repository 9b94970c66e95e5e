"""What a lock installs on a machine, and where it is not for its platform or Python.

These are the rules of PEP 751, for a machine of which not everything needs to be known. `Pylock.select` answers for a machine whose
every tag and marker is known, and stops at the first mismatch; a lock is also compared with machines whose Python or C library is
unknown, and every mismatch is reported with what the lock has and what the machine has. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from packaging.markers import Marker

from cudnn_resolve.errors import first_few
from cudnn_resolve.locking.model import Difference, marker_text, name_of
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.marker import MARKER_ERRORS, marker_environment
from cudnn_resolve.resolution.tag import TargetPython, best_file

if TYPE_CHECKING:
    from packaging.pylock import Package
    from packaging.specifiers import SpecifierSet

    from cudnn_resolve.locking.model import Lock, LockedFile, Source
    from cudnn_resolve.requirement.machine import Machine


class Chosen(Struct, frozen=True, kw_only=True):
    """An entry of a lock, and the file, folder or repository of it that a machine installs."""

    package: Package
    source: Source

    @property
    def file(self) -> LockedFile | None:
        """The file; None for a folder or a repository."""
        return cast("LockedFile", self.source) if hasattr(self.source, "hashes") else None


class Selection(Struct, frozen=True, kw_only=True):
    """What a machine installs from a lock, by name; if there are `differences`, the lock is not for that machine."""

    chosen: tuple[Chosen, ...]
    differences: tuple[Difference, ...]


def select(lock: Lock, machine: Machine) -> Selection:
    """Choose the best source of each entry that the machine installs, and report what does not fit.

    Unknown properties of the machine (its Python, its C library) exclude nothing.
    """
    differences = [*_python_differences(lock.file.requires_python, machine, None), *_platform_differences(lock, machine)]
    chosen: list[Chosen] = []
    seen: dict[str, Package] = {}
    for package in lock.packages if not differences else ():
        if not applies(package.marker, lock, machine):
            continue
        other = seen.setdefault(package.name, package)
        if other is not package:
            now = f"{other.version or 'one entry'} and {package.version or 'another'} are both for this machine"
            differences.append(Difference(what=package.name, locked="one entry for each platform", now=now))
            continue
        wrong_python = list(_python_differences(package.requires_python, machine, package))
        source = None if wrong_python else source_of(package, machine)
        if source is not None:
            chosen.append(Chosen(package=package, source=source))
        else:
            differences += wrong_python or [_missing_file(package, machine)]
    return Selection(chosen=tuple(sorted(chosen, key=lambda one: one.package.name)), differences=tuple(differences))


def applies(marker: Marker | str | None, lock: Lock, machine: Machine) -> bool:
    """True if a marker of the lock holds on the machine; an invalid one holds nowhere."""
    groups = frozenset(lock.file.default_groups or ())
    environment = {**marker_environment(machine), "extras": frozenset(), "dependency_groups": groups}
    try:
        return marker is None or Marker(str(marker)).evaluate(environment, context="lock_file")  # type: ignore[arg-type]
    except MARKER_ERRORS:
        return False


def installed_packages(lock: Lock, machine: Machine) -> dict[str, Package]:
    """The entries that a machine installs, by name."""
    return {package.name: package for package in lock.packages if applies(package.marker, lock, machine)}


def targets_for(lock: Lock, machine: Machine) -> tuple[str, ...]:
    """The requested targets whose markers hold on the machine; empty for a lock of another program."""
    targets = (target.partition(";") for target in lock.tool.request.targets) if lock.tool is not None else ()
    return tuple(text.strip() for text, _, marker in targets if applies(marker.strip() or None, lock, machine))


def source_of(package: Package, machine: Machine) -> Source | None:
    """What the machine installs of an entry: the wheel that fits best, else the source archive; None if nothing fits."""
    direct = package.vcs or package.directory or package.archive
    if direct is not None:
        return direct
    wheels = {name_of(wheel): wheel for wheel in package.wheels or ()}
    best = best_file(_files(wheels), TargetPython.of(machine))
    return wheels[best.filename] if best is not None else package.sdist


def _files(names: Iterable[str]) -> Iterator[File]:
    return (File(name, "", {}) for name in names)


def _python_differences(allowed: SpecifierSet | None, machine: Machine, package: Package | None) -> Iterator[Difference]:
    """The Python of the machine, if a specifier excludes it."""
    if allowed is None or machine.python is None:
        return
    full = machine.python_full or f"{machine.python[0]}.{machine.python[1]}"
    # If only the minor is known, one allowed patch release is enough.
    versions = [full] if full.count(".") > 1 else [f"{full}.{patch}" for patch in range(50)]
    if not any(allowed.contains(version, prereleases=True) for version in versions):
        because = f"{_label(package)} requires it" if package is not None else None
        yield Difference(what="Python", locked=str(allowed), now=full, because=because, machine=True)


def _label(package: Package) -> str:
    return f"{package.name} {package.version or ''}".rstrip()


def _platform_differences(lock: Lock, machine: Machine) -> Iterator[Difference]:
    allowed = lock.file.environments
    if allowed and not any(applies(marker, lock, machine) for marker in allowed):
        locked = ", ".join(stack.platform for stack in lock.stacks) or " or ".join(str(marker_text(marker)) for marker in allowed)
        yield Difference(what="platform", locked=locked, now=machine.platform, machine=True)


def _missing_file(package: Package, machine: Machine) -> Difference:
    """Why an entry has no file for the machine: because of its C library, else of its Python or architecture."""
    names = [name_of(wheel) for wheel in package.wheels or ()]
    tags = sorted({file.tag for file in _files(names)})
    shown = first_few(tags, 4)
    if machine.glibc is not None and best_file(_files(names), TargetPython.of(machine, any_libc=True)) is not None:
        now = f"glibc {machine.glibc[0]}.{machine.glibc[1]}"
        return Difference(what=_label(package), locked=f"wheels for a newer C library: {shown}", now=now, machine=True)
    python = f"Python {machine.python_full}" if machine.python_full else "an unknown Python"
    threading = " (free-threaded)" if machine.free_threaded else ""
    return Difference(what=_label(package), locked=f"wheels for {shown}", now=f"{python}{threading} on {machine.platform}", machine=True)
