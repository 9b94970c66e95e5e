"""Payloads: programs of this package that run in a child and answer with one line of JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from cudnn_resolve.host.payload_door import read

PACKAGE = os.path.dirname(os.path.dirname(__file__))
MARK = "cudnn-resolve-answer "
"""Prefix of the answer line, so that other output in the stream does no harm."""


def payload_path(name: str) -> str:
    """Path of a payload, such as `probe/payload_python.py`."""
    return os.path.join(PACKAGE, name)


def payload_text(name: str) -> str:
    """Source of a payload, for another machine or a copy; "" if it cannot be read."""
    return (read(payload_path(name), 0, 1 << 20) or b"").decode()


def answer_of(output: str) -> dict[str, Any] | None:
    """JSON object in the output of a payload; None if it crashed, hung, or printed something else."""
    line = next((line for line in reversed(output.splitlines()) if line.startswith(MARK)), None)
    try:
        answer = json.loads(line[len(MARK) :]) if line is not None else None
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
