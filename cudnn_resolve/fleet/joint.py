"""Classes combined into one machine that stands for all of them, and the fewest classes that prevent a common answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, Gpu, Packages, Platform, Python, or_none
from cudnn_resolve.fleet.model import FleetClass
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine, machine_of

Fits = Callable[[Sequence["FleetClass"]], bool]
_MAX_SETS = 20_000
"""Limit on sets of classes that are compared for the smallest one."""


def joint(classes: Iterable[FleetClass], book: Book) -> tuple[Facts, ...]:
    """A machine for each architecture, with the oldest driver, the oldest C library, and every GPU; its environment is empty."""
    by_arch: dict[str, list[tuple[Facts, Machine]]] = {}
    for group in classes:
        machine = machine_of(group.facts, book)
        by_arch.setdefault(machine.arch, []).append((group.facts, machine))
    return tuple(_joined(arch, rows) for arch, rows in sorted(by_arch.items(), reverse=True))


def _joined(arch: str, rows: Sequence[tuple[Facts, Machine]]) -> Facts:
    machines = [machine for _, machine in rows]
    drivers = [machine.driver for machine in machines if machine.driver is not None]
    gpus = (gpu for facts, _ in rows for gpu in or_none(facts.gpus) or () if not gpu.hidden)
    platforms = {(facts.platform.distribution, facts.platform.release) for facts, _ in rows}
    distribution, release = platforms.pop() if len(platforms) == 1 else (None, None)
    libraries = [machine.glibc for machine in machines if machine.glibc is not None]
    pythons = (
        Python(version="{}.{}".format(*machine.python), free_threaded=machine.free_threaded)
        for machine in machines
        if machine.python is not None
    )
    is_without_driver = all(machine.driver_absent for machine in machines)
    return Facts(
        platform=Platform(
            system="linux",
            arch=arch,
            distribution=distribution,
            release=release,
            glibc="{}.{}".format(*min(libraries)) if libraries else None,
        ),
        python=next(pythons, Python()),
        driver=Driver(version=str(min(drivers))) if drivers else None if is_without_driver else UNKNOWN,
        gpus=tuple(dict.fromkeys(Gpu(name=gpu.name, compute_capability=gpu.compute_capability) for gpu in gpus)) or UNKNOWN,
        cuda_toolkits=(),
        cudnn=(),
        frameworks=(),
        packages=Packages(pip={}, apt={}),
        root=all(machine.root for machine in machines) or None,
    )


def python_of(group: FleetClass) -> str | None:
    """Python version of a class, as for a lock: `3.11`, `3.13t`."""
    python = group.facts.python
    return None if python.version is None else python.minor + ("t" if python.free_threaded else "")


def left_out(classes: Sequence[FleetClass], fits: Fits, allowed: Callable[[], bool]) -> tuple[tuple[FleetClass, ...], bool]:
    """The classes with the fewest hosts to drop so that the others fit together; False if fewer might do.

    Finds minimal sets of classes that do not fit together, one after the other, until the cheapest choice that hits all of them leaves
    classes that fit. `allowed` returns False when no more may be tried.
    """
    best, is_fewest = tuple(classes), True
    for python in sorted({python_of(group) for group in classes} - {None}, key=str) or [None]:
        same = [group for group in classes if python_of(group) in (python, None)]
        others = [group for group in classes if group not in same]
        if _count_hosts(others) >= _count_hosts(best):
            continue
        dropped, is_known = _dropped(same, fits, allowed)
        is_fewest = is_fewest and is_known
        if _count_hosts([*others, *dropped]) < _count_hosts(best):
            best = (*others, *dropped)
    return best, is_fewest


def _count_hosts(classes: Iterable[FleetClass]) -> int:
    return sum(len(group.hosts) for group in classes)


def _dropped(classes: Sequence[FleetClass], fits: Fits, allowed: Callable[[], bool]) -> tuple[tuple[FleetClass, ...], bool]:
    """Like `left_out`, for classes of one Python."""
    cores: list[tuple[FleetClass, ...]] = []
    while allowed():
        names = {group.name for group in _smallest_hitting_set(cores)}
        rest = [group for group in classes if group.name not in names]
        if not rest or fits(rest):
            return tuple(group for group in classes if group.name in names), True
        cores.append(_core(rest, fits))
    together: list[FleetClass] = []  # greedy: the largest classes first
    for group in sorted(classes, key=lambda group: -len(group.hosts)):
        if fits([*together, group]):
            together.append(group)
    return tuple(group for group in classes if group not in together), False


def _core(classes: Sequence[FleetClass], fits: Fits) -> tuple[FleetClass, ...]:
    """A minimal set of classes that do not fit together."""
    needed: list[FleetClass] = []
    rest = list(classes)
    while not (needed and not fits(needed)):
        low, high = 0, len(rest)  # the shortest prefix that does not fit ends with a needed class
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if not fits([*needed, *rest[:middle]]) else (middle, high)
        needed.append(rest[high - 1])
        rest = rest[: high - 1]
    return tuple(needed)


def _smallest_hitting_set(cores: Sequence[Sequence[FleetClass]]) -> tuple[FleetClass, ...]:
    """The classes with the fewest hosts that include one of each core."""
    best: list[tuple[FleetClass, ...]] = []
    tried = 0

    def choose(chosen: tuple[FleetClass, ...]) -> None:
        nonlocal tried
        tried += 1
        if (best and _count_hosts(chosen) >= _count_hosts(best[0])) or (best and tried > _MAX_SETS):
            return
        names = {group.name for group in chosen}
        core = next((core for core in cores if names.isdisjoint(group.name for group in core)), None)
        if core is None:
            best[:] = [chosen]
            return
        for group in sorted(core, key=lambda group: len(group.hosts)):
            choose((*chosen, group))

    choose(())
    return best[0]
