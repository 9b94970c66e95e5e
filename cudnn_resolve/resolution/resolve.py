"""Resolve a request on a machine, or on several platforms together, to a resolution or a conflict."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.source import Source
from cudnn_resolve.resolution.marker import NO_TARGET
from cudnn_resolve.resolution.model import Conflict, Failure, Relaxation, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest, Progress, open_request
from cudnn_resolve.resolution.strategies import PYTHONS, attempt, with_python
from cudnn_resolve.resolution.unknown_extra import refuse_unknown_extras


def resolve(
    book: Book, machine: Machine, request: Request, source: Source | None = None, *, progress: Progress | None = None
) -> Resolution | Conflict:
    """The resolution, or the conflict with what would work instead.

    Packages come from `source`, or from the matrix without one; `progress` is called at each step of the searches.
    """
    opened = _open(request, source, progress)
    found = _solve(book, machine, opened)
    if isinstance(found, Resolution):
        return found
    from cudnn_resolve.resolution.conflict import explain  # only a conflict pays for this import

    return explain(book, machine, opened, found)


def resolved(
    book: Book, machine: Machine, request: Request, source: Source | None = None, *, progress: Progress | None = None
) -> Resolution | None:
    """The resolution, or None without an explanation, for a machine that is one of several alternatives."""
    found = _solve(book, machine, _open(request, source, progress))
    return found if isinstance(found, Resolution) else None


def _solve(book: Book, machine: Machine, request: OpenRequest) -> Resolution | Failure:
    refuse_unknown_extras(book, request)
    found = attempt(book, machine, request)
    return _with_what_remains(book, machine, request, found) if isinstance(found, Resolution) else found


def _open(request: Request, source: Source | None, progress: Progress | None) -> OpenRequest:
    """Open a request; it is for CPU builds if the extras of all its targets ask for them."""
    opened = open_request(request, source, progress)
    targets = (*opened.targets, *opened.conditional)
    return replace(opened, device="cpu") if targets and all(CPU in target.extras for target in targets) else opened


def _with_what_remains(book: Book, machine: Machine, request: OpenRequest, found: Resolution) -> Resolution:
    """Add what the configured indexes alone would give to a resolution with unreachable indexes."""
    if not found.unreached or not request.variant_indexes:
        return found
    other = attempt(book, machine, replace(request, variant_indexes=False))
    if not isinstance(other, Resolution):
        return found
    from cudnn_resolve.resolution.proposal import command, result

    line = command(request, change={"--no-variant-indexes": ""})
    change = "--no-variant-indexes: use the configured index only"
    return replace(found, remains=Relaxation(change=change, result=result(other), command=line))


Platforms = Sequence[tuple[Machine, OpenRequest]]
"""The machine of each platform, and the request for it."""


def resolve_together(book: Book, platforms: Platforms) -> list[Resolution] | tuple[int, Conflict]:
    """A resolution for each platform, all on the same Python; otherwise the number of a platform without one, and its conflict."""
    for python in PYTHONS if platforms[0][0].python is None else (None,):
        found = []
        for machine, request in platforms:
            candidate = machine if python is None else with_python(machine, python)
            resolution = _on_platform(book, candidate, request, is_python_open=python is not None)
            if resolution is None:
                break
            found.append(resolution)
        if len(found) == len(platforms):
            return found
    return _conflict(book, platforms)


def _on_platform(book: Book, machine: Machine, request: OpenRequest, *, is_python_open: bool) -> Resolution | None:
    """The resolution on a platform; None without an explanation."""
    try:
        found = attempt(book, machine, request)
    except UsageError as error:
        if not is_python_open or error.code != NO_TARGET:
            raise
        return None  # no target on this Python; another one may have some
    return _with_what_remains(book, machine, request, found) if isinstance(found, Resolution) else None


def _conflict(book: Book, platforms: Platforms) -> tuple[int, Conflict]:
    """The first platform without a resolution; if each has one on some Python, the first without one on an earlier platform's Python."""
    python = None
    for number, (machine, request) in enumerate(platforms):
        found = resolve(book, machine if python is None else with_python(machine, python), request)
        if isinstance(found, Conflict):
            return number, found
        python = found.machine.python
    raise AssertionError("platforms without a common resolution must have one without any")
