"""What the payloads of all frameworks share: they go through the cases of a question and tell what came out of each.

Tells for each case `step` and then `case`, an object with `id` and either the tensors `y`, `dx`, `dw` as flat lists, `error`, or
`unsupported`. Python 3.6 grammar, standard library only.
"""

import errno
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

BYTES = {"float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2, "float64": 8}

PATIENCE = 60.0
"""Seconds after which the turn of a neighbour is not waited for any more: it may hang."""
MOST_LOADING = 16
"""So many children of one card may be seen to load side by side; fewer are ever started."""
WATCHING = "watch "
"""Stands before a case in the step in which a witness watches it."""
NOT_MADE = ("No OpKernel was registered", "not implemented for '", "is not registered", "Could not find an implementation for")
"""What frameworks say where they have no code for a type, on whatever device."""


class Unsupported(Exception):  # noqa: N818 - an answer, not a mistake
    """The framework has no way to do this, which is no fault of the stack."""


def go_through(
    question: "dict[str, Any]",
    tell: "Any",
    compute: "Callable[[dict[str, Any]], dict[str, Any]]",
    witness: "Callable[[dict[str, Any]], dict[str, Any]] | None" = None,
) -> None:
    """Tells of every case what `compute` gives for it; an exception is told, and the next case begins.

    Where cuDNN's log does not show that it computed a case, `witness` says what did. Witnesses come after all cases: a profiler that
    crashes, hangs or eats all memory costs no case then.
    """
    asked = set(question.get("witness") or ()) if witness else set()
    silent = []  # type: list[dict[str, Any]]
    watched = question.get("watched") or (lambda once: once())
    for case in question["cases"]:
        tell("step", case["id"])
        before = time.monotonic()
        answer = {"id": case["id"]}
        try:
            answer.update(watched(lambda case=case: compute(case)))
        except Unsupported as error:
            answer["unsupported"] = str(error)[:500]
        except Exception as error:
            answer[verdict(error)] = "{}: {}".format(type(error).__name__, str(error)[:3000])
        answer["seconds"] = time.monotonic() - before
        tell("case", answer)
        if case["id"] in asked and "y" in answer and not answer.get("cudnn"):
            silent.append(case)
    for case in silent:
        assert witness is not None
        tell("step", WATCHING + case["id"])
        try:
            evidence = witness(case)
        except Exception as error:
            evidence = {"how": "", "names": [], "why": "{}: {}".format(type(error).__name__, str(error)[:300])}
        tell("witness", [case["id"], evidence])


def verdict(error: Exception) -> str:
    """`unsupported` where the framework says that it has no code for this, else `error`."""
    return "unsupported" if any(words in str(error) for words in NOT_MADE) else "error"


def go_through_work(question: "dict[str, Any]", tell: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Tells of every work how long it takes, while nobody beside it loads or takes a time; an exception is told, and the next one begins.

    `beside` is told where that could not be had: why the times may be those of two.
    """
    tell("step", "wait for its turn")
    loads = question.pop("loads", None)
    if loads is not None:
        loads.close()
    turn = None
    if "turn" in question:
        try:
            turn = wait_for_turn(question["turn"], PATIENCE)
            if turn is None:
                tell("beside", "another program of this test did not come to its end in {:g} s".format(PATIENCE))
        except OSError as error:
            tell("beside", "no turns can be taken here: {}".format(error))
    try:
        take_times(question, tell, measure)
        if turn is not None and is_anyone_loading(question["turn"]):
            tell("beside", "another program of this test began to load meanwhile")
    finally:
        if turn is not None:
            turn.close()


def sign_in(number: int, seconds: float) -> "socket.socket | None":
    """What this child holds while it loads, which begins when none of that number takes times, or after so long; None where it cannot."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            # First the name, then the look: whoever has the turn does both the other way round, so that one sees the other.
            mine = next(filter(None, (bound(name_of(number, slot)) for slot in range(MOST_LOADING))), None)
            if mine is None or not is_taken(name_of(number)) or time.monotonic() >= deadline:
                return mine
            mine.close()
            time.sleep(0.02)
    except OSError:
        return None


def wait_for_turn(number: int, seconds: float) -> "socket.socket | None":
    """What only one of the children of whoever asked can have for that number, once none loads; None where it was not to be had so soon."""
    deadline, turn = time.monotonic() + seconds, bound(name_of(number))
    while turn is None or is_anyone_loading(number):
        if time.monotonic() >= deadline:
            if turn is not None:
                turn.close()
            return None
        time.sleep(0.02)
        turn = turn or bound(name_of(number))
    return turn


def is_anyone_loading(number: int) -> bool:
    """True where a child of that number has signed in and is not ready yet."""
    return any(is_taken(name_of(number, slot)) for slot in range(MOST_LOADING))


def name_of(number: int, slot: "int | None" = None) -> str:
    """A name that is no file: it is given back however the process ends, and nothing is left behind."""
    return "\0cudnn-resolve-{}-{}".format(os.getppid(), number) + ("" if slot is None else "-loads-{}".format(slot))


def bound(name: str) -> "socket.socket | None":
    """A socket that has the name now; None where another one has it. That it can be had by nobody is raised."""
    found = socket.socket(socket.AF_UNIX)
    try:
        found.bind(name)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return found


def is_taken(name: str) -> bool:
    """True where another one has the name."""
    found = bound(name)
    if found is not None:
        found.close()
    return found is None


def take_times(question: "dict[str, Any]", tell: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Tells of every work how long it takes."""
    for work in question["speed"]:
        tell("step", "time a convolution in {}".format(work["type"]))
        try:
            answer = dict(measure(work))
        except Unsupported as error:
            answer = {"unsupported": str(error)[:500]}
        except Exception as error:
            answer = {verdict(error): "{}: {}".format(type(error).__name__, str(error)[:1000])}
        tell("speed", dict(answer, type=work["type"]))


def timed(once: "Callable[[], Any]", wait: "Callable[[Any], Any]", seconds: float) -> "tuple[float, int]":
    """Seconds of one call after warm-up, the best of several rounds, and how many calls were made; `wait` ends when the card has."""
    for _ in range(3):
        wait(once())
    best, calls, repeat, deadline = float("inf"), 0, 1, time.monotonic() + seconds
    while True:
        before = time.monotonic()
        last = None
        for _ in range(repeat):
            last = once()
        wait(last)
        spent = time.monotonic() - before
        best, calls = min(best, spent / repeat), calls + repeat
        if time.monotonic() >= deadline:
            return best, calls
        if spent < 0.02:
            repeat = min(repeat * 4, 4096)


def order_of(rank: int, layout: str) -> "tuple[list[int], list[int]]":
    """Axes that bring a tensor from batch, channels, space into the layout, and those that bring it back."""
    if layout == "nchw":
        return list(range(rank)), list(range(rank))
    return [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]


def flat(array: "Any") -> "list[float]":
    """The elements of a NumPy array."""
    return [float(one) for one in array.astype("float64").ravel().tolist()]


def version_tuple(text: str) -> "tuple[int, ...]":
    """`2.6.0+cu124` as (2, 6, 0)."""
    numbers = []
    for part in text.split("+", maxsplit=1)[0].split("."):
        digits = "".join(letter for letter in part if letter.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def product(numbers: "Sequence[int]") -> int:
    """All of them multiplied."""
    result = 1
    for number in numbers:
        result *= number
    return result


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
