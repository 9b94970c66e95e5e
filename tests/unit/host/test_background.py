from __future__ import annotations

import threading
import time

import pytest

from cudnn_resolve.host.background import Later, gather


def test_the_call_runs_while_nobody_waits() -> None:
    begun = threading.Event()
    may_end = threading.Event()

    def call() -> int:
        begun.set()
        return 7 if may_end.wait(10) else 0

    later = Later(call)

    assert begun.wait(10)
    may_end.set()
    assert later.result() == 7
    assert later.result() == 7


def test_what_the_call_raises_is_raised_where_the_value_is_asked_for() -> None:
    later = Later(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        later.result()


@pytest.mark.parametrize("at_once", [0, 1, 2, 9])
def test_no_more_run_at_once_than_may_and_values_come_in_order(at_once: int) -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def call(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.005)
        with lock:
            running[0] -= 1
        return number * number

    assert gather([lambda number=number: call(number) for number in range(6)], at_once) == [0, 1, 4, 9, 16, 25]  # type: ignore[misc]
    assert 1 <= most[0] <= max(at_once, 1)
    assert gather([], 3) == []


def test_what_one_of_them_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        gather([lambda: 1, lambda: 1 // 0], 2)


def test_after_an_error_no_more_calls_are_started() -> None:
    started: list[int] = []

    def call(number: int) -> None:
        started.append(number)
        time.sleep(0.05)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        gather([lambda number=number: call(number) for number in range(20)], 2)  # type: ignore[misc]
    time.sleep(0.2)
    assert len(started) <= 5
