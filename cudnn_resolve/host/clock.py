"""Seconds that pass, whatever the wall clock says."""

from __future__ import annotations

import time


def seconds() -> float:
    """Seconds since some moment; never goes back."""
    return time.monotonic()
