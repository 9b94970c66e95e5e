"""What a diagnosis is made of: matches in a log, and the findings that come of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from cudnn_resolve.matrix.symptom import Symptom

SEVERITIES = ("error", "warning", "info")


class Evidence(Struct, frozen=True, kw_only=True):
    """One line that a finding rests on."""

    source: str
    """`log`, or the dotted fact."""
    line: int | None
    text: str


class Remedy(Struct, frozen=True, kw_only=True):
    """One thing to do; `command` is None where no command does it."""

    text: str
    command: str | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One diagnosed cause, with its evidence and its remedy."""

    cause: str
    severity: str
    """`error`, `warning` or `info`."""
    summary: str
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[Remedy, ...] = ()
    confidence: float = 0.5
    """From 0 to 1."""
    undecided: str | None = None
    """What the log and the facts leave open, and what would decide it."""


class Match(Struct, frozen=True, kw_only=True, eq=False):
    """A symptom that was found in a log."""

    symptom: Symptom
    line: int
    text: str
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Field to value, as its kind takes it."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, the most likely cause first."""

    findings: tuple[Finding, ...] = ()
    lines: int = 0
    """Lines of the log, 0 where there was none."""
    note: str | None = None
    """What is to be known of the machine where nothing was found."""

    @property
    def is_error(self) -> bool:
        """True where something of severity error was found."""
        return any(one.severity == "error" for one in self.findings)
