"""Another driver as a way out of a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.requirement.machine import forward_rows
from cudnn_resolve.resolution.key import DRIVER
from cudnn_resolve.resolution.model import Relaxation, Resolution
from cudnn_resolve.resolution.proposal import command, result
from cudnn_resolve.resolution.trials import Trials
from cudnn_resolve.version import CudaVersion, DriverVersion


def other_drivers(trials: Trials) -> Iterator[Relaxation]:
    """The oldest driver that would do, and the forward-compatibility package where the cards allow one."""
    book, machine = trials.book, trials.machine
    if DRIVER not in trials.core or machine.driver is None:
        return
    floors = [floor for major in range(9, 20) if (floor := book.floor(major)) is not None]
    known = sorted({*floors, *(row.driver for row in book.minimums())})
    newer = [one for one in known if one > machine.driver]
    older = [one for one in reversed(known) if one < machine.driver]

    def tried(driver: DriverVersion) -> Resolution | None:
        change = {"driver": driver, "native_cuda": book.native_cuda(driver)}
        return None if trials.is_in_vain(change) else trials.on(**change)

    for word, candidates in (("newer", newer), ("older", _of_last_branches(trials, older))):
        driver, found = first_that_works(candidates, tried)
        if driver is None or found is None:
            continue
        what = f"driver {driver} or newer" if word == "newer" else f"a driver of branch R{driver.major}"
        yield Relaxation(
            change=f"{what} instead of {machine.driver}, which only the machine's administrator can install",
            result=result(found),
            command=command(trials.request, change={"--driver": str(driver)}),
            distance=5,
        )
        if word == "newer":
            yield from _forward(trials, found)


def first_that_works(
    drivers: Sequence[DriverVersion], tried: Callable[[DriverVersion], Resolution | None]
) -> tuple[DriverVersion | None, Resolution | None]:
    """The first driver with which there is a plan, and that plan, found in steps that double: a search that fails may take seconds.

    What works with one driver works with those behind it, but for the last ones, which may no longer know a card.
    """
    known: dict[int, Resolution | None] = {}

    def at(place: int) -> Resolution | None:
        if place not in known:
            known[place] = tried(drivers[place])
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


def _of_last_branches(trials: Trials, older: list[DriverVersion]) -> list[DriverVersion]:
    """Of older drivers those of branches that still support every GPU, where the installed one does not."""
    machine = trials.machine
    rows = [trials.book.architecture(gpu.capability) for gpu in machine.gpus if gpu.capability is not None]
    lasts = [row.driver_last for row in rows if row is not None and row.driver_last is not None]
    if not lasts or machine.driver is None or machine.driver.major <= min(lasts):
        return []
    return [driver for driver in older if driver.major <= min(lasts)]


def _forward(trials: Trials, found: Resolution) -> Iterator[Relaxation]:
    """The forward-compatibility package that makes up for the driver."""
    machine = trials.machine
    if machine.driver is None or found.cuda is None:
        return
    needed = CudaVersion(found.cuda)
    for row in forward_rows(trials.book, machine.driver, machine.gpus):
        if row.cuda.line == needed.line:
            yield Relaxation(
                change=f"apt package {row.package}, a newer user-mode driver beside the installed one (forward compatibility: "
                f"data-center GPUs on branch R{row.base})",
                result=result(replace(found, driver_min=None)),
                command=f"apt-get install {row.package}",
                distance=4,
            )
            return
