"""SECURITY.md says how each defence is tested: the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text("utf-8"))))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_is_named_is_tested(file: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / file).read_text("utf-8")


def test_every_defence_names_a_test() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text("utf-8").splitlines() if line.startswith("| ") and line.count("|") == 4]
    defences = [row for row in rows if not row.startswith(("| attack", "| ---"))]
    assert len(defences) > 20
    assert [row for row in defences if "::" not in row] == []
