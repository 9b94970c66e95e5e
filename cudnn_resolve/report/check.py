"""Verdicts as text, Markdown, SARIF, JUnit, and as annotations of GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from cudnn_resolve.diagnosis.model import Comparison, Finding, Remedy, Verdict
from cudnn_resolve.report.text import Page, Style, clean, wrap

_HEADS = {"runs": ("runs", "green"), "breaks": ("breaks", "red"), "unknown": ("nothing wrong was found in what was judged", "yellow")}
_WORDS = {"runs": "runs", "breaks": "breaks", "unknown": "not known to run"}
_COMPLAINS = "Apart from the verdict, `pip check` would complain:"
_COMPLAINTS = 5
"""Declared pins that are not met, and that are shown unless more is wanted."""
_COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


def render(verdicts: Sequence[Verdict], *, style: Style, width: int, verbose: int = 0) -> str:
    """The verdicts for a reader at a terminal; infos only where more is wanted. Of several machines a table comes first."""
    parts = ["\n".join(_text(one, style, width, verbose)) + "\n" for one in verdicts]
    return "\n".join([*_overview(verdicts, style, width), *parts])


def _overview(verdicts: Sequence[Verdict], style: Style, width: int) -> Iterator[str]:
    """Machines down, environments across."""
    machines = list(dict.fromkeys(one.machine for one in verdicts))
    if len(machines) < 2:
        return
    names = list(dict.fromkeys(one.what for one in verdicts))
    if len(names) == len(verdicts):  # each machine with an environment of its own
        names, cells = [""], {(one.machine, ""): _WORDS[one.status] for one in verdicts}
    else:
        cells = {(one.machine, one.what): _WORDS[one.status] for one in verdicts}
    page = Page(style, width)
    rows = [(machine, *(cells.get((machine, name), "") for name in names)) for machine in machines]
    page.table(("machine", *(name or "verdict" for name in names)), rows)
    yield page.text()


def _text(one: Verdict, style: Style, width: int, verbose: int) -> Iterator[str]:
    said, color = _HEADS[one.status]
    if one.status == "unknown" and any(finding.severity == "warning" for finding in one.findings):
        said = "no error was found in what was judged; see the warnings"
    yield from wrap(clean(f"{one.what}, on {one.machine}:"), width=width, rest="  ")
    yield f"  {style(said, 'bold', color)}"
    longest = max((len(f"{row.name} {row.version}") for row in one.frameworks), default=0)
    for row in one.frameworks:
        yield f"  {clean(f'{row.name} {row.version}').ljust(longest)}  {style(_WORDS[row.status], _HEADS[row.status][1])}"
    shown = [finding for finding in one.findings if finding.severity != "info" or verbose]
    for finding in shown:
        yield ""
        yield from _finding(finding, style, width)
    if one.remedy:
        yield ""
        yield style("What mends it", "bold")
        yield from remedy_lines(one.remedy, width)
    hidden = len(one.findings) - len(shown)
    if one.complaints:
        few = one.complaints if verbose else one.complaints[:_COMPLAINTS]
        hidden += len(one.complaints) - len(few)
        yield ""
        yield from wrap(_COMPLAINS, width=width, rest="  ")
        for text in few:
            yield from wrap(clean(text), width=width, first="  - ", rest="    ")
    judged = one.judged if verbose else ()
    yield ""
    for label, texts in (("judged", judged), ("not judged", one.not_judged)):
        if texts:
            yield from wrap(clean("; ".join(texts)), width=width, first=f"{label}: ", rest="  ")
    if hidden:
        yield f"{hidden} notes more: -v"


def _finding(row: Finding, style: Style, width: int) -> Iterator[str]:
    first, *rest = wrap(clean(f"{row.severity}: {row.summary}"), width=width, rest="  ")
    yield first.replace(f"{row.severity}:", style(f"{row.severity}:", "bold", _COLORS[row.severity]), 1)
    yield from rest
    for evidence in row.evidence:
        yield from wrap(clean(f"{evidence.source}  {evidence.text}"), width=width, first="  ", rest="    ")
    yield from remedy_lines(row.remedy, width)


def remedy_lines(remedies: Iterable[Remedy], width: int) -> Iterator[str]:
    """What helps, numbered, each with what to type."""
    for number, remedy in enumerate(remedies, start=1):
        yield from wrap(clean(remedy.text), width=width, first=f"  {number}. ", rest="     ")
        if remedy.command:
            yield f"     $ {clean(remedy.command)}"


def render_diff(changes: Sequence[Comparison], *, style: Style, width: int) -> str:
    """What a change of a list does to each machine."""
    parts = []
    for one in changes:
        page = Page(style, width)
        page.table(("", "before", "after"), _rows(one))
        lines = [
            *wrap(clean(f"{one.before.what} to {one.after.what}, on {one.after.machine}:"), width=width, rest="  "),
            page.text().rstrip("\n"),
        ]
        for head, findings in (("new:", one.appeared), ("gone:", one.gone)):
            for row in findings:
                if row.severity != "info":
                    lines += ["", style(head, "bold"), *_finding(row, style, width)]
        if one.after.remedy:
            lines += ["", style("What mends it", "bold"), *remedy_lines(one.after.remedy, width)]
        lines += ["", *wrap(clean(_moved(one)), width=width, first="changed: ", rest="  ")]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _rows(one: Comparison) -> list[tuple[str, str, str]]:
    """The verdict before and after, for the whole and for each framework."""
    before = {row.name: f"{row.version}: {_WORDS[row.status]}" for row in one.before.frameworks}
    after = {row.name: f"{row.version}: {_WORDS[row.status]}" for row in one.after.frameworks}
    names = dict.fromkeys((*before, *after))
    rows = [(name, before.get(name, "-"), after.get(name, "-")) for name in names]
    return [("all", _WORDS[one.before.status], _WORDS[one.after.status]), *rows]


def _moved(one: Comparison) -> str:
    """The packages that a change touches, those first that are on both sides."""
    rows = sorted(one.moved, key=lambda row: (row.before is None or row.after is None, row.name))
    signs = [
        f"{row.name} {row.before} -> {row.after}"
        if row.before and row.after
        else f"{'-' if row.before else '+'}{row.name} {row.before or row.after}"
        for row in rows
    ]
    more = f" and {len(signs) - _MOVED} more" if len(signs) > _MOVED else ""
    return (", ".join(signs[:_MOVED]) + more) or "nothing"


_MOVED = 12
"""Changed packages that are shown; the JSON holds all of them."""


def markdown_diff(changes: Iterable[Comparison]) -> str:
    """What a change of a list does to each machine, for a pull request; nothing where there is none."""
    parts: list[str] = []
    for one in changes:
        before, after = _WORDS[one.before.status], _WORDS[one.after.status]
        parts += [f"### `{_cell(one.before.what)}` to `{_cell(one.after.what)}` on {_cell(one.after.machine)}: {before} → **{after}**", ""]
        parts += ["| | before | after |", "| --- | --- | --- |", *(f"| {' | '.join(map(_cell, row))} |" for row in _rows(one)), ""]
        parts += [f"- new **{row.severity}**: {_cell(row.summary)}{_because(row)}" for row in one.appeared]
        parts += [f"- gone {row.severity}: {_cell(row.summary)}" for row in one.gone]
        parts += ["", f"Changed: {_cell(_moved(one))}", ""]
    return "\n".join(parts)


def markdown(verdicts: Iterable[Verdict]) -> str:
    """The verdicts for a pull request."""
    parts: list[str] = []
    for one in verdicts:
        parts += [f"### `{_cell(one.what)}` on {_cell(one.machine)}: **{_WORDS[one.status]}**", ""]
        parts += ["| framework | verdict |", "| --- | --- |"] if one.frameworks else []
        parts += [f"| {_cell(row.name)} {_cell(row.version)} | {_WORDS[row.status]} |" for row in one.frameworks]
        parts += ["", *(f"- **{row.severity}**: {_cell(row.summary)}" + _because(row) for row in one.findings), ""]
        parts += [
            f"{number}. {_cell(row.text)}" + (f": `{row.command}`" if row.command else "") for number, row in enumerate(one.remedy, 1)
        ]
        if one.complaints:
            parts += ["", _COMPLAINS, "", *(f"- {_cell(text)}" for text in one.complaints)]
        parts += ["", f"Not judged: {_cell('; '.join(one.not_judged))}", ""] if one.not_judged else []
    return "\n".join(parts)


def _because(row: Finding) -> str:
    return "".join(f"<br>{_cell(one.source)}: {_cell(one.text)}" for one in row.evidence)


def _cell(text: str) -> str:
    """A text that changes nothing of the Markdown around it."""
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")
    return escaped.replace("*", "\\*").replace("[", "\\[")


def github(verdicts: Iterable[Verdict]) -> str:
    """Workflow commands, which GitHub shows on the line that holds the pin."""
    levels = {"error": "error", "warning": "warning", "info": "notice"}
    lines = []
    for one in verdicts:
        for row in one.findings:
            file, line = _place(row)
            at = [f"file={_property(file)}", f"line={line}"] if line is not None else []
            lines.append(f"::{levels[row.severity]} {','.join([*at, f'title={_property(row.cause)}'])}::{_data(_said(one, row))}")
        if one.status != "breaks":
            lines.append(f"::notice::{_data(clean(f'{one.what} on {one.machine}: {_WORDS[one.status]}'))}")
    return "".join(f"{line}\n" for line in lines)


def _said(one: Verdict, row: Finding) -> str:
    because = "; ".join(evidence.text for evidence in row.evidence)
    return clean(f"{row.summary} ({because}); on {one.machine}")


def _place(row: Finding) -> tuple[str, int | None]:
    """File and line of a finding; no line where it is about no file."""
    for evidence in row.evidence:
        if evidence.line is not None:
            return evidence.source.rpartition(":")[0], evidence.line
    return "", None


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(clean(text)).replace(":", "%3A").replace(",", "%2C")


def sarif(verdicts: Iterable[Verdict], version: str) -> str:
    """SARIF 2.1.0, as code scanning takes it."""
    rows = [(one, row) for one in verdicts for row in one.findings]
    levels = {"error": "error", "warning": "warning", "info": "note"}
    rules = [{"id": cause} for cause in sorted({row.cause for _, row in rows})]
    results: list[dict[str, Any]] = []
    for one, row in rows:
        file, line = _place(row)
        result: dict[str, Any] = {"ruleId": row.cause, "level": levels[row.severity], "message": {"text": _said(one, row)}}
        # Code scanning refuses a result without a place: what is about no line is shown on the first one.
        place = {
            "artifactLocation": {"uri": quote(file or one.what.partition(" (")[0], errors="surrogateescape")},
            "region": {"startLine": line or 1},
        }
        result["locations"] = [{"physicalLocation": place}]
        results.append(result)
    driver = {"name": "cudnn-resolve", "version": version, "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def junit(verdicts: Iterable[Verdict]) -> str:
    """A test suite for each verdict and a test case for each framework; what is not known is skipped."""
    from xml.etree.ElementTree import Element, SubElement

    from cudnn_resolve.report.junit import line_of, text_of, written

    root = Element("testsuites", name="cudnn-resolve check")
    for one in verdicts:
        errors = [row for row in one.findings if row.severity == "error"]
        names = [(f"{row.name} {row.version}", row.status) for row in one.frameworks] or [("environment", one.status)]
        if errors and all(status != "breaks" for _, status in names):
            names.append(("environment", "breaks"))
        counts = {name: str(sum(of == status for _, of in names)) for name, status in (("failures", "breaks"), ("skipped", "unknown"))}
        head = {"name": line_of(f"{one.what} on {one.machine}"), "tests": str(len(names)), "errors": "0"}
        suite = SubElement(root, "testsuite", {**head, **counts})
        for name, status in names:
            case = SubElement(suite, "testcase", name=line_of(name), classname=line_of(one.what))
            if status == "breaks":
                own = [row for row in errors if name.partition(" ")[0] in row.summary] or errors
                failure = SubElement(case, "failure", message=line_of("; ".join(row.summary for row in own)))
                failure.text = text_of("\n".join(_said(one, row) for row in own))
            elif status == "unknown":
                SubElement(case, "skipped", message=line_of("; ".join(one.not_judged)))
    return written(root)
