"""Any JSON value as text."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The JSON form of structs, tuples and mappings: dictionaries, lists, texts and numbers."""
    return msgspec.json.decode(msgspec.json.encode(value))


def render(value: Any) -> str:
    """The value as indented JSON with a newline at the end; ASCII only, so that no byte of it can upset a terminal or an encoding."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
