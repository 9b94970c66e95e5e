"""What copies of cuDNN say of themselves, each in a child that may hang or crash."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from cudnn_resolve.facts.model import Problem
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.child import answer_of, payload_path
from cudnn_resolve.probe.environment import TargetEnvironment
from cudnn_resolve.version import CudaVersion, CudnnVersion

TIMEOUT_SECONDS = 10.0
"""For all copies together; a cold network disk needs seconds for one."""
_MOST_LETTERS = 300


class Said(Struct, frozen=True, kw_only=True):
    """What one library said."""

    version: CudnnVersion | None = None
    """Three numbers; None where it did not say."""
    cuda: CudaVersion | None = None
    """The line that it was compiled with."""
    other_release: tuple[str, ...] = ()
    """Parts that are of another release than libcudnn."""
    fault: str | None = None
    """Why it did not answer, or how it ended while it was asked; None where nothing was wrong."""


def ask_libraries(host: Host, environment: TargetEnvironment, libraries: Sequence[str]) -> tuple[Mapping[str, Said], tuple[Problem, ...]]:
    """What each library said, by its path; a problem where none could be asked."""
    python = environment.python.path or host.python
    if not libraries or not python:
        return MappingProxyType({}), ()
    question = {"seconds": TIMEOUT_SECONDS, "paths": list(environment.ld_library_path), "libraries": list(libraries)}
    # What the user has set for programs that use cuDNN would make it log or load something else.
    env = {name: value for name, value in host.environ.items() if not name.startswith(("CUDNN_", "LD_PRELOAD"))}
    argv = [python, "-I", payload_path("payload_cudnn.py"), json.dumps(question)]
    result = host.run(argv, timeout_seconds=TIMEOUT_SECONDS + 5, env={**env, "LC_ALL": "C"})
    answer = answer_of(result)
    if answer is None or not isinstance(answer.get("answers"), dict):
        why = str((answer or {}).get("failed") or result.why() or "gave no answer")
        return MappingProxyType({}), (Problem(what="versions of cuDNN", why=f"{python} {why}"),)
    told = {path: _said(row) for path, row in answer["answers"].items() if isinstance(row, dict)}
    unasked = {path: Said(fault="was not asked: the others took all the time") for path in libraries if path not in told}
    return MappingProxyType(unasked | told), ()


def _said(row: Mapping[str, Any]) -> Said:
    """One answer; whatever is not what the child prints counts as not said."""
    version = row.get("version")
    cuda = row.get("cuda")
    checks = row.get("checks")
    return Said(
        version=CudnnVersion.from_encoded(version) if isinstance(version, int) else None,
        cuda=CudaVersion.from_encoded(cuda) if isinstance(cuda, int) else None,
        other_release=tuple(str(part) for part, status in checks.items() if status != 0) if isinstance(checks, dict) else (),
        fault=_fault(row),
    )


def _fault(row: Mapping[str, Any]) -> str | None:
    if row.get("error"):
        return f"cannot be loaded: {_line(str(row['error']))}"
    if row.get("done"):
        return None
    ended = row.get("ended")
    doing = f"when its part {row['asking']} is asked" if row.get("asking") else "when it is asked for its version"
    if not row.get("loaded"):
        doing = "while it is loaded"
    if ended == "time":
        return f"hangs {doing}"
    words = _line(str(row.get("said") or ""))
    how = "gives no answer" if ended == "exit" else f"ends the process ({ended})"
    return f"{how} {doing}" + (f": {words}" if words else "")


def _line(text: str) -> str:
    """The last line of a text that says something, without control characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(letter if letter.isprintable() else "?" for letter in (lines or [""])[-1])[:_MOST_LETTERS]
