"""The link check of a change: every file is on this disk, and nothing of the environment has been touched."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.errors import CudnnResolveError, ExitCode
from cudnn_resolve.evidence.link_check import BrokenLink, Site, broken_links, explain, is_imported, is_of_cuda
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.host.libraries import (
    SystemLibraries,
    declared,
    installed_libraries,
    installed_site,
    planned_site,
    wheel_declared,
    wheel_libraries,
)
from cudnn_resolve.host.tables import open_book

if TYPE_CHECKING:
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.execution.wheel import Wheel

_SHOWN = 4


class LinkError(CudnnResolveError):
    """Libraries of the planned environment would not load."""

    exit_code = ExitCode.NO


def check_links(task: Task, work: Work, journal: Journal, wheels: Sequence[Wheel], *, staged: bool) -> tuple[str, ...]:
    """What the change would leave unable to load, as notes where it stops nobody; LinkError where a package of the plan would not load.

    What does not load as it is is left out.
    """
    changed = {*task.remove, *(wheel.name for wheel in wheels)}
    if not changed:
        return ()
    system = SystemLibraries(work.host, work.environment.python)
    planned = _planned(work, journal, wheels, changed, system, staged=staged)
    found = [one for one in broken_links(planned) if not (is_of_cuda(one.name) and _is_spared(task, planned, one))]
    if not found:
        return ()
    known = {
        (one.package, one.name, one.version)
        for one in broken_links(installed_site(work.host, work.environment.packages, system, open_book(())))
    }
    found = [one for one in found if (one.package, one.name, one.version) not in known]
    ours = {*(task.pinned or {}), *(wheel.name for wheel in wheels)}
    stopping = [one for one in found if one.severity == "error" and one.package in ours]
    if stopping and not work.force:
        raise _refusal(stopping, planned)
    return tuple(f"warning: {text}" for text in _told(found, planned))


def _is_spared(task: Task, site: Site, link: BrokenLink) -> bool:
    """True for a CUDA library that apt brings before it is needed, or that only the use of a GPU loads where none is asked for."""
    return bool(task.apt) or (link.package in task.without_gpu and not is_imported(site, link))


def _planned(
    work: Work, journal: Journal, wheels: Sequence[Wheel], leaving: Collection[str], system: SystemLibraries, *, staged: bool
) -> Site:
    """The environment as it will be: what stays, and what comes."""
    host, environment = work.host, work.environment
    libraries = list(installed_libraries(host, environment.packages, leaving=leaving))
    packages = declared(host, environment.packages, leaving=leaving)
    if staged:
        place = environment.scheme["purelib"]
        root = f"{journal.folder}/{STAGING}{place.removeprefix(environment.prefix)}"
        libraries += installed_libraries(host, (root,), at={root: place})
        packages |= declared(host, (root,))
    for wheel in wheels:
        if wheel.path:  # else it is staged
            place, info = os.path.split(wheel.info)
            name = wheel.name.partition(" ")[0]
            libraries += wheel_libraries(wheel.path, name, place, system.arch, journal.folder)
            packages.setdefault(name, (wheel.version, wheel_declared(wheel.path, info)))
    return planned_site(tuple(libraries), packages, system, open_book(()))


def _told(found: Iterable[BrokenLink], site: Site) -> Iterable[str]:
    book = open_book(())
    texts: dict[tuple[str, str], str] = {}
    for one in found:
        texts.setdefault((one.package, one.name), explain(site, one, book)[0])
    return texts.values()


def _refusal(found: Sequence[BrokenLink], site: Site) -> LinkError:
    texts = list(_told(found, site))
    more = f"\n  and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return LinkError(
        "the planned environment would not load:\n  " + "\n  ".join(texts[:_SHOWN]) + more,
        code="would-not-load",
        hint="nothing was changed; plan again with the index, or add --force to install it all the same",
    )
