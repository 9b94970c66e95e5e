"""Laws that hold over all tables together."""

from __future__ import annotations

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.parse import Fault


def overlay_faults(book: Book) -> tuple[Fault, ...]:
    return ()
