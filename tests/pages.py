"""The text of a report, without a command that prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudnn_resolve.report.text import PLAIN, Page, Style


def text_of(show: Callable[..., None], *values: Any, width: int = 100, style: Style = PLAIN, **options: Any) -> str:
    """What `show` writes on a page."""
    page = Page(style, width)
    show(page, *values, **options)
    return page.text()
