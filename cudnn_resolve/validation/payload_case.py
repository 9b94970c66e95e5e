"""What the payloads of all frameworks share: they go through the cases of a question and tell what came out of each.

Tells for each case `step` and then `case`, an object with `id` and either the tensors `y`, `dx`, `dw` as flat lists, `error`, or
`unsupported`. Python 3.6 grammar, standard library only.
"""

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
    """Tells of every work how long it takes, while nobody beside it takes a time; an exception is told, and the next one begins."""
    tell("step", "wait for its turn")
    turn = wait_for_turn(question["turn"], PATIENCE) if "turn" in question else None
    try:
        take_times(question, tell, measure)
    finally:
        if turn is not None:
            turn.close()


def wait_for_turn(number: int, seconds: float) -> "socket.socket | None":
    """What only one of the children of whoever asked can have for that number; None where none could be had in that time.

    A name that is no file: it is given back however the process ends, and nothing is left behind.
    """
    turn, deadline = socket.socket(socket.AF_UNIX), time.monotonic() + seconds
    name = "\0cudnn-resolve-{}-{}".format(os.getppid(), number)
    while not has_bound(turn, name):
        if time.monotonic() >= deadline:
            turn.close()
            return None
        time.sleep(0.02)
    return turn


def has_bound(turn: "socket.socket", name: str) -> bool:
    """True where the socket has the name now; False where another one has it."""
    try:
        turn.bind(name)
    except OSError:
        return False
    return True


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
