"""What is told of work that takes long: counts, a rate, and the time that is left where there is an end."""

from __future__ import annotations

import pytest

from cudnn_resolve.host import clock
from cudnn_resolve.listener import SearchProgress, pace
from tests.listening import Heard


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock says, to be changed."""
    moment = [100.0]
    monkeypatch.setattr(clock, "seconds", lambda: moment[0])
    return moment


def test_a_search_is_told_of_after_a_second_and_then_four_times_each(now: list[float]) -> None:
    heard = Heard()
    step = SearchProgress(heard)
    for _ in range(24):
        now[0] += 0.125
        step(lambda: "conflict between a<1, a>=1")

    assert heard.lines[0] == "8 steps of the search, 8.0 a second; conflict between a<1, a>=1"
    assert len(heard.lines) == 9
    assert not any("left" in line for line in heard.lines)


def test_what_a_search_is_at_is_only_asked_where_it_is_told(now: list[float]) -> None:
    heard = Heard()
    step = SearchProgress(heard)
    step(lambda: pytest.fail("nobody listens yet"))
    now[0] += 2
    step(lambda: "")

    assert heard.lines == ["2 steps of the search, 1.0 a second"]


def test_a_pace_has_a_rate_and_the_time_that_is_left(now: list[float]) -> None:
    assert pace(0, 40, "rows", 100.0) == "0 of 40 rows"
    now[0] += 4
    assert pace(12, 40, "rows", 100.0) == "12 of 40 rows, 3.0 a second, 0:09 left"
    now[0] += 600
    assert pace(10, 20, "rows", 100.0) == "10 of 20 rows, 1.0 a minute, 10:04 left"
