"""Jobs that run ahead of need in daemon threads: a job is started once, and whoever wants its value waits for that one only."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_THREADS = 16
"""More connections than this gain nothing; measured on 108 requests."""
FEW_THREADS = 6
"""As many as an index keeps busy that answers in a few milliseconds: then the time goes into reading, which more threads only disturb."""


class Job(Generic[T]):
    """A value that is there, or comes, or the error that came instead."""

    __slots__ = ("_call", "_done", "_error", "_value", "what")

    def __init__(self, call: Callable[[], T], what: str) -> None:
        self._call: Callable[[], T] | None = call
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._value: list[T] = []
        self.what = what
        """What is being waited for, in words."""

    def run(self) -> None:
        """Calls; an error is kept for those who ask for the value."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            self._value.append(call())
        except BaseException as error:  # noqa: BLE001 - raised where the value is asked for
            self._error = error
        self._done.set()

    def value(self, tell: Callable[[str], None] | None = None) -> T:
        """The value, once it is there; the error is raised here. `tell` is called while it is waited for."""
        while not self._done.wait(None if tell is None else 0.1):
            if tell:
                tell(self.what)
        if self._error is not None:
            raise self._error
        return self._value[0]


class Crew:
    """Threads that run jobs in the order in which they were handed over; none before the first job.

    There are at most `few` of them as long as `is_far` says no, and `most` once it says yes.
    """

    def __init__(self, most: int = MOST_THREADS, *, few: int | None = None, is_far: Callable[[], bool] = lambda: False) -> None:
        self._most = most
        self._few = most if few is None else few
        self._is_far = is_far
        self._jobs: deque[Job[object]] = deque()
        self._ready = threading.Condition()
        self._idle = 0
        self._count = 0
        self._closed = False

    def hand(self, job: Job[T], *, first: bool = False) -> Job[T]:
        """The job, which a thread will run; `first` puts it before all that wait."""
        passing: Job[object] = job  # type: ignore[assignment]
        with self._ready:
            if first:
                self._jobs.appendleft(passing)
            else:
                self._jobs.append(passing)
            self._grow()
            self._ready.notify()
        return job

    def _grow(self) -> None:
        """Starts a thread where a job waits for one and there may be another."""
        if self._idle >= len(self._jobs):
            return
        if self._count < self._few or (self._count < self._most and self._is_far()):
            self._count += 1
            threading.Thread(target=self._work, name=f"index-{self._count}", daemon=True).start()

    def close(self) -> None:
        """Lets the threads end; what has not begun will not."""
        with self._ready:
            self._closed = True
            self._jobs.clear()
            self._ready.notify_all()

    def _work(self) -> None:
        while True:
            with self._ready:
                self._idle += 1
                while not self._jobs and not self._closed:
                    self._ready.wait()
                self._idle -= 1
                if self._closed:
                    return
                job = self._jobs.popleft()
                self._grow()
            job.run()
