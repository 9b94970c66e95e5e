"""Programs of this package that a child runs and that answer with one JSON line: where they lie, and how their answer is read."""

from __future__ import annotations

import json
import os
from typing import Any

from cudnn_resolve.host.protocol import CommandResult

MARK = "cudnn-resolve-answer "
"""Begins the line that is the answer, so that whatever else prints into the stream does no harm."""


def payload_path(name: str) -> str:
    """Path of a program of this package, `probe/payload_python.py`."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), name)


def answer_of(result: CommandResult) -> dict[str, Any] | None:
    """The JSON object in a child's answer; None where there is none: it crashed, hung, or printed something else."""
    line = next((one for one in reversed(result.stdout.splitlines()) if one.startswith(MARK)), None)
    try:
        answer = json.loads(line[len(MARK) :]) if line is not None else None
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
