"""A request while it is being resolved: the plain value, with what is open beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudnn_resolve.requirement.model import Request

if TYPE_CHECKING:
    from cudnn_resolve.requirement.source import Source


Tell = Callable[[Callable[[], str]], None]
"""Hears of each step of a search what it is at, which is made only for who asks."""


class Budget:
    """Steps that are left to all the searches for one answer together."""

    def __init__(self, left: int) -> None:
        self.left = left


class OpenRequest(Request, frozen=True, kw_only=True):
    """A request with the indexes that it is resolved against. It never leaves this room: a resolution holds the plain request."""

    source: Source | None = None
    """The indexes that packages come from; None = the matrix alone is asked."""
    tell: Tell | None = None
    """Hears of each step."""
    budget: Budget | None = None
    """Steps that are left to all searches of it together; None = each has its own bound alone."""
    any_answer: bool = False
    """True where it matters only whether there is an answer."""
    unsettled: OpenRequest | None = None
    """The request before its markers were evaluated for a machine; None where it has none."""


def opened(request: Request, source: Source | None = None, tell: Tell | None = None) -> OpenRequest:
    """Put the request beside what is open; a request that is open already stays as it is."""
    if isinstance(request, OpenRequest):
        return request
    return OpenRequest(**_fields(request), source=source, tell=tell)


def closed(request: Request) -> Request:
    """The plain request, as it can be written and read back."""
    return Request(**_fields(request)) if isinstance(request, OpenRequest) else request


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in Request.__struct_fields__}
