"""Children that answer with one JSON line: where the programs lie that they run, and how their answer is read."""

from __future__ import annotations

import json
import os
from typing import Any

from cudnn_resolve.host.protocol import CommandResult

MARK = "cudnn-resolve-answer "
"""Begins the line that is the answer, so that whatever else prints into the stream does no harm."""


def payload_path(name: str) -> str:
    """Path of a program of this package that a child runs, `payload_python.py`."""
    return os.path.join(os.path.dirname(__file__), name)


def answer_of(result: CommandResult) -> dict[str, Any] | None:
    """The JSON object in a child's answer; None where there is none: it crashed, hung, or printed something else."""
    for line in reversed(result.stdout.splitlines()):
        if line.startswith(MARK):
            try:
                answer = json.loads(line[len(MARK) :])
            except (ValueError, RecursionError):
                return None
            return answer if isinstance(answer, dict) else None
    return None
