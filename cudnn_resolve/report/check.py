"""Verdicts as text and as a mapping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.diagnosis.verdict import Verdict
from cudnn_resolve.report.doctor import encode as encode_findings
from cudnn_resolve.report.doctor import render as render_findings
from cudnn_resolve.report.text import Style, clean, wrap

SCHEMA = "cudnn-resolve/check/1"
_HEADS = {"runs": ("runs", "green"), "breaks": ("breaks", "red"), "unknown": ("nothing wrong was found in what was judged", "green")}


def encode(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """The object that `check --format json` prints."""
    return {"schema": SCHEMA, "verdicts": [_encode(one) for one in verdicts]}


def _encode(one: Verdict) -> dict[str, Any]:
    return {
        "what": one.what,
        "machine": one.machine,
        "status": one.status,
        "frameworks": [{"name": each.name, "version": each.version, "status": each.status} for each in one.frameworks],
        "findings": encode_findings(Diagnosis(findings=one.findings))["findings"],
        "judged": list(one.judged),
        "not_judged": list(one.not_judged),
    }


def render(verdicts: Iterable[Verdict], *, style: Style, width: int) -> str:
    """The verdicts for a reader at a terminal."""
    return "\n".join(_text(one, style, width) for one in verdicts)


def _text(one: Verdict, style: Style, width: int) -> str:
    said, color = _HEADS[one.status]
    lines = [f"{clean(one.what)}: {style(said, 'bold', color)}"]
    lines += wrap(clean("; ".join(one.judged)), width=width, first="  judged:     ", rest=" " * 14)
    lines += wrap(clean("; ".join(one.not_judged)), width=width, first="  not judged: ", rest=" " * 14)
    text = "\n".join(lines) + "\n"
    return f"{text}\n{render_findings(Diagnosis(findings=one.findings), style=style, width=width)}" if one.findings else text
