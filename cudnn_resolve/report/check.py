"""Verdicts as text."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_resolve.diagnosis.model import Diagnosis, Verdict
from cudnn_resolve.report.doctor import render as render_findings
from cudnn_resolve.report.text import Style, clean, wrap

_HEADS = {"runs": ("runs", "green"), "breaks": ("breaks", "red"), "unknown": ("nothing wrong was found in what was judged", "green")}


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
