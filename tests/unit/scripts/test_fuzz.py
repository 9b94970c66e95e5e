"""A short run of the fuzzer, the same each time: it works, and what it found once stays mended."""

from __future__ import annotations

import pytest
from fuzz import TARGETS, in_folder, one_input

from tests.examples import examples


@pytest.mark.hypothesis
@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_borne(target: str) -> None:
    with in_folder():
        count = examples(20) if target not in ("cli", "logs") else examples(20) * 3 // 10
        found = {seed: one_input(target, seed) for seed in range(1020, 1020 + count)}
    assert {seed: what for seed, what in found.items() if what not in (None, "refused")} == {}
    assert target == "cli" or None in found.values()
