"""What a server, or the way to it, said no with; the client makes an error of it that names index and package."""

from __future__ import annotations

FORBIDDEN = "index-forbidden"
"""Code of a refusal to somebody who gave no credentials and was not asked for any: storage answers so for what it does not have."""


class Refusal(Exception):  # noqa: N818 - what a server or the way to it said, in words; the client makes an error of it
    """A request that got no usable answer: why, in words, without credentials."""

    def __init__(self, why: str, *, code: str = "index-unavailable", hint: str | None = None, status: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint
        self.status = status


class TransientRefusal(Refusal):
    """One that may pass."""

    pause: float | None = None
    """Seconds that the server asks to wait."""
