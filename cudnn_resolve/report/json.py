"""Any JSON value as text, and values as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The JSON form of structs, tuples and mappings: dictionaries, lists, texts and numbers."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=dict))
    except UnicodeEncodeError:  # a path that is no UTF-8
        return json.loads(json.dumps(msgspec.to_builtins(value, enc_hook=dict)))


def encoded(document: msgspec.Struct) -> dict[str, Any]:
    """The object of a struct, ready for `json.dumps`."""
    found: dict[str, Any] = plain(document)
    return found


def render(value: Any) -> str:
    """The value as indented JSON with a newline at the end; ASCII only, so that no byte of it can upset a terminal or an encoding."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
