"""What time it is, and seconds that pass whatever the wall clock says."""

from __future__ import annotations

import time


def today() -> str:
    """The date in UTC, `2026-11-21`."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def moment() -> str:
    """The time as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def seconds() -> float:
    """Seconds since some moment; never goes back."""
    return time.monotonic()
