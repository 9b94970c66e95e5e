"""Tell which program wrote a line: by the launcher's prefix, and by the commands that the log shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from cudnn_resolve.diagnosis.model import Match

_TIME = r"\s{0,8}\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?\s{0,4}(?:std(?:out|err) [FP] |\| )?"
_SPEAKER = re.compile(
    r"\s{0,8}(?:"
    r"\[?(?P<rank>rank ?\d{1,5})\]?"
    r"|(?!(?:debug|info|notice|warn(?:ing)?|error|critical|fatal|trace) {0,20}\|)(?P<service>[\w./-]{1,60}) {0,20}\| "
    r"|(?P<service2>[\w./-]{1,40}-\d{1,4}) exited with "
    r"|(?P<job>(?:job|task|stage|node|worker|pod|host|build)[ #-]?[\w.-]{1,40}): "
    r"|\((?P<process>[\w ]{1,40}pid=\d{1,9})[^)]{0,40}\)"
    r"|\[(?P<number>[\d,]{1,9})\](?:<std(?:out|err)>)?:"
    r"|(?P<label>\d{1,4}): "
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d (?P<unit>[\w.-]{1,60} [\w./@-]{1,60}(?:\[\d{1,9}\])?):"
    r")",
    re.IGNORECASE,
)
"""Writer of a line, if several write into one log."""
_PROGRAMS = {
    "tensorflow": re.compile(r"tensorflow|Created device |local_xla"),
    "torch": re.compile(r"[Tt]orch\b"),
    "jax": re.compile(r"\bjax|Device\(id="),
    "onnxruntime": re.compile(r"onnxruntime|ExecutionProvider"),
    "ggml": re.compile(r"ggml|ollama|inference compute"),
    "paddle": re.compile(r"[Pp]addle|Please NOTE: device"),
}
"""Wording of the programs that may look for a GPU in one process."""
_OTHER, _START = "context-other-command", "context-start"


def speaker(text: str) -> str:
    """Writer of a line according to the launcher's prefix; empty without one. A time is not a writer."""
    found = _SPEAKER.match(text, _after_time(text))
    return next(name for name in found.groups() if name) if found else ""


def head(text: str) -> int:
    """Offset of the message after its time and writer."""
    at = _after_time(text)
    found = _SPEAKER.match(text, at)
    return found.end() if found else at


def _after_time(text: str) -> int:
    time = re.match(_TIME, text)
    return time.end() if time else 0


def programs(matches: Iterable[Match]) -> frozenset[str]:
    """Programs that wrote the lines, by their wording."""
    return frozenset(name for name, pattern in _PROGRAMS.items() for match in matches if pattern.search(match.shown))


def is_of_other(match: Match, failed: Match, latest: Mapping[str, Sequence[Match]]) -> bool:
    """True if a command that begins after a failure wrote a line, and it is an installer, a build or the like, which did not fail."""
    commands = [found for name in (_OTHER, _START) for found in latest[name] if found.line < match.line]
    last = max(commands, key=lambda found: found.line, default=None)
    if last is None or last.line <= failed.line or "tool" not in last.fields or programs((match,)):
        return False
    before = max((found for found in commands if found.line < failed.line), key=lambda found: found.line, default=None)
    return before is None or before.fields.get("tool") != last.fields["tool"]
