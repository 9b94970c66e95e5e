"""What is held of the disk, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_resolve.report.text import clean, mib, wrap


def render(found: Mapping[str, Any], *, width: int) -> str:
    """A paragraph for each part, and what was freed in all."""
    lines = []
    for one in found["parts"]:
        lines.append(f"{'freed' if one['freed'] else 'held':5}  {mib(one['bytes']):>10}  {clean(one['what'])}")
        lines += wrap(clean(f"{one['why']}; {one['path']}"), width=width, first=" " * 19)
    held = sum(one["bytes"] for one in found["parts"] if not one["freed"])
    lines.append(
        f"{mib(found['freed'])} freed, {mib(held)} held"
        + ("; `cudnn-resolve clean --all` frees what no stopped apply needs" if held else "")
    )
    return "\n".join(lines) + "\n"
