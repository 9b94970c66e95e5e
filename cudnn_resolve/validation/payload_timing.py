"""Timing of a framework; Python 3.6, standard library only."""

import time

from cudnn_resolve.validation.payload import result_or_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TIMING = "time a convolution in "
"""Prefix of the step in which a type is timed."""


def take_times(question: "dict[str, Any]", emit: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Emit the time of every workload."""
    for work in question["speed"]:
        emit("step", TIMING + work["type"])
        emit("speed", dict(result_or_error(1000, measure, work), type=work["type"]))


def time_call(once: "Callable[[], Any]", wait: "Callable[[Any], Any]", seconds: float) -> float:
    """Seconds per call after warm-up, the best of several rounds; `wait` returns when the device has finished."""
    for _ in range(3):
        wait(once())
    best, repeat, deadline = float("inf"), 1, time.monotonic() + seconds
    while True:
        before = time.monotonic()
        last = None
        for _ in range(repeat):
            last = once()
        wait(last)
        spent = time.monotonic() - before
        best = min(best, spent / repeat)
        if time.monotonic() >= deadline:
            return best
        if spent < 0.02:
            repeat = min(repeat * 4, 4096)
