"""A listener that keeps what it is told."""

from __future__ import annotations

from cudnn_resolve.listener import Listener


class Heard(Listener):
    """What went on, and what became of each that was worked on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.states: list[tuple[str, str, str]] = []

    def tell(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)

    def state(self, name: str, state: str, of: str = "") -> None:
        """Keep it."""
        self.states.append((name, state, of))
