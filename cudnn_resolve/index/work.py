"""Jobs that run ahead of need in daemon threads: a job is started once, and whoever wants its value waits for that one only."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_THREADS = 16
"""More connections than this gain nothing; measured on 108 requests."""
FEW_THREADS = 6
"""As many as an index keeps busy that answers in a few milliseconds: then the time goes into reading, which more threads only disturb."""
LOOK_SECONDS = 0.025
"""After so long without a job that was taken, threads wait for answers rather than for one another."""


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

    There are `few` of them at first. Where jobs wait for one and none was taken for a while, or `is_far` says that every answer takes
    long, there are soon `most`.
    """

    def __init__(
        self,
        most: int = MOST_THREADS,
        *,
        few: int | None = None,
        is_far: Callable[[], bool] = lambda: False,
        look: Callable[[float], None] = time.sleep,
    ) -> None:
        self._most = most
        self._few = most if few is None else few
        self._is_far = is_far
        self._look = look
        """Waits for so many seconds until the next look at whether there are threads enough."""
        self._jobs: deque[Job[object]] = deque()
        self._ready = threading.Condition()
        self._idle = 0
        self._taken = 0
        self._watched = False
        self._closed = False
        self.threads = 0
        """How many threads there are."""

    def hand(self, job: Job[T], *, first: bool = False) -> Job[T]:
        """The job, which a thread will run; `first` puts it before all that wait."""
        passing: Job[object] = job  # type: ignore[assignment]
        with self._ready:
            if first:
                self._jobs.appendleft(passing)
            else:
                self._jobs.append(passing)
            if self._idle < len(self._jobs):
                if self.threads < self._few:
                    self._grow()
                elif self.threads < self._most and not self._watched:
                    self._watched = _started(self._watch, "index-watch")
            self._ready.notify()
        return job

    def close(self) -> None:
        """Lets the threads end; what has not begun will not."""
        with self._ready:
            self._closed = True
            self._jobs.clear()
            self._ready.notify_all()

    def _grow(self) -> None:
        """Starts another thread; RuntimeError where the system gives none and there is not one yet."""
        if _started(self._work, f"index-{self.threads + 1}"):
            self.threads += 1
        elif not self.threads:
            raise RuntimeError("the system gives no thread")

    def _watch(self) -> None:
        """Looks now and then, as long as jobs wait, and starts further threads where they would help."""
        seen = 0
        while True:
            self._look(LOOK_SECONDS)
            with self._ready:
                if self._closed or not self._jobs or self.threads >= self._most:
                    self._watched = False
                    return
                if self._taken == seen or self._is_far():
                    for _ in range(min(len(self._jobs) - self._idle, self._most - self.threads)):
                        self._grow()
                seen = self._taken

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
                self._taken += 1
            job.run()


def _started(call: Callable[[], None], name: str) -> bool:
    """True where a thread now runs it; False where the system gives none."""
    try:
        threading.Thread(target=call, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True
