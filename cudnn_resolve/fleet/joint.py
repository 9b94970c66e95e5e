"""All classes as one machine: what fits it fits each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, Gpu, Packages, Platform, Python, or_none
from cudnn_resolve.fleet.model import FleetClass
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine, machine_of

Fits = Callable[[Sequence["FleetClass"]], bool]
_BRANCHES = 20_000
"""Sets of classes that are compared for the smallest one."""


def joint(classes: Iterable[FleetClass], book: Book) -> tuple[Facts, ...]:
    """A machine for each architecture: the oldest driver, the oldest C library, and every GPU of the classes; a new environment on it."""
    found: dict[str, list[tuple[Facts, Machine]]] = {}
    for one in classes:
        machine = machine_of(one.facts, book)
        found.setdefault(machine.arch, []).append((one.facts, machine))
    return tuple(_joined(arch, rows) for arch, rows in sorted(found.items(), reverse=True))


def _joined(arch: str, rows: Sequence[tuple[Facts, Machine]]) -> Facts:
    machines = [machine for _, machine in rows]
    drivers = [one.driver for one in machines if one.driver is not None]
    gpus = (gpu for facts, _ in rows for gpu in or_none(facts.gpus) or () if not gpu.hidden)
    platforms = {(facts.platform.distribution, facts.platform.release) for facts, _ in rows}
    distribution, release = platforms.pop() if len(platforms) == 1 else (None, None)
    libraries = [one.glibc for one in machines if one.glibc is not None]
    python = next((one for one in machines if one.python is not None), None)
    absent = all(one.driver_absent for one in machines)
    return Facts(
        platform=Platform(
            system="linux",
            arch=arch,
            distribution=distribution,
            release=release,
            glibc="{}.{}".format(*min(libraries)) if libraries else None,
        ),
        python=Python(version="{}.{}".format(*python.python), free_threaded=python.free_threaded) if python and python.python else Python(),
        driver=Driver(version=str(min(drivers))) if drivers else None if absent else UNKNOWN,
        gpus=tuple(dict.fromkeys(Gpu(name=one.name, compute_capability=one.compute_capability) for one in gpus)) or UNKNOWN,
        cuda_toolkits=(),
        cudnn=(),
        frameworks=(),
        packages=Packages(pip={}, apt={}),
        root=all(one.root for one in machines) or None,
    )


def python_of(one: FleetClass) -> str | None:
    """The Python of a class as a lock is for one: `3.11`, `3.13t`."""
    version = one.facts.python.version
    return None if version is None else ".".join(version.split(".")[:2]) + ("t" if one.facts.python.free_threaded else "")


def left_out(classes: Sequence[FleetClass], fits: Fits, allowed: Callable[[], bool]) -> tuple[tuple[FleetClass, ...], bool]:
    """The classes with the fewest hosts without which the others fit together; False where it may be more than the fewest.

    Classes that cannot go together are found one set after the other; the cheapest choice that breaks all of them is the answer as soon
    as the rest fits. `allowed`: False where no more may be tried.
    """
    best, is_fewest = tuple(classes), True
    for python in sorted({python_of(one) for one in classes} - {None}, key=str) or [None]:
        same = [one for one in classes if python_of(one) in (python, None)]
        others = [one for one in classes if one not in same]
        if _hosts(others) >= _hosts(best):
            continue
        found, is_known = _without(same, fits, allowed)
        is_fewest = is_fewest and is_known
        if _hosts([*others, *found]) < _hosts(best):
            best = (*others, *found)
    return best, is_fewest


def _hosts(classes: Iterable[FleetClass]) -> int:
    return sum(len(one.hosts) for one in classes)


def _without(classes: Sequence[FleetClass], fits: Fits, allowed: Callable[[], bool]) -> tuple[tuple[FleetClass, ...], bool]:
    cores: list[tuple[FleetClass, ...]] = []
    while allowed():
        dropped = {one.name for one in _fewest(cores)}
        rest = [one for one in classes if one.name not in dropped]
        if not rest or fits(rest):
            return tuple(one for one in classes if one.name in dropped), True
        cores.append(_core(rest, fits))
    together: list[FleetClass] = []  # the largest first, as long as they go together
    for one in sorted(classes, key=lambda one: -len(one.hosts)):
        if fits([*together, one]):
            together.append(one)
    return tuple(one for one in classes if one not in together), False


def _core(classes: Sequence[FleetClass], fits: Fits) -> tuple[FleetClass, ...]:
    """Classes that do not fit together, none of which can be spared for that."""
    needed: list[FleetClass] = []
    rest = list(classes)
    while not (needed and not fits(needed)):
        low, high = 0, len(rest)  # the shortest beginning that does not fit ends with one that is needed
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if not fits([*needed, *rest[:middle]]) else (middle, high)
        needed.append(rest[high - 1])
        rest = rest[: high - 1]
    return tuple(needed)


def _fewest(cores: Sequence[Sequence[FleetClass]]) -> tuple[FleetClass, ...]:
    """The classes with the fewest hosts of which each core has one."""
    best: list[tuple[FleetClass, ...]] = []
    tried = 0

    def choose(chosen: tuple[FleetClass, ...]) -> None:
        nonlocal tried
        tried += 1
        if (best and _hosts(chosen) >= _hosts(best[0])) or (best and tried > _BRANCHES):
            return
        names = {one.name for one in chosen}
        core = next((core for core in cores if names.isdisjoint(one.name for one in core)), None)
        if core is None:
            best[:] = [chosen]
            return
        for one in sorted(core, key=lambda one: len(one.hosts)):
            choose((*chosen, one))

    choose(())
    return best[0]
