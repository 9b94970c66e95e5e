"""Facts that a fuzzer found."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.codec import FactsError, decode


@pytest.mark.parametrize("text", ['{"note": "\\ud800"}', '{"\\udfff": 1}', '{"packages": {"pip": {"x\\ud800": "1"}}}'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(FactsError):
        decode(text)
