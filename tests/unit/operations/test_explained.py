"""The cause of a failed check, by its last words."""

from __future__ import annotations

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.operations.validate import explained
from tests.worlds.load import facts


def test_words_that_no_row_knows_add_nothing() -> None:
    book = open_book(())

    assert explained("RuntimeError: boom", facts(), book) == ""
    assert explained('Traceback (most recent call last):\n  File "x.py", line 2', facts(), book) == ""
    assert "libcudnn.so.9" in explained("OSError: libcudnn.so.9: cannot open shared object file: No such file or directory", facts(), book)
