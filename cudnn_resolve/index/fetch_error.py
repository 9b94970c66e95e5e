"""Errors of requests to an index, before the client adds which index and package they concern."""

from __future__ import annotations

from typing import Any

FORBIDDEN = "index-forbidden"
"""Code of an HTTP 403 to a request without credentials: storage services respond so for files that do not exist."""


class FetchError(Exception):
    """A request without a usable response; `why` holds no credentials."""

    def __init__(self, why: str, *, code: str = "index-unavailable", hint: str | None = None, status: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint
        self.status = status


class TransientError(FetchError):
    """A failure that another try may overcome."""

    response: Any = None
    """Response with a transient status, for its Retry-After."""


def too_large(limit: int) -> FetchError:
    """Error for a response of more than `limit` bytes."""
    return FetchError(f"its response is larger than {limit >> 20} MB", code="index-too-large")
