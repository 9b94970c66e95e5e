"""An `apply` that found or left everything as its lock says, remembered: the next one answers at once where nothing was changed since.

What is compared is all that decided: the request and the lock, this program with its tables, the machine, and every file of the environment
(by size, time and inode, as a look at everything compares them first). Where more than that decides, nothing is remembered.
"""

from __future__ import annotations

import os.path
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution.creation import journals_at
from cudnn_resolve.execution.environment import Environment
from cudnn_resolve.execution.journal import FILE
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.execution.payload_recover import GUIDE, MARK
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.host import disk, fingerprint
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.operations.options import ApplyRequest
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.probe.python import choose_python

_FILE = "settled"
_LARGEST_BYTES = 64 << 20  # what a lock may have
_DIGEST_BYTES = 32


class Remembered(Struct, frozen=True, kw_only=True):
    """What was said of it."""

    execution: Execution
    plan: Plan


class Settled:
    """What decides of the `apply` of a lock in an environment, as it is when it is looked at, and what is said of it then.

    Nothing is remembered where `prefix` is None.
    """

    def __init__(self, request: ApplyRequest, lock: str, prefix: str | None) -> None:
        self._there: bytes | None = None
        if prefix is None:
            return
        self._journals = journals_at(prefix)
        held = disk.real(lock)
        asked = repr(replace(request, words=(), ranges=False)), repr((held, disk.content(held, _LARGEST_BYTES))), disk.folder_here()
        folders = (*request.matrix, *request.project_matrix)
        self._asked = fingerprint.digest([*asked, *(fingerprint.of_tables(one).hex() for one in folders), fingerprint.of_program().hex()])
        self._there = self._looked()

    @property
    def is_kept(self) -> bool:
        """True where what is said can be remembered."""
        return self._there is not None

    def _looked(self) -> bytes | None:
        prefix = self._journals.environment.prefix
        there = fingerprint.of_environment(prefix, passing=(GUIDE, MARK) if self._journals.marked() is not None else (GUIDE,))
        return None if there is None else fingerprint.digest([there.hex(), fingerprint.of_machine().hex()])

    def look(self) -> None:
        """Look again: the environment was changed, and what is said from now on counts for what it is now."""
        if self.is_kept:
            self._there = self._looked()

    def give_up(self) -> None:
        """Remember nothing: more than what was looked at decides."""
        self._there = None

    def hold_to(self, environment: Environment) -> None:
        """Give up where the interpreter says that it is of another environment, or that it sees more than its own folder."""
        if self.is_kept and (environment.sees_more or environment.prefix != self._journals.environment.prefix):
            self.give_up()

    def _state(self) -> bytes:
        newest = f"{self._journals.folder}/{self._journals.newest():06d}/{FILE}"
        return fingerprint.digest([self._asked.hex(), (self._there or b"").hex(), repr(disk.state_of(newest))])

    def recall(self) -> Remembered | None:
        """What was said when all that decides was as it is now; None where it was not, or an `apply` is at work or was stopped."""
        if not self.is_kept or self._journals.marked() is not None:
            return None
        raw = disk.content(f"{self._journals.folder}/{_FILE}", _LARGEST_BYTES) or b""
        if raw[:_DIGEST_BYTES] != self._state():
            return None
        with suppress(DecodeError):
            return msgpack.decode(raw[_DIGEST_BYTES:], type=Remembered)
        return None

    def remember(self, execution: Execution, plan: Plan) -> None:
        """Keep that nothing is to be done, unless it cannot be kept."""
        if (
            self.is_kept and execution.status == "nothing" and self._journals.newest()
        ):  # what goes with an environment goes with its journals
            said = msgpack.encode(Remembered(execution=execution, plan=plan), enc_hook=_plain)
            with suppress(WorldError):
                disk.write_whole(f"{self._journals.folder}/{_FILE}", self._state() + said, synced=False)


def settled_of(request: ApplyRequest, lock: str | None) -> Settled:
    """What decides of an `apply`; of targets an index does, and of stated facts whoever states them: nothing is remembered of these."""
    stated = request.given is not None or request.facts is not None or request.assumptions != Assumptions()
    prefix = None
    if not (lock is None or stated or request.reinstall_package or request.restart or request.dry_run) and disk.is_regular(lock):
        with suppress(CudnnResolveError):
            folder = os.path.dirname(choose_python(LinuxHost(), request.python)[0])
            prefix = disk.real(os.path.dirname(folder)) if os.path.basename(folder) == "bin" else None
    return Settled(request, lock or "", prefix)


def _plain(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError
