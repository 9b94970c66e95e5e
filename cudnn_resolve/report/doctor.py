"""Render a diagnosis as text and as Markdown."""

from __future__ import annotations

import re

from cudnn_resolve.diagnosis.model import EMPTY, Diagnosis, Finding
from cudnn_resolve.masking import without_logins
from cudnn_resolve.report.check import show_remedies
from cudnn_resolve.report.text import Page, clean, wrap

_MOST_EVIDENCE_LINES = 5
"""Lines to show of one quotation."""
_NARROWEST = 53
"""Columns that a quotation gets on any terminal."""
_COLORS = {"error": "red", "warning": "yellow", "info": "dim"}

_SECRETS = (
    (r"(?i)\b(authorization:? *(?:bearer|basic|token)|bearer) +[\w.+/=~-]{6,400}", r"\1 <secret>"),
    (
        (
            r"\b(?:hf_[A-Za-z0-9]{10,80}|gh[pousr]_[A-Za-z0-9]{10,80}|github_pat_\w{10,100}|sk-[\w-]{10,120}|xox[abprs]-[\w-]{8,100}"
            r"|AKIA[0-9A-Z]{12,20}|AIza[\w-]{20,60}|glpat-[\w-]{10,60}|pypi-[\w-]{16,300}|wandb_v\w{10,80}|eyJ[\w-]{10,400}\.[\w-]{5,800}\.[\w-]{5,400})"
        ),
        "<secret>",
    ),
    (
        (
            r"(?i)\b([\w-]{0,40}(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)(?:[_-][\w-]{0,20}|s)?[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
            r"[^\s\"',;&]{3,200}"
        ),
        r"\1<secret>",
    ),
    (r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}\b", "<address>"),
    (r"(/(?:home|Users|users|export/home)/)[^/\s:\"']{1,64}", "~"),
    (r"(?i)\b([a-z]:[\\/]{1,2}users[\\/]{1,2})[^\\/\s:\"']{1,64}", r"\1<user>"),
    (
        r"(?<![\w.=-])(?:10|127|172|192|169)\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.])|(?<=[/@\s])\d{1,3}(?:\.\d{1,3}){3}(?=:\d)",
        "<host>",
    ),
    (r"^[\w.-]{1,32}@[\w.-]{1,64}(?=[:\s])", "<user>@<host>"),
    (r"(?i)\bhostname=[\w.-]{1,80}", "hostname=<host>"),
    (r"(?i)(UUID: )?GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "GPU-<uuid>"),
)
"""Patterns and their replacements, applied in order."""


def show_diagnosis(page: Page, diagnosis: Diagnosis) -> None:
    """Show the findings for a terminal."""
    if not diagnosis.findings:
        page.lines.append(_no_findings(diagnosis))
    for finding in diagnosis.findings:
        page.gap()
        _show(page, finding)


def _no_findings(diagnosis: Diagnosis) -> str:
    if diagnosis.note == EMPTY:
        return "The log is empty. Most programs write errors to standard error; `PROGRAM 2>&1 | tee LOG` captures both streams."
    lines = f" in {diagnosis.lines} line{'s' if diagnosis.lines > 1 else ''} of the log" if diagnosis.lines else ""
    return f"No problem was found{lines}{f'; {diagnosis.note}' if diagnosis.note else ''}."


def _show(page: Page, finding: Finding) -> None:
    head = page.style(f"{finding.severity}: {finding.cause}", "bold", _COLORS[finding.severity])
    page.lines.append(f"{head} ({finding.confidence:.0%})")
    page.paragraph(finding.summary)
    for evidence in finding.evidence:
        source = clean(f"line {evidence.line}" if evidence.line is not None else evidence.source)
        first = f"  {page.style(source.rjust(9), 'dim')}  "
        quoted = wrap(clean(evidence.text), width=max(page.width, _NARROWEST), first=first, rest=" " * 13)
        if len(quoted) > _MOST_EVIDENCE_LINES:
            quoted = [*quoted[: _MOST_EVIDENCE_LINES - 1], f"{quoted[_MOST_EVIDENCE_LINES - 1]}..."]
        page.lines += quoted
    if finding.undecided:
        page.paragraph(finding.undecided, "  not decided: ")
    show_remedies(page, finding.remedy)


def markdown(diagnosis: Diagnosis) -> str:
    """Show the findings for an issue or a chat, without secrets, user names and home directories."""
    if not diagnosis.findings:
        text = _no_findings(diagnosis)
        return f"**cudnn-resolve doctor**: {text[:1].lower()}{text[1:]}\n"
    parts = ["### cudnn-resolve doctor", *("\n".join(_markdown(finding)) for finding in diagnosis.findings)]
    return "\n\n".join(parts) + "\n"


def _markdown(finding: Finding) -> list[str]:
    lines = [f"**{finding.severity}: `{finding.cause}`** ({finding.confidence:.0%})", "", _prose(finding.summary)]
    if finding.evidence:
        quoted = [f"{one.line if one.line is not None else one.source}: {redact(clean(one.text))}" for one in finding.evidence]
        fence = "`" * max(3, 1 + max(len(run) for text in quoted for run in re.findall("`*", text)))
        lines += ["", f"{fence}text", *quoted, fence]
    if finding.undecided:
        lines += ["", f"Not decided: {_prose(finding.undecided)}"]
    for number, remedy in enumerate(finding.remedy, 1):
        lines += ["", f"{number}. {_prose(remedy.text)}"]
        if remedy.command:
            lines += ["   ```sh", f"   {redact(clean(remedy.command))}", "   ```"]
    return lines


def _prose(text: str) -> str:
    """Redact a sentence and escape its markup, but not its code spans."""
    return re.sub(r"([<>*_|\[\]])", r"\\\1", redact(clean(text)))


def redact(text: str) -> str:
    """Replace secrets, addresses, user names and home directories with placeholders."""
    text = without_logins(text, "<secret>@")
    for pattern, replacement in _SECRETS:
        text = re.sub(pattern, replacement, text)
    return text
