"""Threads that run jobs: how many there are, and what becomes of errors."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cudnn_resolve.index import work
from cudnn_resolve.index.work import Crew, Job


class Gate:
    """Jobs that wait until they are let go, and looks of the watch that wait for one another."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.look = threading.Semaphore(0)
        self.looked = threading.Semaphore(0)

    def wait(self) -> None:
        self.started.release()
        assert self.go.acquire(timeout=30)

    def await_look(self, seconds: float) -> None:
        assert seconds == work.LOOK_SECONDS
        self.looked.release()
        self.look.acquire(timeout=30)

    def let_look(self) -> None:
        """Lets the watch look once; back when it is about to wait again, or has ended."""
        self.look.release()
        self.looked.acquire(timeout=1)

    def begun(self, count: int) -> None:
        for _ in range(count):
            assert self.started.acquire(timeout=30)


@pytest.fixture
def gate() -> Gate:
    return Gate()


def crew_of(gate: Gate, jobs: int, *, far: bool = False) -> tuple[Crew, list[Job[None]]]:
    crew = Crew(5, few=2, is_far=lambda: far, look=gate.await_look)
    handed = [crew.hand(Job(gate.wait, "a gate")) for _ in range(jobs)]
    assert crew.threads == 2
    assert gate.looked.acquire(timeout=30), "nobody watches"
    return crew, handed


def test_threads_are_added_where_no_job_was_taken_for_a_while(gate: Gate) -> None:
    crew, jobs = crew_of(gate, 9)
    gate.begun(2)
    gate.let_look()  # two were taken since the beginning
    assert crew.threads == 2
    gate.let_look()
    gate.begun(3)
    assert crew.threads == 5
    gate.go.release(9)
    for job in jobs:
        job.value()
    crew.close()


def test_threads_are_added_where_every_answer_takes_long(gate: Gate) -> None:
    crew, jobs = crew_of(gate, 4, far=True)
    gate.begun(2)
    gate.let_look()
    gate.begun(2)
    assert crew.threads == 4, "no more than there are jobs"
    gate.go.release(4)
    for job in jobs:
        job.value()
    gate.look.release()
    crew.close()


def test_a_system_without_another_thread_is_no_error_as_long_as_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scarce(threading.Thread):
        left = 1

        def start(self) -> None:
            if Scarce.left == 0:
                raise RuntimeError("can't start new thread")
            Scarce.left -= 1
            super().start()

    monkeypatch.setattr(threading, "Thread", Scarce)
    crew = Crew(4)
    jobs: list[Job[Any]] = [crew.hand(Job(lambda number=number: number, "a number")) for number in range(6)]  # type: ignore[misc]

    assert [job.value() for job in jobs] == list(range(6))
    with pytest.raises(RuntimeError):
        Crew(4).hand(Job(lambda: 1, "one"))
    crew.close()


def test_an_error_is_raised_where_the_value_is_asked_for() -> None:
    crew = Crew(1)
    job = crew.hand(Job(lambda: 1 // 0, "nothing"))

    with pytest.raises(ZeroDivisionError):
        job.value()
    assert crew.hand(Job(lambda: 7, "seven"), first=True).value() == 7
    crew.close()
