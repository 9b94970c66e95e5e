"""A hold on an environment: one `apply` at a time, and none that outlives its process.

The lock is an flock(2) of the folder itself: nothing is written into the environment, and the kernel lets go when the last process
that has it ends, however it ends. Programs that we start have it too, so that an installer that outlives us still holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time

from cudnn_resolve.host.disk import refusal

_PAUSE_SECONDS = 0.05


class Hold:
    """The hold on one folder; `release` gives it back."""

    def __init__(self, handle: int, *, is_locked: bool = True) -> None:
        self.handle = handle
        """For the programs that share it."""
        self.is_locked = is_locked
        """False on a file system without locks, such as some network ones: there nobody is held off."""

    def release(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):
            os.close(self.handle)


def hold(folder: str, *, wait_seconds: float = 0.0, shared: bool = False) -> Hold | None:
    """The hold on a folder; None where another process has it and does not let go in time. WorldError where it cannot be opened.

    Those that are `shared` keep out only one that is not.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(error, folder) from None
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:  # noqa: PERF203 - it waits anyway
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return Hold(handle, is_locked=False)
            if time.monotonic() >= deadline:
                os.close(handle)
                return None
            time.sleep(_PAUSE_SECONDS)
        else:
            return Hold(handle)


def alive(pid: int) -> bool:
    """True where a process of that number is there."""
    return os.path.exists(f"/proc/{pid}")


def own_pid() -> int:
    """The number of this process."""
    return os.getpid()
