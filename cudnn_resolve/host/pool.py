"""Work of many seconds in child processes, one for each processor."""

from __future__ import annotations

import copyreg
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children
from types import MappingProxyType
from typing import Any, TypeVar

from cudnn_resolve.errors import WorldError

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_MOST = 8


def _carried(one: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _read_only, (dict(one),)


def _read_only(one: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(one)  # the type itself cannot be named to another process


copyreg.pickle(MappingProxyType, _carried)  # read-only mappings of results pass between processes


def spread(
    function: Callable[[_Item], _Found], items: Iterable[_Item], prepare: Callable[[], None] | None = None
) -> Iterator[tuple[_Item, _Found]]:
    """Each item with what a function of a module makes of it, as they come; what has not begun ends with the iterator.

    `prepare` is called first in each process.
    """
    pool = ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST), initializer=_begin, initargs=(prepare,))
    others = frozenset(active_children())
    try:
        waiting = {pool.submit(function, one): one for one in items}
        for future in as_completed(waiting):
            try:
                found = future.result()
            except BrokenProcessPool:
                hint = "mostly memory ran out; run it again: it goes on from there"
                raise WorldError("a process that computes was killed", code="worker-killed", hint=hint) from None
            yield waiting[future], found
    except BaseException:  # Ctrl-C ends at once, and nobody wants the rest after an error
        for child in frozenset(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(prepare: Callable[[], None] | None) -> None:
    """Leave Ctrl-C to the process that waits for this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if prepare is not None:
        prepare()
