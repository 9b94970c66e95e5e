"""Signals that end a program: muted, raised as an exception, or held off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from cudnn_resolve.host.interrupt import InterruptError, deferred_signals, ignored_signals, interruptible, silent_interrupt


@pytest.fixture(autouse=True)
def _as_in_a_fresh_process() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_at_the_start_the_signal_ends_the_process_without_a_word() -> None:
    with silent_interrupt():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_was_started_with_nohup_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    with silent_interrupt():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_signal_is_one_exception_and_waits_where_it_must_not_stop() -> None:
    seen = []
    ended = threading.Event()
    threading.Thread(target=ended.wait, daemon=True).start()  # it may get the signal instead of us

    def work() -> None:
        with ignored_signals():
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("on the way back")
        with deferred_signals():
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("while a record is written")
        seen.append("never")

    with interruptible(), pytest.raises(InterruptError, match="SIGINT"):
        work()
    ended.set()

    assert seen == ["on the way back", "while a record is written"]


LOSES = """
import contextlib, signal, sys, time
from cudnn_resolve.host.interrupt import InterruptError, interruptible, resend_dropped_signals

resend_dropped_signals()

class Ends:
    def __del__(self):
        signal.raise_signal(signal.Signals[sys.argv[1]])

try:
    with interruptible() if sys.argv[2] == "work" else contextlib.nullcontext():
        Ends()
        time.sleep(20)
except (KeyboardInterrupt, InterruptError) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("name", "when", "said"),
    [("SIGINT", "else", "KeyboardInterrupt"), ("SIGINT", "work", "InterruptError SIGINT"), ("SIGTERM", "work", "InterruptError SIGTERM")],
)
def test_a_signal_that_came_while_an_object_ended_is_heard(name: str, when: str, said: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LOSES, name, when], capture_output=True, text=True, timeout=30, check=False)

    assert (ran.stdout.strip(), ran.stderr) == (said, "")
