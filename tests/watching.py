"""Hear of each record of a journal as soon as it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cudnn_resolve.execution.journal import Journal

_add = Journal.add


def watch(hear: Callable[[str], None]) -> None:
    """Call `hear` with the kind of each record, until the process ends."""

    def add(self: Journal, kind: str, **values: Any) -> None:
        _add(self, kind, **values)
        hear(kind)

    Journal.add = add  # type: ignore[method-assign]


@contextmanager
def watching(hear: Callable[[str], None]) -> Iterator[None]:
    """As `watch`, inside."""
    watch(hear)
    try:
        yield
    finally:
        Journal.add = _add  # type: ignore[method-assign]
