"""Render disk usage, and what `clean` freed of it, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import mib
from cudnn_resolve.report.text import Page, clean


def show_usage(page: Page, usage: Mapping[str, Any]) -> None:
    """List each part of the JSON object of `clean`, then the totals."""
    for part in usage["parts"]:
        page.lines.append(f"{'freed' if part['freed'] else 'kept':5}  {mib(part['bytes']):>10}  {clean(part['what'])}")
        page.paragraph(f"{part['why']}; {part['path']}", " " * 19)
    kept = sum(part["bytes"] for part in usage["parts"] if not part["freed"])
    hint = "; `cudnn-resolve clean --all` frees everything that no interrupted apply needs" if kept else ""
    page.lines.append(f"{mib(usage['freed'])} freed, {mib(kept)} kept{hint}")
