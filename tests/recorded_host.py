"""A machine that remembers everything that was asked of it, and one that is replayed from what was recorded."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import cudnn_resolve
from cudnn_resolve.errors import InputError
from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat, Host

ANSWERS_FILE = "answers.json"
"""In the folder of a recorded machine: every question that was asked of it, with its answer."""

_PACKAGE = os.path.dirname(cudnn_resolve.__file__)
_NOT_RECORDED = object()


class NotRecordedError(LookupError):
    """A question that nobody asked the machine when it was recorded: a bug in a test, or the machine is to be recorded anew."""


def portable(text: str) -> str:
    """A word of a command line with the place of this package replaced, so that it is the same on every machine."""
    return text.replace(_PACKAGE, "{cudnn_resolve}")


def command_key(argv: Sequence[str], text: str | None) -> str:
    """What a command is recorded under: its words and its standard input."""
    return json.dumps([[portable(word) for word in argv], text])


class RecordedHost:
    """A machine that answers from a recording and runs nothing; a question that is not in it raises NotRecordedError."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    @classmethod
    def open(cls, folder: str) -> RecordedHost:
        """The machine recorded in a folder; InputError where there is none."""
        path = os.path.join(folder, ANSWERS_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                answers = json.load(file)
        except (OSError, ValueError) as error:
            raise InputError(f"no recorded machine: {error}", code="recording-unreadable", context=path) from error
        if not isinstance(answers, dict):
            raise InputError("no recorded machine: not a JSON object", code="recording-unreadable", context=path)
        return cls(answers)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables that the recording keeps."""
        return MappingProxyType(self._answers["environ"])

    @property
    def python(self) -> str:
        """Path of the interpreter that ran this program there."""
        return str(self._answers["python"])

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """What became of the program when it ran there; time, environment and memory are not part of the question."""
        del timeout_seconds, env, memory_limit_mib
        return CommandResult(**self._answer("commands", command_key(argv, input)))

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """The beginning of a file as it was."""
        content = self._answer("texts", path)
        return None if content is None else str(content)[:limit_bytes]

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a file as they were."""
        content = self._answer("bytes", f"{path}:{offset}:{size}")
        return None if content is None else base64.b64decode(content)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory as they were."""
        return tuple(self._answer("directories", path))

    def stat(self, path: str) -> FileStat | None:
        """What was at a path."""
        found = self._answer("stats", path)
        return None if found is None else FileStat(**found)

    def realpath(self, path: str) -> str:
        """Where a path led."""
        return str(self._answer("realpaths", path))

    def _answer(self, kind: str, key: str) -> Any:
        answer = self._answers.get(kind, {}).get(key, _NOT_RECORDED)
        if answer is _NOT_RECORDED:
            raise NotRecordedError(f"{kind}: nobody asked for {key} when this machine was recorded")
        return answer


def spoken(value: CommandResult | FileStat) -> dict[str, Any]:
    """The fields of an answer as a recording holds them, without those at their default."""
    told = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, FileStat):
        return told
    silent = CommandResult()
    return {name: one for name, one in told.items() if one != getattr(silent, name)}


RECORDED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
RECORDED_BEGINNINGS = ("CUDA", "CONDA", "COLAB_", "KAGGLE_", "NVIDIA_", "CUDNN")
"""Environment variables that facts depend on; no other is recorded, since others hold secrets."""
SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASS", "JWT", "AUTH", "CREDENTIAL")
"""Nor is one of these names, whatever it begins with."""


class RecordingHost:
    """Wraps a host, passes every question on, and keeps the answers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {kind: {} for kind in ("commands", "texts", "bytes", "directories", "stats", "realpaths")}
        self._answers["python"] = host.python
        self._answers["environ"] = {name: value for name, value in host.environ.items() if _is_recorded(name)}

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables that a recording keeps, so that nothing depends on others."""
        kept: Mapping[str, str] = self._answers["environ"]
        return kept

    @property
    def python(self) -> str:
        """As the host says."""
        return self._host.python

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        """As the host answers."""
        result = self._host.run(argv, timeout_seconds=timeout_seconds, env=env, input=input, memory_limit_mib=memory_limit_mib)
        self._keep("commands", command_key(argv, input), spoken(result))
        return result

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        """As the host answers."""
        content = self._host.read_text(path, limit_bytes)
        self._keep("texts", path, content)
        return content

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        """As the host answers."""
        content = self._host.read_bytes(path, offset, size)
        self._keep("bytes", f"{path}:{offset}:{size}", None if content is None else base64.b64encode(content).decode("ascii"))
        return content

    def list_dir(self, path: str) -> tuple[str, ...]:
        """As the host answers."""
        names = self._host.list_dir(path)
        self._keep("directories", path, list(names))
        return names

    def stat(self, path: str) -> FileStat | None:
        """As the host answers."""
        found = self._host.stat(path)
        self._keep("stats", path, None if found is None else spoken(found))
        return found

    def realpath(self, path: str) -> str:
        """As the host answers."""
        real = self._host.realpath(path)
        self._keep("realpaths", path, real)
        return real

    def answers(self) -> str:
        """Everything that was asked until now, as the text of a recording."""
        with self._lock:
            return json.dumps(self._answers, indent=1, sort_keys=True) + "\n"

    def _keep(self, kind: str, key: str, answer: Any) -> None:
        with self._lock:
            self._answers[kind][key] = answer


def write_recording(folder: str, answers: str) -> None:
    """Puts a recording into a folder, which is made if need be."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ANSWERS_FILE), "w", encoding="utf-8") as file:
        file.write(answers)


def _is_recorded(name: str) -> bool:
    if any(part in name.upper() for part in SECRET_PARTS):
        return False
    return name in RECORDED_VARIABLES or name.startswith(RECORDED_BEGINNINGS)
