"""The TOML text of a wheel table: one release to a line, one requirement to a line, in an order that only the data decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harvest_table import Table


def rendered(written: Table, read: str) -> str:
    """The TOML text of a table that was read on the day `read`; the same rows always give the same text."""
    parts = [
        'origin = "harvested"\nscript = "scripts/harvest.py"\n',
        f"read = {read}\npackage = {_text(written.package)}\n\nrelease = [\n",
        *(f"  {_inline(row)},\n" for row in written.release),
        "]\n",
    ]
    for entry in written.metadata:
        parts.append(f"\n[[metadata]]\nid = {entry['id']}\n")
        parts.extend(f"{key} = {_lines(entry[key])}\n" for key in ("requires", "extras") if key in entry)
    return "".join(parts)


def _inline(row: Mapping[str, Any]) -> str:
    fields = [f"{key} = {value if key == 'date' else _value(value)}" for key, value in row.items()]
    return "{" + ", ".join(fields) + "}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return _inline(value)
    return "[" + ", ".join(_value(one) for one in value) + "]"


def _lines(texts: Sequence[str]) -> str:
    if len(texts) < 2 or sum(map(len, texts)) < 100:
        return _value(texts)
    return "[\n" + "".join(f"  {_text(text)},\n" for text in texts) + "]"


def _text(text: str) -> str:
    """A literal string where the text has double quotes, else a basic one."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)
