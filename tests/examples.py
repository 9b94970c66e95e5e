"""How many examples property tests try: few in the default run, all with `--hypothesis-profile=thorough`, which .ci/run asks for."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = 100
"""What that profile tries where a test says nothing."""


def examples(most: int) -> int:
    """The number for a test that tries `most` in a thorough run: a costly one fewer than the profile says, a cheap one more."""
    usual = settings().max_examples
    return most if usual >= THOROUGH else min(most, usual)
