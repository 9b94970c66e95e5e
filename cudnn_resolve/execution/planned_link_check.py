"""Link check of a planned change, made when every file is on this disk and before the environment is touched."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.errors import CudnnResolveError, ExitCode
from cudnn_resolve.evidence.link_check import BrokenLink, Site, broken_links, explain, is_imported, is_of_cuda
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.host.link_site import (
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
    from cudnn_resolve.execution.supply import Supply
    from cudnn_resolve.execution.task import Task, Work

_MOST_LISTED = 4


class LinkError(CudnnResolveError):
    """Libraries of the planned environment would not load."""

    exit_code = ExitCode.NO


def check_links(task: Task, work: Work, journal: Journal, supply: Supply) -> tuple[str, ...]:
    """Return warnings about libraries that the change leaves unable to load; raises LinkError if they belong to the plan.

    Libraries that do not load now are ignored.
    """
    coming = {wheel.name for wheel in supply.all_wheels}
    changed = {*task.remove, *coming}
    if not changed:
        return ()
    system = SystemLibraries(work.host, work.environment.python)
    planned = _planned_site(work, journal, supply, changed, system)
    broken = [link for link in broken_links(planned) if not (is_of_cuda(link.name) and _is_excused(task, planned, link))]
    if not broken:
        return ()
    installed = installed_site(work.host, work.environment.packages, system, open_book())
    broken_before = {(link.package, link.name, link.version) for link in broken_links(installed)}
    broken = [link for link in broken if (link.package, link.name, link.version) not in broken_before]
    ours = {*task.pinned, *coming}
    fatal = [link for link in broken if link.severity == "error" and link.package in ours]
    if fatal and not work.force:
        raise _link_error(fatal, planned)
    return tuple(f"warning: {text}" for text in _explanations(broken, planned))


def _is_excused(task: Task, site: Site, link: BrokenLink) -> bool:
    """True for a CUDA library that apt installs first, or that only GPU code would load of a framework requested without."""
    return bool(task.apt) or (link.package in task.without_gpu and not is_imported(site, link))


def _planned_site(work: Work, journal: Journal, supply: Supply, leaving: Collection[str], system: SystemLibraries) -> Site:
    """The environment as it will be: packages that stay, and packages that come."""
    host, environment = work.host, work.environment
    libraries = list(installed_libraries(host, environment.packages, leaving=leaving))
    packages = declared(host, environment.packages, leaving=leaving)
    if supply.is_staged:
        site = environment.scheme["purelib"]
        staged_site = f"{journal.folder}/{STAGING}{site.removeprefix(environment.prefix)}"
        libraries += installed_libraries(host, (staged_site,), at={staged_site: site})
        packages |= declared(host, (staged_site,))
    for wheel in supply.all_wheels:
        if wheel.path:  # staged wheels have none
            site, info = os.path.split(wheel.info)
            name = wheel.name.partition(" ")[0]
            libraries += wheel_libraries(wheel.path, name, site, system.arch, journal.folder)
            packages.setdefault(name, (wheel.version, wheel_declared(wheel.path, info)))
    return planned_site(libraries, packages, system, open_book())


def _explanations(links: Sequence[BrokenLink], site: Site) -> list[str]:
    """One text per package and missing library."""
    book = open_book()
    texts: dict[tuple[str, str], str] = {}
    for link in links:
        texts.setdefault((link.package, link.name), explain(site, link, book)[0])
    return list(texts.values())


def _link_error(links: Sequence[BrokenLink], site: Site) -> LinkError:
    texts = _explanations(links, site)
    more = f"\n  and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    return LinkError(
        "the planned environment would not load:\n  " + "\n  ".join(texts[:_MOST_LISTED]) + more,
        code="would-not-load",
        hint="nothing was changed; plan again with the index, or install anyway with --force",
    )
