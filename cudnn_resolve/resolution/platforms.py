"""One request on several platforms: resolutions that belong together, since one lock holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.resolution.model import Conflict, Resolution
from cudnn_resolve.resolution.resolve import PYTHONS, attempt, resolve, with_what_remains
from cudnn_resolve.resolution.settle import NO_TARGET

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.opened import OpenRequest

Platforms = Sequence[tuple["Machine", "OpenRequest"]]
"""The machine of each platform, and what is asked on it."""


def resolve_together(book: Book, platforms: Platforms) -> list[Resolution] | tuple[int, Conflict]:
    """A resolution for each platform, all for one Python; else the number of a platform that has none, and why."""
    for python in PYTHONS if platforms[0][0].python is None else (None,):
        found = []
        for machine, request in platforms:
            outcome = _attempt(book, _on(machine, python), request, is_sought=python is not None)
            if outcome is None:
                break
            found.append(outcome)
        if len(found) == len(platforms):
            return found
    return _conflict(book, platforms)


def _attempt(book: Book, machine: Machine, request: OpenRequest, *, is_sought: bool) -> Resolution | None:
    """The resolution on one platform; None where there is none, which nobody has to explain yet."""
    try:
        found = attempt(book, machine, request)
    except UsageError as error:
        if not is_sought or error.code != NO_TARGET:
            raise
        return None  # on this Python nothing is asked for; another may be meant
    return with_what_remains(book, machine, request, found) if isinstance(found, Resolution) else None


def _on(machine: Machine, python: tuple[int, int] | None) -> Machine:
    return machine if python is None else replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")


def _conflict(book: Book, platforms: Platforms) -> tuple[int, Conflict]:
    """The first platform without a resolution; where each has one, but for another Python, why the next has none on that."""
    python = None
    for number, (machine, request) in enumerate(platforms):
        found = resolve(book, _on(machine, python), request)
        if isinstance(found, Conflict):
            return number, found
        python = found.machine.python
    raise AssertionError("what cannot be had together cannot be had for one of the platforms")
