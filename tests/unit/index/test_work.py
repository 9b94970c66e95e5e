"""Threads that run jobs: how many there are, and what becomes of errors."""

from __future__ import annotations

import threading

import pytest

from cudnn_resolve.index.work import Crew, Job


class Gate:
    """Jobs that wait until they are let go; counts how many run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.lock = threading.Lock()
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def wait(self) -> None:
        with self.lock:
            self.running += 1
        self.started.release()
        assert self.go.acquire(timeout=30)
        with self.lock:
            self.running -= 1

    def see(self, count: int) -> int:
        """How many run once so many have begun."""
        for _ in range(count):
            assert self.started.acquire(timeout=30)
        with self.lock:
            return self.running


def test_there_are_few_threads_until_the_way_turns_out_to_be_far() -> None:
    gate, far = Gate(), threading.Event()
    crew = Crew(5, few=2, is_far=far.is_set)
    jobs = [crew.hand(Job(gate.wait, "a gate")) for _ in range(9)]

    assert gate.see(2) == 2
    assert not gate.started.acquire(timeout=0.05), "a third one runs"
    far.set()
    gate.go.release()  # one ends; whoever takes the next job starts further threads
    assert gate.see(4) == 5
    assert not gate.started.acquire(timeout=0.05), "a sixth one runs"
    gate.go.release(8)
    for job in jobs:
        job.value()
    crew.close()


def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    crew = Crew(1)
    job = crew.hand(Job(lambda: 1 // 0, "nothing"))

    with pytest.raises(ZeroDivisionError):
        job.value()
    assert crew.hand(Job(lambda: 7, "seven"), first=True).value() == 7
    crew.close()
