"""What day it is."""

from __future__ import annotations


def today() -> str:
    """The date in UTC, `2026-11-21`."""
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).date().isoformat()
