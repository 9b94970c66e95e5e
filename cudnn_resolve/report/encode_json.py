"""Encode values as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """Convert structs, tuples and mappings to dictionaries, lists, strings and numbers."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=dict))
    except UnicodeEncodeError:  # a path that is not UTF-8
        return json.loads(json.dumps(msgspec.to_builtins(value, enc_hook=dict)))


def encoded(document: msgspec.Struct) -> dict[str, Any]:
    """Convert a struct to an object for `json.dumps`."""
    found: dict[str, Any] = plain(document)
    return found


def render(value: Any) -> str:
    """Format as indented JSON with a final newline; ASCII only, so that it is safe for any terminal and encoding."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
