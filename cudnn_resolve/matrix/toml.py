"""TOML read, and its values quoted in messages."""

from __future__ import annotations

import sys
from typing import Any


def decode(text: str) -> dict[str, Any]:
    """Read TOML; ValueError, in the parser's words, where it is none."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def texts(value: object) -> list[str]:
    """The texts among the members of a list; none where it is no list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def quote(value: object) -> str:
    """Render `value` for a message: printable ASCII, at most 60 characters."""
    try:
        text = ascii(value) if isinstance(value, (str, int, float)) else f"a {'table' if isinstance(value, dict) else type(value).__name__}"
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
