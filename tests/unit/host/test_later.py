from __future__ import annotations

import threading

import pytest

from cudnn_resolve.host.later import Later


def test_the_call_runs_while_nobody_waits() -> None:
    begun = threading.Event()
    may_end = threading.Event()

    def call() -> int:
        begun.set()
        return 7 if may_end.wait(10) else 0

    later = Later(call)

    assert begun.wait(10)
    may_end.set()
    assert later.value() == 7
    assert later.value() == 7


def test_what_the_call_raises_is_raised_where_the_value_is_asked_for() -> None:
    later = Later(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        later.value()
