"""Tries of a request with one thing changed, to see whether that leads out of a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.resolution.attempt import attempt
from cudnn_resolve.resolution.model import Failure, Relaxation, Resolution
from cudnn_resolve.resolution.proposal import command, result

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.condition import Subject
    from cudnn_resolve.resolution.open_request import OpenRequest

ROUNDS = 1500
"""Steps after which the search for one way out is given up: a way that is hard to find is not a near one."""


class Trials(Struct, frozen=True):
    """A conflict, and tries of what would resolve it."""

    book: Book
    machine: Machine
    request: OpenRequest
    core: frozenset[Subject]
    """The wishes and facts that cannot hold together."""
    least: tuple[Machine, OpenRequest]
    """A machine and a request with those alone."""

    def of(self, request: OpenRequest, *, near: dict[str, str] | None = None, **machine: Any) -> Resolution | None:
        """The resolution of another request, on the machine with other facts where some are given; None where there is none."""
        found = attempt(self.book, replace(self.machine, **machine), request, near, ROUNDS)
        return found if isinstance(found, Resolution) else None

    def on(self, **machine: Any) -> Resolution | None:
        """The resolution of the same request on a machine with other facts."""
        return self.of(self.request, **machine)

    def elsewhere(self, **machine: Any) -> Resolution | None:
        """The same where markers may ask for other targets on that machine, or for none."""
        try:
            return self.of(self.request.unsettled or self.request, **machine)
        except UsageError:
            return None

    def way(self, change: str, request: OpenRequest, distance: int, *, line: str | None = None, **machine: Any) -> Iterator[Relaxation]:
        """The changed request as a way out, where it has a resolution; `line` is the command, where that says more than the request."""
        found = self.of(request, **machine)
        if found is not None:
            yield Relaxation(change=change, result=result(found), command=line or command(request), distance=distance)

    def is_in_vain(self, change: dict[str, Any]) -> bool:
        """True where the conflict is there after a change of the machine, too, by what little of the request it needs."""
        machine, part = self.least
        request = self.request
        if request.unsettled is not None or (len(part.targets), len(part.requirements)) == (
            len(request.targets),
            len(request.requirements),
        ):
            return False  # other targets may be asked for there, or the whole is as quickly tried as the part
        found = attempt(self.book, replace(machine, **change), replace(part, budget=request.budget), None, ROUNDS)
        return isinstance(found, Failure) and not found.exhausted
