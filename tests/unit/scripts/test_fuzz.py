"""A short run of the fuzzer, the same each time: it works, and what it found once stays mended."""

from __future__ import annotations

import pytest
from fuzz import TARGETS, in_folder, one_input

from tests.examples import examples


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_borne(target: str) -> None:
    with in_folder():
        share = {"cli": 3, "logs": 3, "matrix": 20}.get(target, 10)  # few changes of a table are borne
        count = examples(20) * share // 10
        found = {seed: one_input(target, seed) for seed in range(1020, 1020 + count)}
    assert {seed: what for seed, what in found.items() if what not in (None, "refused")} == {}
    assert target == "cli" or None in found.values()
