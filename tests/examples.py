"""How many examples property tests try: few in the default run, all with `--hypothesis-profile=thorough`, which .ci/run asks for."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> int:
    """The number for a test that tries `most` in a thorough run: a costly one has fewer than the profile says."""
    return min(most, settings().max_examples)
