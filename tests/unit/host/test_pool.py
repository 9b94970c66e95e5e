"""Work in child processes."""

from __future__ import annotations

import time
from multiprocessing import active_children

from cudnn_resolve.host.pool import spread


def test_children_end_with_whoever_stops_listening() -> None:
    before = frozenset(active_children())
    found = spread(time.sleep, [0.0, *[3600.0] * 9])
    assert next(found) == (0.0, None)
    found.close()  # type: ignore[attr-defined]
    assert not frozenset(active_children()) - before
