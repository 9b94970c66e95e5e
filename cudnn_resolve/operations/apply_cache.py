"""Cache of `apply` results with nothing to do: the next run returns at once if nothing that decides has changed since.

What decides, and is compared: the request and the lock, this program with its tables, the machine, and every file of the environment
(by size, time and inode, which a full look compares first as well). If anything else could decide, nothing is cached.
"""

from __future__ import annotations

import os.path
from contextlib import suppress

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution.creation import journals_at
from cudnn_resolve.execution.environment import Environment
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.execution.payload_recover import GUIDE, JOURNAL, MARK
from cudnn_resolve.host import disk, fingerprint
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.operations.options import ApplyRequest
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.probe.python import choose_python

_FILE = "settled"
_LIMIT_BYTES = 64 << 20  # as for a lock
_DIGEST_BYTES = 32


class CachedResult(Struct, frozen=True, kw_only=True):
    """The result of an `apply` that had nothing to do."""

    execution: Execution
    plan: Plan


class ApplyCache:
    """The cached result of applying a lock to an environment, with the state for which it is valid.

    Disabled for targets, which an index decides, and for stated facts.
    """

    def __init__(self, request: ApplyRequest, lock: str | None) -> None:
        self._state: bytes | None = None
        prefix = _prefix(request) if lock is not None and disk.is_regular(lock) else None
        if lock is None or prefix is None:
            return
        self._journals = journals_at(prefix)
        path = disk.real(lock)
        question = repr(replace(request, words=(), ranges=False)), repr((path, disk.content(path, _LIMIT_BYTES))), disk.folder_here()
        tables = [fingerprint.of_tables(folder).hex() for folder in (*request.matrix, *request.project_matrix)]
        self._question = fingerprint.digest([*question, *tables, fingerprint.of_program().hex()])
        self._state = self._current_state()

    @property
    def is_enabled(self) -> bool:
        """True if a result can be cached."""
        return self._state is not None

    def _current_state(self) -> bytes | None:
        prefix = self._journals.environment.prefix
        environment = fingerprint.of_environment(prefix, passing=(GUIDE, MARK) if self._journals.marked() is not None else (GUIDE,))
        return None if environment is None else fingerprint.digest([environment.hex(), fingerprint.of_machine().hex()])

    def refresh(self) -> None:
        """Take the state of the changed environment as that of the next result."""
        if self.is_enabled:
            self._state = self._current_state()

    def disable(self) -> None:
        """Cache nothing: something decides that is not compared."""
        self._state = None

    def check_environment(self, environment: Environment) -> None:
        """Disable the cache if the interpreter belongs to another environment, or sees more than its own folder."""
        if self.is_enabled and (environment.sees_more or environment.prefix != self._journals.environment.prefix):
            self.disable()

    def _key(self) -> bytes:
        newest = f"{self._journals.folder}/{self._journals.newest():06d}/{JOURNAL}"
        return fingerprint.digest([self._question.hex(), (self._state or b"").hex(), repr(disk.state_of(newest))])

    def load(self) -> CachedResult | None:
        """The cached result, if nothing has changed since and no `apply` is running or was interrupted."""
        if not self.is_enabled or self._journals.marked() is not None:
            return None
        raw = disk.content(f"{self._journals.folder}/{_FILE}", _LIMIT_BYTES) or b""
        if raw[:_DIGEST_BYTES] != self._key():
            return None
        with suppress(DecodeError):
            return msgpack.decode(raw[_DIGEST_BYTES:], type=CachedResult)
        return None

    def store(self, execution: Execution, plan: Plan) -> None:
        """Cache a result with nothing to do; failures to write are ignored."""
        has_journals = self.is_enabled and self._journals.newest()  # they are removed together with the environment
        if has_journals and execution.status == "nothing":
            result = msgpack.encode(CachedResult(execution=execution, plan=plan), enc_hook=dict)
            with suppress(WorldError):
                disk.write_whole(f"{self._journals.folder}/{_FILE}", self._key() + result, synced=False)


def _prefix(request: ApplyRequest) -> str | None:
    """The folder of the environment; None for a request whose result cannot be cached."""
    if not (request.states_facts or request.reinstall_package or request.restart or request.dry_run):
        with suppress(CudnnResolveError):
            folder = os.path.dirname(choose_python(LinuxHost(), request.python)[0])
            return disk.real(os.path.dirname(folder)) if os.path.basename(folder) == "bin" else None
    return None
