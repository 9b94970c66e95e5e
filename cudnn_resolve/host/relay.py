"""A machine elsewhere, asked in rounds: what is not known yet is collected, carried there at once, and asked for again with the answers."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import cudnn_resolve
from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat, Host

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Runs a program of this package (`payload_door.py`) with a job on the machine, and gives its answer; raises WorldError."""
T = TypeVar("T")
MOST_ROUNDS = 60
_PACKAGE = os.path.dirname(cudnn_resolve.__file__)
_HERE = "{cudnn_resolve}"


class _NotYetError(Exception):
    """What a program says is not known in this round."""


class RelayHost:
    """A host that answers what it knows, and notes every other question.

    `guess`: until it knows, nothing is there and no program can be run, so that one round asks as much as can be; otherwise a program
    that has not run ends the round, since nothing may be run in vain.
    """

    def __init__(self, *, guess: bool) -> None:
        self._guess = guess
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._wanted: dict[str, tuple[str, list[Any]]] = {}
        self.environ: Mapping[str, str] = {}
        """The variables that facts depend on."""
        self.python = ""
        """The Python that answers."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """What became of a program there; the difference of `env` to what is known of the environment is carried."""
        changed: dict[str, str | None] = {}
        if env is not None:
            changed = {"LC_ALL": None, **dict.fromkeys(self.environ.keys() - env.keys())}
            changed |= {name: value for name, value in env.items() if self.environ.get(name) != value}
        text = None if input is None else _portable(input)
        found = self._answer("run", [[_portable(one) for one in argv], timeout_seconds, changed, text, memory_limit_mib])
        if found is not None:
            return CommandResult(**{**found, "stdout": found.get("stdout", ""), "stderr": found.get("stderr", "")})
        if not self._guess:
            raise _NotYetError
        return CommandResult(missing=True, stderr=f"{argv[0]} has not been run yet")

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """The beginning of a file there."""
        found = self._answer("read_text", [path, 0, limit_bytes])
        return None if found is None else str(found)

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a file there."""
        found = self._answer("read_bytes", [path, offset, size])
        return None if found is None else base64.b64decode(found)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory there."""
        return tuple(self._answer("list_dir", [path]) or ())

    def stat(self, path: str) -> FileStat | None:
        """What is at a path there."""
        found = self._answer("stat", [path])
        return None if found is None else FileStat(**found)

    def realpath(self, path: str) -> str:
        """A path there with every link resolved."""
        return str(self._answer("realpath", [path]) or path)

    def _answer(self, kind: str, words: list[Any]) -> Any:
        key = json.dumps([kind, words])
        with self._lock:
            if key not in self._known:
                self._wanted[key] = (kind, words)
            return self._known.get(key)

    def learn(self, ask: Ask) -> bool:
        """Carry every open question there; False where none is open."""
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        if not wanted and self.python:
            return False
        files = _programs() if any(_HERE in key for key in wanted) else {}
        told = ask("host/payload_door.py", {"questions": list(wanted.values()), "files": files})
        try:
            answers = told["answers"]
            self.environ = MappingProxyType({str(name): str(value) for name, value in told["environ"].items()})
            self.python = str(told["python"]) or "python3"
            self._known |= dict(zip(wanted, answers, strict=True))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise WorldError("the machine's answer makes no sense", code="host-answer") from None
        return True


def ask_in_rounds(ask: Ask, work: Callable[[Host], T], *, guess: bool = True) -> T:
    """The result of work on a machine elsewhere: done again and again, until no question of it is open."""
    host = RelayHost(guess=guess)
    host.learn(ask)
    for _ in range(MOST_ROUNDS):
        try:
            result = work(host)
        except (_NotYetError, CudnnResolveError, LookupError, TypeError, ValueError):  # noqa: PERF203 - a guess may make no sense
            if not host.learn(ask):
                raise
        else:
            if not host.learn(ask):
                return result
    raise WorldError(f"the machine raised new questions for {MOST_ROUNDS} rounds", code="host-answer")


def program_text(name: str) -> str:
    """The text of a program of this package, `host/payload_door.py`."""
    return LinuxHost().read_text(f"{_PACKAGE}/{name}") or ""


@cache
def _programs() -> dict[str, str]:
    """The programs that a question may name, by their path in this package."""
    names = [f"{room}/{name}" for room in ("probe", "validation") for name in LinuxHost().list_dir(f"{_PACKAGE}/{room}")]
    return {name: program_text(name) for name in names if re.search(r"/payload\w*\.py$", name)}


def _portable(text: str) -> str:
    """A text with what stands for the place of this package there."""
    return text.replace(_PACKAGE, _HERE)
