"""Long computations in child processes, one for each processor."""

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
_Result = TypeVar("_Result")
_MOST_PROCESSES = 8


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)  # the type itself cannot be pickled by name


# Results hold read-only mappings.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


def spread(
    function: Callable[[_Item], _Result], items: Iterable[_Item], prepare: Callable[[], None] | None = None
) -> Iterator[tuple[_Item, _Result]]:
    """Each item with the result of a module-level function, in the order of completion; closing the iterator cancels the rest.

    `prepare` is called first in each process. Raise WorldError if a process is killed.
    """
    pool = ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_PROCESSES), initializer=_begin, initargs=(prepare,))
    others = frozenset(active_children())
    try:
        items_of = {pool.submit(function, item): item for item in items}
        for future in as_completed(items_of):
            try:
                result = future.result()
            except BrokenProcessPool:
                hint = "most likely memory ran out; run it again: it continues from there"
                raise WorldError("a worker process was killed", code="worker-killed", hint=hint) from None
            yield items_of[future], result
    except BaseException:  # end at once on Ctrl-C or an error, without waiting for work that is under way
        for child in frozenset(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(prepare: Callable[[], None] | None) -> None:
    """Leave Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if prepare is not None:
        prepare()
