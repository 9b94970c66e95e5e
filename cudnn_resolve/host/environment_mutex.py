"""Lock on an environment: one `apply` at a time, released when its process ends.

The lock is an flock(2) of the folder itself: nothing is written into the environment, and the kernel releases it when the last process
that shares it ends, however it ends. Programs that we start share it, so that an installer that outlives us still holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time

from cudnn_resolve.host.disk import refused

_PAUSE_SECONDS = 0.02


class Hold:
    """A lock that is held on one folder."""

    def __init__(self, handle: int, *, is_locked: bool = True) -> None:
        self.handle = handle
        """File descriptor, for programs that share the lock."""
        self.is_locked = is_locked
        """False on a file system without locks, such as some network ones, where nobody is kept out."""

    def release(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):
            os.close(self.handle)


def hold(folder: str, *, wait_seconds: float = 0.0, shared: bool = False) -> Hold | None:
    """Lock a folder; None if another process holds it all that time. Raise WorldError if it cannot be opened.

    A `shared` lock keeps out only exclusive ones.
    """
    with refused(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    locked = lock(handle, wait_seconds, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    if locked is False:
        os.close(handle)
        return None
    return Hold(handle, is_locked=locked is True)


def lock(handle: int, wait_seconds: float, how: int = fcntl.LOCK_EX) -> bool | None:
    """Lock an open file: True on success, False if another process holds it all that time, None if its file system has no locks."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError as error:  # noqa: PERF203 - it waits anyway
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def alive(pid: int) -> bool:
    """Whether a process of that id exists."""
    return os.path.exists(f"/proc/{pid}")


def own_pid() -> int:
    """Process id of this process."""
    return os.getpid()
