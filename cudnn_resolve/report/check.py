"""Render verdicts as text, Markdown, SARIF, JUnit XML and GitHub annotations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from cudnn_resolve.diagnosis.model import Comparison, Finding, Remedy, Verdict
from cudnn_resolve.errors import first_few
from cudnn_resolve.report.text import Page, clean, wrap

_HEADS = {"runs": ("runs", "green"), "breaks": ("breaks", "red"), "unknown": ("no problem was found in what was judged", "yellow")}
_STATUS_TEXT = {"runs": "runs", "breaks": "breaks", "unknown": "not known to run"}
_COMPLAINTS_HEAD = "Apart from the verdict, `pip check` would complain:"
_MOST_COMPLAINTS = 5
"""Unmet declared pins to list, unless verbose."""
_MOST_MOVED = 12
"""Changed packages to list; the JSON has all of them."""
_COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


def show_verdicts(page: Page, verdicts: Sequence[Verdict], *, verbose: int = 0) -> None:
    """Show each verdict, below a table if there are several machines; infos are shown only if verbose."""
    _show_overview(page, verdicts)
    for verdict in verdicts:
        page.gap()
        _show_verdict(page, verdict, verbose)


def _show_overview(page: Page, verdicts: Sequence[Verdict]) -> None:
    """Add a table of machines by environments; nothing for a single machine."""
    machines = list(dict.fromkeys(verdict.machine for verdict in verdicts))
    if len(machines) < 2:
        return
    names = list(dict.fromkeys(verdict.what for verdict in verdicts))
    if len(names) == len(verdicts):  # each machine with its own environment
        names, cells = [""], {(verdict.machine, ""): _STATUS_TEXT[verdict.status] for verdict in verdicts}
    else:
        cells = {(verdict.machine, verdict.what): _STATUS_TEXT[verdict.status] for verdict in verdicts}
    rows = [(machine, *(cells.get((machine, name), "") for name in names)) for machine in machines]
    page.table(("machine", *(name or "verdict" for name in names)), rows)


def _show_verdict(page: Page, verdict: Verdict, verbose: int) -> None:
    head, color = _HEADS[verdict.status]
    if verdict.status == "unknown" and any(finding.severity == "warning" for finding in verdict.findings):
        head = "no error was found in what was judged; see the warnings"
    page.paragraph(f"{verdict.what}, on {verdict.machine}:", "", "  ")
    page.lines.append(f"  {page.style(head, 'bold', color)}")
    longest = max((len(f"{row.name} {row.version}") for row in verdict.frameworks), default=0)
    for row in verdict.frameworks:
        status = page.style(_STATUS_TEXT[row.status], _HEADS[row.status][1])
        page.lines.append(f"  {clean(f'{row.name} {row.version}').ljust(longest)}  {status}")
    shown = [finding for finding in verdict.findings if finding.severity != "info" or verbose]
    for finding in shown:
        page.gap()
        _show_finding(page, finding)
    if verdict.remedy:
        page.title("How to fix it")
        show_remedies(page, verdict.remedy)
    hidden = len(verdict.findings) - len(shown)
    if verdict.complaints:
        complaints = verdict.complaints if verbose else verdict.complaints[:_MOST_COMPLAINTS]
        hidden += len(verdict.complaints) - len(complaints)
        page.gap()
        page.paragraph(_COMPLAINTS_HEAD, "", "  ")
        for text in complaints:
            page.paragraph(text, "  - ")
    page.gap()
    for label, texts in (("judged", verdict.judged if verbose else ()), ("not judged", verdict.not_judged)):
        if texts:
            page.paragraph("; ".join(texts), f"{label}: ", "  ")
    if hidden:
        page.lines.append(f"{hidden} more note{'' if hidden == 1 else 's'} (-v shows {'it' if hidden == 1 else 'them'})")


def _show_finding(page: Page, finding: Finding) -> None:
    severity = f"{finding.severity}:"
    first, *rest = wrap(clean(f"{severity} {finding.summary}"), width=page.width, rest="  ")
    page.lines += [first.replace(severity, page.style(severity, "bold", _COLORS[finding.severity]), 1), *rest]
    for evidence in finding.evidence:
        page.paragraph(f"{evidence.source}  {evidence.text}", "  ", "    ")
    show_remedies(page, finding.remedy)


def show_remedies(page: Page, remedies: Iterable[Remedy]) -> None:
    """Number the remedies, each with its command."""
    for number, remedy in enumerate(remedies, start=1):
        page.paragraph(remedy.text, f"  {number}. ", "     ")
        if remedy.command:
            page.lines.append(f"     $ {clean(remedy.command)}")


def show_comparisons(page: Page, comparisons: Sequence[Comparison]) -> None:
    """Show what the change of a list does to each machine."""
    for comparison in comparisons:
        before, after = comparison.before, comparison.after
        page.gap()
        page.paragraph(f"{before.what} to {after.what}, on {after.machine}:", "", "  ")
        page.table(("", "before", "after"), _rows(comparison))
        for head, findings in (("new:", comparison.appeared), ("gone:", comparison.gone)):
            for finding in findings:
                if finding.severity != "info":
                    page.title(head)
                    _show_finding(page, finding)
        if after.remedy:
            page.title("How to fix it")
            show_remedies(page, after.remedy)
        page.gap()
        page.paragraph(_moved(comparison), "changed: ", "  ")


def _rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The verdict before and after, as a whole and for each framework."""
    before, after = (
        {row.name: f"{row.version}: {_STATUS_TEXT[row.status]}" for row in verdict.frameworks}
        for verdict in (comparison.before, comparison.after)
    )
    rows = [(name, before.get(name, "-"), after.get(name, "-")) for name in dict.fromkeys((*before, *after))]
    return [("all", _STATUS_TEXT[comparison.before.status], _STATUS_TEXT[comparison.after.status]), *rows]


def _moved(comparison: Comparison) -> str:
    """The packages that change, starting with those on both sides."""
    texts = []
    for row in sorted(comparison.moved, key=lambda row: (row.before is None or row.after is None, row.name)):
        if row.before and row.after:
            texts.append(f"{row.name} {row.before} -> {row.after}")
        else:
            texts.append(f"{'-' if row.before else '+'}{row.name} {row.before or row.after}")
    return first_few(texts, _MOST_MOVED) or "nothing"


def markdown_diff(comparisons: Iterable[Comparison]) -> str:
    """Show what the change of a list does to each machine, for a pull request; empty if there is nothing to compare."""
    parts: list[str] = []
    for comparison in comparisons:
        names = f"`{_escape(comparison.before.what)}` to `{_escape(comparison.after.what)}` on {_escape(comparison.after.machine)}"
        change = f"{_STATUS_TEXT[comparison.before.status]} → **{_STATUS_TEXT[comparison.after.status]}**"
        parts += [f"### {names}: {change}", ""]
        parts += ["| | before | after |", "| --- | --- | --- |", *(f"| {' | '.join(map(_escape, row))} |" for row in _rows(comparison)), ""]
        parts += [f"- new **{finding.severity}**: {_escape(finding.summary)}{_evidence(finding)}" for finding in comparison.appeared]
        parts += [f"- gone {finding.severity}: {_escape(finding.summary)}" for finding in comparison.gone]
        parts += ["", f"Changed: {_escape(_moved(comparison))}", ""]
    return "\n".join(parts)


def markdown(verdicts: Iterable[Verdict]) -> str:
    """Show the verdicts for a pull request."""
    parts: list[str] = []
    for verdict in verdicts:
        parts += [f"### `{_escape(verdict.what)}` on {_escape(verdict.machine)}: **{_STATUS_TEXT[verdict.status]}**", ""]
        if verdict.frameworks:
            parts += ["| framework | verdict |", "| --- | --- |"]
        parts += [f"| {_escape(row.name)} {_escape(row.version)} | {_STATUS_TEXT[row.status]} |" for row in verdict.frameworks]
        parts.append("")
        parts += [f"- **{finding.severity}**: {_escape(finding.summary)}{_evidence(finding)}" for finding in verdict.findings]
        parts.append("")
        for number, remedy in enumerate(verdict.remedy, 1):
            parts.append(f"{number}. {_escape(remedy.text)}" + (f": `{remedy.command}`" if remedy.command else ""))
        if verdict.complaints:
            parts += ["", _COMPLAINTS_HEAD, "", *(f"- {_escape(text)}" for text in verdict.complaints)]
        if verdict.not_judged:
            parts += ["", f"Not judged: {_escape('; '.join(verdict.not_judged))}", ""]
    return "\n".join(parts)


def _evidence(finding: Finding) -> str:
    return "".join(f"<br>{_escape(evidence.source)}: {_escape(evidence.text)}" for evidence in finding.evidence)


def _escape(text: str) -> str:
    """Escape what Markdown would interpret, also in a cell of a table."""
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")
    return escaped.replace("*", "\\*").replace("[", "\\[")


def github(verdicts: Iterable[Verdict]) -> str:
    """Workflow commands that annotate the lines with the pins on GitHub."""
    levels = {"error": "error", "warning": "warning", "info": "notice"}
    lines = []
    for verdict in verdicts:
        for finding in verdict.findings:
            file, line = _location(finding)
            place = [f"file={_property(file)}", f"line={line}"] if line is not None else []
            properties = ",".join([*place, f"title={_property(finding.cause)}"])
            lines.append(f"::{levels[finding.severity]} {properties}::{_data(_message(verdict, finding))}")
        if verdict.status != "breaks":
            lines.append(f"::notice::{_data(clean(f'{verdict.what} on {verdict.machine}: {_STATUS_TEXT[verdict.status]}'))}")
    return "".join(f"{line}\n" for line in lines)


def _message(verdict: Verdict, finding: Finding) -> str:
    because = "; ".join(evidence.text for evidence in finding.evidence)
    return clean(f"{finding.summary} ({because}); on {verdict.machine}")


def _location(finding: Finding) -> tuple[str, int | None]:
    """File and line of a finding; no line if it does not concern a file."""
    for evidence in finding.evidence:
        if evidence.line is not None:
            return evidence.source.rpartition(":")[0], evidence.line
    return "", None


def _data(text: str) -> str:
    """Escape the data of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape the value of a workflow command's property."""
    return _data(clean(text)).replace(":", "%3A").replace(",", "%2C")


def sarif(verdicts: Iterable[Verdict], version: str) -> str:
    """SARIF 2.1.0 for code scanning."""
    found = [(verdict, finding) for verdict in verdicts for finding in verdict.findings]
    levels = {"error": "error", "warning": "warning", "info": "note"}
    results: list[dict[str, Any]] = []
    for verdict, finding in found:
        file, line = _location(finding)
        # Code scanning rejects a result without a location: a finding that concerns no line is shown on the first one.
        location = {
            "artifactLocation": {"uri": quote(file or verdict.what.partition(" (")[0], errors="surrogateescape")},
            "region": {"startLine": line or 1},
        }
        results.append(
            {
                "ruleId": finding.cause,
                "level": levels[finding.severity],
                "message": {"text": _message(verdict, finding)},
                "locations": [{"physicalLocation": location}],
            }
        )
    rules = [{"id": cause} for cause in sorted({finding.cause for _, finding in found})]
    driver = {"name": "cudnn-resolve", "version": version, "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def junit(verdicts: Iterable[Verdict]) -> str:
    """A test suite for each verdict and a test case for each framework; unknown ones are skipped."""
    from xml.etree.ElementTree import Element, SubElement

    from cudnn_resolve.report.junit import xml_document, xml_line, xml_text

    root = Element("testsuites", name="cudnn-resolve check")
    for verdict in verdicts:
        errors = [finding for finding in verdict.findings if finding.severity == "error"]
        cases = [(f"{row.name} {row.version}", row.status) for row in verdict.frameworks] or [("environment", verdict.status)]
        if errors and all(status != "breaks" for _, status in cases):
            cases.append(("environment", "breaks"))
        statuses = [status for _, status in cases]
        counts = {"failures": str(statuses.count("breaks")), "skipped": str(statuses.count("unknown"))}
        head = {"name": xml_line(f"{verdict.what} on {verdict.machine}"), "tests": str(len(cases)), "errors": "0"}
        suite = SubElement(root, "testsuite", {**head, **counts})
        for name, status in cases:
            case = SubElement(suite, "testcase", name=xml_line(name), classname=xml_line(verdict.what))
            if status == "breaks":
                own = [finding for finding in errors if name.partition(" ")[0] in finding.summary] or errors
                failure = SubElement(case, "failure", message=xml_line("; ".join(finding.summary for finding in own)))
                failure.text = xml_text("\n".join(_message(verdict, finding) for finding in own))
            elif status == "unknown":
                SubElement(case, "skipped", message=xml_line("; ".join(verdict.not_judged)))
    return xml_document(root)
