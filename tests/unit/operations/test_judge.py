"""What `check` says, in words."""

from __future__ import annotations

import pytest

from cudnn_resolve.operations.judge import _edits
from cudnn_resolve.operations.subject import Subject


@pytest.mark.parametrize(("lines", "said"), [({"a": 2}, "in line 2 of t.txt: "), ({"a": 2, "b": 5}, "in lines 2, 5 of t.txt: ")])
def test_the_lines_of_an_edit(lines: dict[str, int], said: str) -> None:
    subject = Subject(name="t.txt", kind="requirements file", packages={}, requires={}, lines=lines)
    assert [one.text.startswith(said) for one in _edits(subject, [(name, "1") for name in lines])] == [True]
