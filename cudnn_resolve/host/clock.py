"""Wall clock and monotonic time."""

from __future__ import annotations

import time


def today() -> str:
    """Date in UTC, `2026-11-21`."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def moment() -> str:
    """Time in UTC as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def seconds() -> float:
    """Monotonic clock, in seconds."""
    return time.monotonic()
