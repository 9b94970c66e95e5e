"""A machine that remembers everything that was asked of it, for replay."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cudnn_resolve.host.port import TEXT_LIMIT_BYTES, CommandResult, FileStat, Host
from cudnn_resolve.host.recorded import ANSWERS_FILE, command_key, spoken

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
