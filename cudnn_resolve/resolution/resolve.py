"""A request on a machine, or on several platforms together, to its resolution or to the conflict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.resolution.attempt import PYTHONS, attempt, with_python
from cudnn_resolve.resolution.marker import NO_TARGET
from cudnn_resolve.resolution.model import Conflict, Failure, Relaxation, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest, opened
from cudnn_resolve.resolution.unknown_extra import refuse_unknown_extras

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import Source
    from cudnn_resolve.resolution.open_request import Tell


def resolve(
    book: Book, machine: Machine, request: Request, source: Source | None = None, *, tell: Tell | None = None
) -> Resolution | Conflict:
    """The resolution, or the conflict with what would work instead.

    Packages come from `source`, or without one from what the matrix knows; `tell` hears of each step of the searches.
    """
    request = _opened(request, source, tell)
    found = _solved(book, machine, request)
    if isinstance(found, Resolution):
        return found
    from cudnn_resolve.resolution.conflict import explain  # paid by those who get a "no"

    return explain(book, machine, request, found)


def resolved(
    book: Book, machine: Machine, request: Request, source: Source | None = None, *, tell: Tell | None = None
) -> Resolution | None:
    """The resolution; None without an explanation where there is none, for one machine of several that would do."""
    found = _solved(book, machine, _opened(request, source, tell))
    return found if isinstance(found, Resolution) else None


def _solved(book: Book, machine: Machine, request: OpenRequest) -> Resolution | Failure:
    refuse_unknown_extras(book, request)
    found = attempt(book, machine, request)
    return with_what_remains(book, machine, request, found) if isinstance(found, Resolution) else found


def _opened(request: Request, source: Source | None, tell: Tell | None) -> OpenRequest:
    """The open request, for CPU builds where the extras of all its targets ask for those."""
    request = opened(request, source, tell)
    targets = (*request.targets, *request.conditional)
    return replace(request, device="cpu") if targets and all(CPU in target.extras for target in targets) else request


def with_what_remains(book: Book, machine: Machine, request: Request, found: Resolution) -> Resolution:
    """A resolution, and where its files could not all be listed, what the configured indexes would give instead."""
    request = opened(request)
    if not found.unreached or not request.variant_indexes:
        return found
    other = attempt(book, machine, replace(request, variant_indexes=False))
    if not isinstance(other, Resolution):
        return found
    from cudnn_resolve.resolution.proposal import command, result

    line = command(request, change={"--no-variant-indexes": ""})
    change = "--no-variant-indexes: what the configured index has"
    return replace(found, remains=Relaxation(change=change, result=result(other), command=line))


Platforms = Sequence[tuple["Machine", "OpenRequest"]]
"""The machine of each platform, and what is asked on it."""


def resolve_together(book: Book, platforms: Platforms) -> list[Resolution] | tuple[int, Conflict]:
    """A resolution for each platform, all for one Python; else the number of a platform that has none, and why."""
    for python in PYTHONS if platforms[0][0].python is None else (None,):
        found = []
        for machine, request in platforms:
            here = machine if python is None else with_python(machine, python)
            outcome = _on_platform(book, here, request, is_sought=python is not None)
            if outcome is None:
                break
            found.append(outcome)
        if len(found) == len(platforms):
            return found
    return _conflict(book, platforms)


def _on_platform(book: Book, machine: Machine, request: OpenRequest, *, is_sought: bool) -> Resolution | None:
    """The resolution on one platform; None where there is none, which nobody has to explain yet."""
    try:
        found = attempt(book, machine, request)
    except UsageError as error:
        if not is_sought or error.code != NO_TARGET:
            raise
        return None  # on this Python nothing is asked for; another may be meant
    return with_what_remains(book, machine, request, found) if isinstance(found, Resolution) else None


def _conflict(book: Book, platforms: Platforms) -> tuple[int, Conflict]:
    """The first platform without a resolution; where each has one, but for another Python, why the next has none on that."""
    python = None
    for number, (machine, request) in enumerate(platforms):
        found = resolve(book, machine if python is None else with_python(machine, python), request)
        if isinstance(found, Conflict):
            return number, found
        python = found.machine.python
    raise AssertionError("what cannot be had together cannot be had for one of the platforms")
