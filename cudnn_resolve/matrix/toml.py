"""TOML decoding, and values quoted for messages."""

from __future__ import annotations

import sys
from typing import Any

from cudnn_resolve.errors import InputError, first_line


def decode(text: str) -> dict[str, Any]:
    """Parse TOML; ValueError, in the parser's words, if it is invalid."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; raises InputError if it is invalid."""
    try:
        return decode(text)
    except ValueError as error:
        raise InputError(f"{where} is not valid TOML: {first_line(error)}", code="lock-invalid", context=where) from None


def texts(value: object) -> list[str]:
    """Return the strings in a list; empty if `value` is not a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def quote(value: object) -> str:
    """Render a value for a message: printable ASCII, at most 60 characters."""
    try:
        text = ascii(value) if isinstance(value, (str, int, float)) else f"a {'table' if isinstance(value, dict) else type(value).__name__}"
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
