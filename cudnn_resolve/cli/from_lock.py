"""A lock to the plan from this environment to what the lock holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.errors import CudnnResolveError, ExitCode

if TYPE_CHECKING:
    from cudnn_resolve.cli.options import Options
    from cudnn_resolve.planning.model import Plan


def plan_of_lock_file(path: str, options: Options) -> Plan:
    """The plan from the environment to a lock; InputError for a file that is none, LockMisfitError for a lock of other machines."""
    from cudnn_resolve.cli.gather import gather_book, gather_facts
    from cudnn_resolve.execution.locked import plan_of_lock
    from cudnn_resolve.host.files import folder_of, read_bounded
    from cudnn_resolve.locking.read import LIMIT_BYTES, read

    lock = read(read_bounded(path, LIMIT_BYTES, "lock"), path)
    book = gather_book(options)
    plan, misfits = plan_of_lock(lock, folder_of(path), gather_facts(options, book), book)
    if plan is None:
        lines = "; ".join(f"{one.what}: the lock wants {one.locked}, here is {one.now}" for one in misfits[:5])
        raise LockMisfitError(f"{path} is not for this machine: {lines}", code="lock-misfit", hint="`cudnn-resolve lock` makes one that is")
    return plan


class LockMisfitError(CudnnResolveError):
    """The lock is for other machines: the answer is no."""

    exit_code = ExitCode.NO
