"""Relaxation of a conflict to another driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.requirement.machine import architectures, forward_rows
from cudnn_resolve.resolution.key import DRIVER
from cudnn_resolve.resolution.model import Relaxation, Resolution
from cudnn_resolve.resolution.proposal import command, result
from cudnn_resolve.resolution.relaxation_trials import Trials
from cudnn_resolve.version import CudaVersion, DriverVersion


def other_drivers(trials: Trials) -> Iterator[Relaxation]:
    """The oldest driver that works, and a forward-compatibility package if the GPUs allow one."""
    book, machine = trials.book, trials.machine
    if DRIVER not in trials.core or machine.driver is None:
        return
    floors = [floor for major in range(9, 20) if (floor := book.floor(major)) is not None]
    known = sorted({*floors, *(row.driver for row in book.minimums())})
    newer = [driver for driver in known if driver > machine.driver]
    older = [driver for driver in reversed(known) if driver < machine.driver]

    def attempt(driver: DriverVersion) -> Resolution | None:
        change: dict[str, Any] = {"driver": driver, "native_cuda": book.native_cuda(driver)}
        return None if trials.is_in_vain(change) else trials.try_request(trials.request, **change)

    for is_newer, candidates in ((True, newer), (False, _in_supported_branches(trials, older))):
        driver, found = first_that_works(candidates, attempt)
        if driver is None or found is None:
            continue
        what = f"driver {driver} or newer" if is_newer else f"a driver of branch R{driver.major}"
        yield Relaxation(
            change=f"{what} instead of {machine.driver}, which only the machine's administrator can install",
            result=result(found),
            command=command(trials.request, change={"--driver": str(driver)}),
            distance=5,
        )
        if is_newer:
            yield from _forward_compatibility(trials, found)


def first_that_works(
    drivers: Sequence[DriverVersion], attempt: Callable[[DriverVersion], Resolution | None]
) -> tuple[DriverVersion | None, Resolution | None]:
    """The first driver with a resolution, and that resolution, found in doubling steps: a failing search may take seconds.

    Drivers after one that works also work, except for the last ones, which may no longer support a GPU.
    """
    known: dict[int, Resolution | None] = {}

    def at(place: int) -> Resolution | None:
        if place not in known:
            known[place] = attempt(drivers[place])
        return known[place]

    below, above = -1, 0
    while above < len(drivers) and at(above) is None:
        below, above = above, above + (above - below) * 2
    if above >= len(drivers):
        step = max(1, (len(drivers) - below) // 4)
        above = next((place for place in range(len(drivers) - 1, below, -step) if at(place) is not None), -1)
        if above < 0:
            return None, None
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (below, middle) if at(middle) is not None else (middle, above)
    return drivers[above], at(above)


def _in_supported_branches(trials: Trials, older: list[DriverVersion]) -> list[DriverVersion]:
    """Older drivers that support every GPU, if the installed one does not."""
    machine = trials.machine
    last_branches = [row.driver_last for row in architectures(machine.gpus, trials.book) if row.driver_last is not None]
    if not last_branches or machine.driver is None or machine.driver.major <= min(last_branches):
        return []
    return [driver for driver in older if driver.major <= min(last_branches)]


def _forward_compatibility(trials: Trials, found: Resolution) -> Iterator[Relaxation]:
    """The forward-compatibility package that makes a newer kernel driver unnecessary."""
    machine = trials.machine
    if machine.driver is None or found.cuda is None:
        return
    needed = CudaVersion(found.cuda)
    for row in forward_rows(trials.book, machine.driver, machine.gpus):
        if row.cuda.line == needed.line:
            yield Relaxation(
                change=f"apt package {row.package}, a newer user-mode driver on top of the installed one (forward compatibility: "
                f"data-center GPUs on branch R{row.base})",
                result=result(replace(found, driver_min=None)),
                command=f"apt-get install {row.package}",
                distance=4,
            )
            return
