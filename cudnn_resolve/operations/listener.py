"""Who hears of what an operation does while it does it."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Progress and notes of an operation; the command line prints them, the library drops them."""

    def tell(self, text: str) -> None:
        """What is going on just now."""

    def note(self, text: str, *, least: int = 0) -> None:
        """A message that stays; `least` is how verbose one must be to read it."""

    def state(self, name: str, state: str, of: str = "") -> None:
        """What has become of one of many that are worked on; `of` names the class it belongs to."""


class Nobody:
    """A listener that drops everything."""

    def tell(self, text: str) -> None:
        """Drop it."""

    def note(self, text: str, *, least: int = 0) -> None:
        """Drop it."""

    def state(self, name: str, state: str, of: str = "") -> None:
        """Drop it."""


class Notes(Nobody):
    """A listener that keeps the messages that stay, for whoever says them later."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def note(self, text: str, *, least: int = 0) -> None:
        """Keep it, unless only the verbose read it."""
        if not least:
            self.kept.append(text.removeprefix("note: "))


WAITS = "waits"
"""The state of what nothing has been done for yet."""
NOBODY = Nobody()
