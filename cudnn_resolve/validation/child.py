"""Run one payload in a child of the target interpreter, and collect what it told, how it ended and its last lines."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cudnn_resolve.host.port import CommandResult, Host
from cudnn_resolve.validation.answers import Told, one_line
from cudnn_resolve.validation.payload import MARK

_ROOM = "cudnn_resolve.validation"
_NEEDS = re.compile(rf"^from {_ROOM}\.(payload\w*) import ", re.MULTILINE)
START = f"""import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json, types
question, sources = json.loads(sys.stdin.read())
for name, text in sources:
    sys.modules["{_ROOM}." + name] = module = types.ModuleType("{_ROOM}." + name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
question["payload"] = "{_ROOM}." + question["payload"]
sys.modules["{_ROOM}.payload"].main(question)
"""
"""Makes modules of the texts that were sent; nothing of this package need be where the target's interpreter is."""
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
    """Write what a child that runs START reads: the question, and the texts of the payloads that answer it."""
    parts = ["payload", question["payload"], *(f"payload_{one['module']}" for one in question.get("frameworks", ()))]
    texts: dict[str, str] = {}
    for part in parts:
        _collect(part, texts)
    return json.dumps([question, list(texts.items())])


def _collect(part: str, texts: dict[str, str]) -> None:
    """Add the text of a payload behind those of the payloads that it imports."""
    text = source(part)
    for name in _NEEDS.findall(text):
        if name not in texts:
            _collect(name, texts)
    texts.setdefault(part, text)


@cache
def source(part: str) -> str:
    """Read the text of a payload."""
    return (pkgutil.get_data(__package__ or _ROOM, f"{part}.py") or b"").decode()


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
