"""Run one payload in a child of the target interpreter, and collect what it told, how it ended and its last lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from cudnn_resolve.host.protocol import CommandResult, Host
from cudnn_resolve.validation.answers import Told, one_line
from cudnn_resolve.validation.payload import MARK

_ROOM = "cudnn_resolve.validation"
FOLDERS = [os.path.dirname(__file__)]
"""Where payloads lie."""
START = f"""import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib, json, types
question, folders, parts = json.loads(sys.stdin.read())
for package in ("cudnn_resolve", "{_ROOM}"):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = folders
writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
for part in parts:
    importlib.import_module("{_ROOM}." + part)
sys.dont_write_bytecode = writes
question["payload"] = "{_ROOM}." + question["payload"]
sys.modules["{_ROOM}.payload"].main(question)
"""
"""Imports payloads alone, under empty packages: what this package itself needs is not there in the target's interpreter."""
MEMORY_MIB = 16 << 10
"""What one child may hold of the machine's memory; a framework with its libraries holds 1 to 4 GiB."""
_MOST_LINES = 12
_MOST_TOLD = 50_000
_NOISE = ("Unable to register cu", "TF-TRT Warning", "oneDNN custom operations", "rebuild TensorFlow with the appropriate compiler flags")
"""What TensorFlow always says."""


def run_payload(
    host: Host, python: str, question: Mapping[str, Any], *, env: Mapping[str, str], seconds: float, memory_mib: int = MEMORY_MIB
) -> Told:
    """Run the payload that the question names; it may crash, hang, print without end or take all memory, and is stopped then."""
    text = program_text({**question, "memory_mib": memory_mib})
    result = host.run([python, "-c", START], timeout_seconds=seconds, env=env, input=text, memory_limit_mib=2 * memory_mib)
    events = tuple(_events(result.stdout))
    return Told(events=events, failure=_failure(result, events, seconds), output=last_lines(result.stderr))


def program_text(question: Mapping[str, Any]) -> str:
    """Write what a child that runs START reads: the question, where payloads lie, and which of them answer it."""
    parts = ["payload", question["payload"], *(f"payload_{one['module']}" for one in question.get("frameworks", ()))]
    return json.dumps([question, FOLDERS, parts])


def _events(text: str) -> Iterator[tuple[str, Any]]:
    """Read the lines that carry our mark; every other line comes from a library."""
    count = 0
    for line in text.split("\n"):
        if not line.startswith(MARK) or count == _MOST_TOLD:
            continue
        try:
            told = json.loads(line[len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(told, list) and len(told) == 2 and isinstance(told[0], str):
            count += 1
            yield told[0], told[1]


def _failure(result: CommandResult, events: tuple[tuple[str, Any], ...], seconds: float) -> str:
    keys = {key for key, _ in events}
    failed = next((value for key, value in events if key == "failed"), None)
    if "memory" in keys:
        limit = next(value for key, value in events if key == "memory")
        return f"held more than {limit} MiB of memory and was stopped"
    if result.timed_out:
        return f"did not end within {seconds:g} s and was stopped"
    if failed is not None:
        return one_line(str(failed), 1000)
    if result.ok and "end" in keys:
        return ""
    return one_line(result.why() or "ended before it had told everything", 1000)


def last_lines(text: str) -> tuple[str, ...]:
    """Keep the last lines that say something, each shortened and without control characters."""
    lines = [one_line(line) for line in text[-200_000:].splitlines() if line.strip()]
    told = [line for line in lines if not any(noise in line for noise in _NOISE)]
    return tuple(told[-_MOST_LINES:])
