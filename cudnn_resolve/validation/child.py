"""One child process: the question it gets, and what it reported before it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from cudnn_resolve.host.protocol import CommandResult, Host
from cudnn_resolve.validation.answers import ChildReport, one_line
from cudnn_resolve.validation.payload import MARK

_PACKAGE = "cudnn_resolve.validation"
FOLDERS = [os.path.dirname(__file__)]
"""Directories with payloads."""
START = f"""import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib, json, types
question, folders, parts = json.loads(sys.stdin.read())
for package in ("cudnn_resolve", "{_PACKAGE}"):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = folders
writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
for part in parts:
    importlib.import_module("{_PACKAGE}." + part)
sys.dont_write_bytecode = writes
question["payload"] = "{_PACKAGE}." + question["payload"]
sys.modules["{_PACKAGE}.payload"].main(question)
"""
"""Imports the payloads alone, below empty packages: the target's interpreter lacks the dependencies of this package."""
MEMORY_MIB = 16 << 10
"""Main memory limit of one child; a framework with its libraries takes 1 to 4 GiB."""
_MOST_LINES = 12
_MOST_EVENTS = 50_000
_NOISE = ("Unable to register cu", "TF-TRT Warning", "oneDNN custom operations", "rebuild TensorFlow with the appropriate compiler flags")
"""Printed by TensorFlow on every start."""


def run_payload(
    host: Host, python: str, question: Mapping[str, Any], *, env: Mapping[str, str], seconds: float, memory_mib: int = MEMORY_MIB
) -> ChildReport:
    """Run the payload named in the question; if it hangs, prints endlessly or exhausts its memory, it is stopped."""
    text = program_text({**question, "memory_mib": memory_mib})
    result = host.run([python, "-c", START], timeout_seconds=seconds, env=env, input=text, memory_limit_mib=2 * memory_mib)
    events = tuple(_read_events(result.stdout))
    return ChildReport(events=events, failure=_failure(result, events, seconds), output=last_lines(result.stderr))


def program_text(question: Mapping[str, Any]) -> str:
    """Input of a child that runs START: the question, the directories of the payloads, and those it needs."""
    parts = ["payload", question["payload"], *(f"payload_{framework['module']}" for framework in question.get("frameworks", ()))]
    return json.dumps([question, FOLDERS, parts])


def _read_events(text: str) -> Iterator[tuple[str, Any]]:
    """Parse lines with our mark; any other line was printed by a library."""
    count = 0
    for line in text.split("\n"):
        if not line.startswith(MARK) or count == _MOST_EVENTS:
            continue
        try:
            event = json.loads(line[len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(event, list) and len(event) == 2 and isinstance(event[0], str):
            count += 1
            yield event[0], event[1]


def _failure(result: CommandResult, events: tuple[tuple[str, Any], ...], seconds: float) -> str:
    first: dict[str, Any] = {}
    for key, value in events:
        first.setdefault(key, value)
    if "memory" in first:
        return f"held more than {first['memory']} MiB of memory and was stopped"
    if result.timed_out:
        return f"did not end within {seconds:g} s and was stopped"
    if first.get("failed") is not None:
        return one_line(str(first["failed"]), 1000)
    if result.ok and "end" in first:
        return ""
    return one_line(result.why() or "ended before its last answer", 1000)


def last_lines(text: str) -> tuple[str, ...]:
    """Last meaningful lines, each shortened and without control characters."""
    lines = [one_line(line) for line in text[-200_000:].splitlines() if line.strip()]
    relevant = [line for line in lines if not any(noise in line for noise in _NOISE)]
    return tuple(relevant[-_MOST_LINES:])
