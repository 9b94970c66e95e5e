"""Ways out of a conflict."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.resolution.driver import first_that_works
from cudnn_resolve.version import DriverVersion

DRIVERS = [DriverVersion(f"{400 + number}.0") for number in range(30)]


@pytest.mark.parametrize("first", range(30))
@pytest.mark.parametrize("last", [29, 25])
def test_the_first_driver_that_works_is_found_in_few_searches(first: int, last: int) -> None:
    asked: list[DriverVersion] = []

    def tried(driver: DriverVersion) -> Any:
        asked.append(driver)
        return str(driver) if first <= driver.major - 400 <= last else None

    driver, found = first_that_works(DRIVERS, tried)
    if first <= min(last, 22):
        assert (driver, str(found)) == (DRIVERS[first], str(DRIVERS[first]))
    assert len(asked) <= 12
    assert len(set(asked)) == len(asked)


def test_there_may_be_none() -> None:
    assert first_that_works(DRIVERS, lambda _: None) == (None, None)
    assert first_that_works([], lambda _: None) == (None, None)
