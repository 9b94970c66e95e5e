"""Encode values as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encoded(document: msgspec.Struct) -> dict[str, Any]:
    """Convert a struct and everything in it to dictionaries, lists, strings and numbers."""
    found: dict[str, Any]
    try:
        found = msgspec.json.decode(msgspec.json.encode(document, enc_hook=dict))
    except UnicodeEncodeError:  # a path that is not UTF-8
        found = json.loads(json.dumps(msgspec.to_builtins(document, enc_hook=dict)))
    return found


def render(value: Any) -> str:
    """Format as indented JSON with a final newline; ASCII only, so that it is safe for any terminal and encoding."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
