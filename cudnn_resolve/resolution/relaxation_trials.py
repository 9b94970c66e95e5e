"""Trials of changed requests that may resolve a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.resolution.condition import Subject
from cudnn_resolve.resolution.model import Failure, Relaxation, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.proposal import command, result
from cudnn_resolve.resolution.strategies import attempt

ROUNDS = 1500
"""Steps after which a trial is given up: a solution that is hard to find is not a near one."""


class Trials(Struct, frozen=True):
    """A conflict, and trials of changes that would resolve it."""

    book: Book
    machine: Machine
    request: OpenRequest
    core: frozenset[Subject]
    """The conditions that cannot hold together."""
    minimal: tuple[Machine, OpenRequest]
    """A machine and a request with only these conditions."""

    def try_request(self, request: OpenRequest, *, nearest_to: dict[str, str] | None = None, **machine: Any) -> Resolution | None:
        """The resolution of another request, and of changed facts; None if there is none."""
        found = attempt(self.book, replace(self.machine, **machine), request, nearest_to, ROUNDS)
        return found if isinstance(found, Resolution) else None

    def try_other_environment(self, **machine: Any) -> Resolution | None:
        """The resolution with changed facts on which markers depend, so that other targets may apply, or none."""
        try:
            return self.try_request(self.request.unevaluated or self.request, **machine)
        except UsageError:
            return None

    def relaxation(self, change: str, request: OpenRequest, distance: int, *, line: str | None = None) -> Iterator[Relaxation]:
        """The relaxation to a changed request if it has a resolution; `line` is its command if that differs from the request's."""
        found = self.try_request(request)
        if found is not None:
            yield Relaxation(change=change, result=result(found), command=line or command(request), distance=distance)

    def is_in_vain(self, change: dict[str, Any]) -> bool:
        """True if the conflict remains after a change of the machine, tested with the minimal request."""
        machine, minimal = self.minimal
        request = self.request
        is_whole = (len(minimal.targets), len(minimal.requirements)) == (len(request.targets), len(request.requirements))
        if request.unevaluated is not None or is_whole:
            return False  # other targets may apply there, or the whole request is as fast to try
        found = attempt(self.book, replace(machine, **change), replace(minimal, budget=request.budget), rounds=ROUNDS)
        return isinstance(found, Failure) and not found.exhausted
