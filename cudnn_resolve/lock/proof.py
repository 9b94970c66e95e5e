"""Records of tests that passed: on which cards the pins of a lock are proven to work.

A record is a table of texts, numbers, truth values and lists of them. `gpu` (its name), `driver` and `date` say what is shown of it; the
rest is whoever's who wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudnn_resolve.lock.model import Lock, Tool
from cudnn_resolve.record import replace


def with_record(lock: Lock, record: Mapping[str, object]) -> Lock:
    """The lock with a record more, instead of an older one of the same GPU and driver; as it is where another program wrote it."""
    if lock.tool is None:
        return lock
    kept = (one for one in lock.tool.validation if _machine(one) != _machine(record))
    records = sorted((*kept, dict(record)), key=lambda one: [str(word) for word in _machine(one)])
    tool: Tool = replace(lock.tool, validation=tuple(records))
    return replace(lock, tool=tool)


def proofs(lock: Lock) -> Iterator[str]:
    """On what the lock is proven, `Tesla T4, driver 550.54.15 (2026-11-21)`."""
    for record in lock.tool.validation if lock.tool is not None else ():
        gpu, driver = _machine(record)
        date = record.get("date")
        words = str(gpu or "a machine without a GPU") + (f", driver {driver}" if driver else "")
        yield f"{words} ({date})" if date else words


def _machine(record: Mapping[str, object]) -> tuple[object, object]:
    return record.get("gpu"), record.get("driver")
