"""A diagnosis as JSON and as text."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.diagnosis.model import Diagnosis, Finding
from cudnn_resolve.report.text import Style, clean, shorten, wrap

SCHEMA = "cudnn-resolve/doctor/1"
_COLORS = {"error": "red", "warning": "yellow", "info": "dim"}


def encode(diagnosis: Diagnosis) -> dict[str, Any]:
    """The object that `doctor --format json` prints."""
    return {"schema": SCHEMA, "findings": [_encode(one) for one in diagnosis.findings]}


def _encode(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "severity": finding.severity,
        "summary": finding.summary,
        "evidence": [{"source": one.source, "line": one.line, "text": one.text} for one in finding.evidence],
        "remedy": [{"text": one.text, "command": one.command} for one in finding.remedy],
        "confidence": finding.confidence,
        "undecided": finding.undecided,
    }


def render(diagnosis: Diagnosis, *, style: Style, width: int) -> str:
    """The findings for a reader at a terminal."""
    if not diagnosis.findings:
        return "Nothing wrong was found.\n"
    blocks = ["\n".join(_text(one, style, width)) for one in diagnosis.findings]
    return "\n\n".join(blocks) + "\n"


def _text(finding: Finding, style: Style, width: int) -> list[str]:
    head = style(f"{finding.severity}: {finding.cause}", "bold", _COLORS[finding.severity])
    lines = [f"{head} ({finding.confidence:.0%})", *wrap(clean(finding.summary), width=width, first="  ")]
    for one in finding.evidence:
        where = f"line {one.line}" if one.line is not None else one.source
        lines.append(f"  {style(f'{where:>9}', 'dim')}  {shorten(clean(one.text), max(width - 13, 40))}")
    if finding.undecided:
        lines.extend(wrap(clean(finding.undecided), width=width, first="  not decided: "))
    for number, one in enumerate(finding.remedy, 1):
        lines.extend(wrap(clean(one.text), width=width, first=f"  {number}. "))
        if one.command:
            lines.append(f"     $ {clean(one.command)}")
    return lines
