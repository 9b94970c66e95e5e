"""Timing of a framework. Children of one GPU measure in turn, and only while none of them loads. Python 3.6, standard library only."""

import errno
import os
import socket
import time

from cudnn_resolve.validation.payload import result_or_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE = 60.0
"""Seconds to wait for another child, which may hang."""
MOST_LOADING = 16
"""Slots for children of one GPU that load; fewer are ever started."""
TIMING = "time a convolution in "
"""Prefix of the step in which a type is timed."""
POLL_SECONDS = 0.02


def take_times(
    question: "dict[str, Any]",
    emit: "Any",
    measure: "Callable[[dict[str, Any]], dict[str, Any]]",
    loading: "socket.socket | None" = None,
) -> None:
    """Emit `speed` for every workload once no other child loads or measures; `beside` says why that could not be had.

    `loading` is this child's own slot, which it gives up first.
    """
    emit("step", "wait for its turn")
    if loading is not None:
        loading.close()
    turn = None
    if "turn" in question:
        try:
            turn = wait_for_turn(question["turn"], PATIENCE)
            if turn is None:
                emit("beside", "another test process did not finish within {:g} s".format(PATIENCE))
        except OSError as error:
            emit("beside", "no turns can be taken here: {}".format(error))
    try:
        measure_all(question, emit, measure)
        if turn is not None and is_any_loading(question["turn"]):
            emit("beside", "another test process began to load meanwhile")
    finally:
        if turn is not None:
            turn.close()


def measure_all(question: "dict[str, Any]", emit: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Emit the time of every workload."""
    for work in question["speed"]:
        emit("step", TIMING + work["type"])
        emit("speed", dict(result_or_error(1000, measure, work), type=work["type"]))


# --- turns: abstract sockets, whose names vanish with the process, however it ends ---


def hold_loading_slot(number: int, seconds: float) -> "socket.socket | None":
    """Claim a slot while this child loads, once no child of that number measures or the time is up; None if there is no slot."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            # Claim first, then look: a child with the turn does both in the other order, so that one sees the other.
            slot = next(filter(None, (claim(name_of(number, index)) for index in range(MOST_LOADING))), None)
            if slot is None or not is_claimed(name_of(number)) or time.monotonic() >= deadline:
                return slot
            slot.close()
            time.sleep(POLL_SECONDS)
    except OSError:
        return None


def wait_for_turn(number: int, seconds: float) -> "socket.socket | None":
    """Claim the single turn of that number among this parent's children, once none of them loads; None if it takes too long."""
    deadline, turn = time.monotonic() + seconds, claim(name_of(number))
    while turn is None or is_any_loading(number):
        if time.monotonic() >= deadline:
            if turn is not None:
                turn.close()
            return None
        time.sleep(POLL_SECONDS)
        turn = turn or claim(name_of(number))
    return turn


def is_any_loading(number: int) -> bool:
    """True if a child of that number holds a loading slot."""
    return any(is_claimed(name_of(number, slot)) for slot in range(MOST_LOADING))


def name_of(number: int, slot: "int | None" = None) -> str:
    """Socket name of a turn, or of a loading slot."""
    return "\0cudnn-resolve-{}-{}".format(os.getppid(), number) + ("" if slot is None else "-loads-{}".format(slot))


def claim(name: str) -> "socket.socket | None":
    """Socket bound to a name; None if another process holds it. OSError if nobody can."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(name)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return bound


def is_claimed(name: str) -> bool:
    """True if another process holds a name."""
    bound = claim(name)
    if bound is not None:
        bound.close()
    return bound is None


# --- one measurement ---


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
