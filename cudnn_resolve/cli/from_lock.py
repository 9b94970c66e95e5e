"""A lock to the plan from this environment to what the lock holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, ExitCode

if TYPE_CHECKING:
    from cudnn_resolve.cli.options import Options
    from cudnn_resolve.planning.model import Plan


def plan_of_lock_file(path: str, options: Options) -> Plan:
    """The plan from the environment to a lock; InputError for a file that is none, LockMisfitError for a lock of other machines."""
    from cudnn_resolve.cli.gather import gather_book, gather_facts
    from cudnn_resolve.host.files import folder_of, read_bounded
    from cudnn_resolve.locking.check import unmet
    from cudnn_resolve.locking.read import LIMIT_BYTES, read
    from cudnn_resolve.planning.from_lock import plan_of_lock
    from cudnn_resolve.planning.model import Warning

    lock = read(read_bounded(path, LIMIT_BYTES, "lock"), path)
    book = gather_book(options)
    plan, misfits = plan_of_lock(lock, folder_of(path), gather_facts(options, book), book)
    if plan is None:
        lines = "; ".join(f"{one.what}: the lock wants {one.locked}, here is {one.now}" for one in misfits[:5])
        raise LockMisfitError(f"{path} is not for this machine: {lines}", code="lock-misfit", hint="`cudnn-resolve lock` makes one that is")
    limits = {"cuda": options.cuda, "cudnn": options.cudnn}
    warnings = (
        Warning(
            code="lock-settings",
            message=f"{one.now} is asked for, and {path} holds {one.locked}: the lock counts; `cudnn-resolve lock` brings it up to date",
        )
        for one in unmet(lock, options.frameworks, limits, book)
    )
    return replace(plan, warnings=(*warnings, *plan.warnings))


class LockMisfitError(CudnnResolveError):
    """The lock is for other machines: the answer is no."""

    exit_code = ExitCode.NO
