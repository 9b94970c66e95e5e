"""A request during resolution: the plain value, with the open objects that it is resolved against."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from cudnn_resolve.requirement.model import Request

if TYPE_CHECKING:
    from cudnn_resolve.requirement.source import Source


Progress = Callable[[Callable[[], str]], None]
"""Called at each step of a search with a function that describes the step."""


class Budget:
    """Search steps left for all searches that share it."""

    def __init__(self, left: int) -> None:
        self.left = left


class OpenRequest(Request, frozen=True, kw_only=True):
    """A request and its package indexes; internal to this room, results hold the plain request."""

    source: Source | None = None
    """Package indexes; None to use the matrix alone."""
    progress: Progress | None = None
    budget: Budget | None = None
    """Steps left for all searches together; None = each search has its own limit only."""
    any_answer: bool = False
    """True if it only matters whether there is an answer."""
    unevaluated: OpenRequest | None = None
    """The request before its markers were evaluated for a machine; None if it has none."""


def open_request(request: Request, source: Source | None = None, progress: Progress | None = None) -> OpenRequest:
    """Attach indexes and a progress callback; an open request is returned unchanged."""
    if isinstance(request, OpenRequest):
        return request
    return OpenRequest(**asdict(request), source=source, progress=progress)


def plain_request(request: Request) -> Request:
    """Drop everything open, so that the request can be serialized."""
    return Request(**{name: getattr(request, name) for name in Request.__struct_fields__})
