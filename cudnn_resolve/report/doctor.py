"""A diagnosis as text and as Markdown."""

from __future__ import annotations

import re

from cudnn_resolve.diagnosis.model import EMPTY, Diagnosis, Finding
from cudnn_resolve.report.anonymize import redact
from cudnn_resolve.report.check import remedy_lines
from cudnn_resolve.report.text import Style, clean, wrap

_EVIDENCE_LINES, _NARROWEST = 5, 53
_COLORS = {"error": "red", "warning": "yellow", "info": "dim"}


def render(diagnosis: Diagnosis, *, style: Style, width: int) -> str:
    """The findings for a reader at a terminal."""
    if not diagnosis.findings:
        return f"{_nothing(diagnosis)}\n"
    blocks = ["\n".join(_text(one, style, width)) for one in diagnosis.findings]
    return "\n\n".join(blocks) + "\n"


def _nothing(diagnosis: Diagnosis) -> str:
    """That nothing was found, or that there was nothing to look at."""
    if diagnosis.note == EMPTY:
        return "The log is empty: there is nothing to judge. Errors mostly go to standard error; `PROGRAM 2>&1 | tee LOG` keeps both."
    where = f" in {diagnosis.lines} line{'s' if diagnosis.lines > 1 else ''} of the log" if diagnosis.lines else ""
    return f"Nothing wrong was found{where}{f'; {diagnosis.note}' if diagnosis.note else ''}."


def _text(finding: Finding, style: Style, width: int) -> list[str]:
    head = style(f"{finding.severity}: {finding.cause}", "bold", _COLORS[finding.severity])
    lines = [f"{head} ({finding.confidence:.0%})", *wrap(clean(finding.summary), width=width, first="  ")]
    for one in finding.evidence:
        where = f"line {one.line}" if one.line is not None else one.source
        text = wrap(clean(one.text), width=max(width, _NARROWEST), first=f"  {where:>9}  ", rest=" " * 13)
        text = text if len(text) <= _EVIDENCE_LINES else [*text[: _EVIDENCE_LINES - 1], f"{text[_EVIDENCE_LINES - 1]}..."]
        lines += [f"  {style(f'{where:>9}', 'dim')}{text[0][2 + max(len(where), 9) :]}", *text[1:]]
    if finding.undecided:
        lines.extend(wrap(clean(finding.undecided), width=width, first="  not decided: "))
    return [*lines, *remedy_lines(finding.remedy, width)]


def markdown(diagnosis: Diagnosis) -> str:
    """The findings for an issue or a chat: secrets, user names and home directories are left out."""
    if not diagnosis.findings:
        said = _nothing(diagnosis)
        return f"**cudnn-resolve doctor**: {said[:1].lower()}{said[1:]}\n"
    parts = ["### cudnn-resolve doctor", *("\n".join(_markdown(one)) for one in diagnosis.findings)]
    return "\n\n".join(parts) + "\n"


def _markdown(finding: Finding) -> list[str]:
    lines = [f"**{finding.severity}: `{finding.cause}`** ({finding.confidence:.0%})", "", _prose(finding.summary)]
    if finding.evidence:
        shown = [f"{one.line if one.line is not None else one.source}: {redact(clean(one.text))}" for one in finding.evidence]
        fence = "`" * max(3, 1 + max(len(run) for text in shown for run in re.findall("`*", text)))
        lines += ["", f"{fence}text", *shown, fence]
    if finding.undecided:
        lines += ["", f"Not decided: {_prose(finding.undecided)}"]
    for number, one in enumerate(finding.remedy, 1):
        lines += ["", f"{number}. {_prose(one.text)}"]
        if one.command:
            lines += ["   ```sh", f"   {redact(clean(one.command))}", "   ```"]
    return lines


def _prose(text: str) -> str:
    """A sentence in which nothing is markup but what is code already."""
    return re.sub(r"([<>*_|\[\]])", r"\\\1", redact(clean(text)))
