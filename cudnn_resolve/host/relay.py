"""A remote machine, asked in rounds: unanswered questions are collected, sent there together, and the work is repeated with the answers."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.host.child import PACKAGE, payload_text
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat, Host

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Run a payload (`payload_door.py`) with a job on the machine and return its answer; raises WorldError."""
T = TypeVar("T")
MOST_ROUNDS = 60
_PLACEHOLDER = "{cudnn_resolve}"
"""Stands for the directory of this package in questions."""


class _NotYetError(Exception):
    """The output of a program is not known in this round."""


class RelayHost:
    """A host that answers what it knows and records every other question.

    With `guess`, an unknown file is missing and an unknown program cannot be run, so that one round asks as much as possible. Without,
    a program that has not run ends the round: nothing may be run in vain.
    """

    def __init__(self, *, guess: bool) -> None:
        self._guess = guess
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._wanted: dict[str, tuple[str, list[Any]]] = {}
        self.environ: Mapping[str, str] = {}
        """Variables that facts depend on."""
        self.python = ""
        """Interpreter that answers."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """Run a program there; only the difference between `env` and the known environment is sent."""
        changed: dict[str, str | None] = {}
        if env is not None:
            changed = {"LC_ALL": None, **dict.fromkeys(self.environ.keys() - env.keys())}
            changed |= {name: value for name, value in env.items() if self.environ.get(name) != value}
        text = None if input is None else _portable(input)
        answer = self._answer("run", [[_portable(word) for word in argv], timeout_seconds, changed, text, memory_limit_mib])
        if answer is not None:
            return CommandResult(**{**answer, "stdout": answer.get("stdout", ""), "stderr": answer.get("stderr", "")})
        if not self._guess:
            raise _NotYetError
        return CommandResult(missing=True, stderr=f"{argv[0]} has not been run yet")

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """Beginning of a file there."""
        answer = self._answer("read_text", [path, 0, limit_bytes])
        return None if answer is None else str(answer)

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a file there."""
        answer = self._answer("read_bytes", [path, offset, size])
        return None if answer is None else base64.b64decode(answer)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory there."""
        return tuple(self._answer("list_dir", [path]) or ())

    def stat(self, path: str) -> FileStat | None:
        """The file or directory at a path there."""
        answer = self._answer("stat", [path])
        return None if answer is None else FileStat(**answer)

    def realpath(self, path: str) -> str:
        """A path there with every symbolic link resolved."""
        return str(self._answer("realpath", [path]) or path)

    def _answer(self, kind: str, words: list[Any]) -> Any:
        key = json.dumps([kind, words])
        with self._lock:
            if key not in self._known:
                self._wanted[key] = (kind, words)
            return self._known.get(key)

    def learn(self, ask: Ask) -> bool:
        """Send every open question there; False if none is open."""
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        if not wanted and self.python:
            return False
        files = _payloads() if any(_PLACEHOLDER in key for key in wanted) else {}
        reply = ask("host/payload_door.py", {"questions": list(wanted.values()), "files": files})
        try:
            answers = reply["answers"]
            self.environ = MappingProxyType({str(name): str(value) for name, value in reply["environ"].items()})
            self.python = str(reply["python"]) or "python3"
            self._known |= dict(zip(wanted, answers, strict=True))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise WorldError("the machine's answer cannot be understood", code="host-answer") from None
        return True


def ask_in_rounds(ask: Ask, work: Callable[[Host], T], *, guess: bool = True) -> T:
    """Result of work on a remote machine: repeated until none of its questions is open."""
    host = RelayHost(guess=guess)
    host.learn(ask)
    for _ in range(MOST_ROUNDS):
        try:
            result = work(host)
        except (_NotYetError, CudnnResolveError, LookupError, TypeError, ValueError):  # noqa: PERF203 - a guessed answer may be absurd
            if not host.learn(ask):
                raise
        else:
            if not host.learn(ask):
                return result
    raise WorldError(f"the machine still raised new questions after {MOST_ROUNDS} rounds", code="host-answer")


@cache
def _payloads() -> dict[str, str]:
    """Payloads that a question may name, by their path in this package."""
    names = [f"{room}/{name}" for room in ("probe", "validation") for name in LinuxHost().list_dir(f"{PACKAGE}/{room}")]
    return {name: payload_text(name) for name in names if re.search(r"/payload\w*\.py$", name)}


def _portable(text: str) -> str:
    """A text with a placeholder for the directory of this package."""
    return text.replace(PACKAGE, _PLACEHOLDER)
