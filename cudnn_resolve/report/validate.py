"""Render a validation as text: failures in full, and one line for each group of checks that passed."""

from __future__ import annotations

from collections.abc import Sequence

from cudnn_resolve.report.text import Page, Style, clean, wrap
from cudnn_resolve.validation.model import Check, Validation

_MARKS = {"passed": ("ok", "green"), "failed": ("FAILED", "red"), "warning": ("warning", "yellow"), "skipped": ("skipped", "dim")}
_MARK_WIDTH = 9
_INDENT = " " * (_MARK_WIDTH + 2)
"""Before the lines below a check."""
_MOST_OUTPUT = 6
"""Last lines of a failed check's output to show."""


def show_validation(page: Page, validation: Validation, *, verbose: bool = False) -> None:
    """Show the checks; `verbose` gives every check its own line."""
    for gpu in validation.gpus:
        capability = f", compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
        page.lines.append(clean(f"GPU {gpu.index}: {gpu.name or 'unknown'}{capability}, driver {validation.driver or 'unknown'}"))
    if validation.loaded:
        page.lines.append(clean("loaded: " + ", ".join(f"{kind} {version}" for kind, version in validation.loaded.items())))
    for group in _groups(validation.checks, single=verbose):
        if len(group) > 1:
            _show_group(page, group)
        else:
            _show_check(page, group[0])
    page.lines += ["", _verdict(validation, page.style)]


def _groups(checks: Sequence[Check], *, single: bool) -> list[list[Check]]:
    """Join the cases of a group that all passed or all were skipped; other checks stay alone, as all do with `single`."""
    groups: list[list[Check]] = []
    joined: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        if single or check.group is None or check.status not in ("passed", "skipped"):
            groups.append([check])
            continue
        key = check.group, check.status
        if key not in joined:
            groups.append(joined.setdefault(key, []))
        joined[key].append(check)
    return groups


def _mark(check: Check, style: Style) -> str:
    word, color = _MARKS[check.status]
    return style(word.ljust(_MARK_WIDTH), color)


def _show_group(page: Page, group: Sequence[Check]) -> None:
    first = group[0]
    seconds = sum(check.seconds or 0.0 for check in group)
    classes = dict.fromkeys(check.id.removeprefix(f"{first.group}/").partition("/")[0] for check in group)
    text = f"{first.group}: {len(group)} cases ({seconds:.2f} s): {', '.join(classes)}"
    page.paragraph(text, _mark(first, page.style), _INDENT)


def _show_check(page: Page, check: Check) -> None:
    seconds = f" ({check.seconds:.2f} s)" if check.seconds is not None else ""
    page.paragraph(f"{check.id}: {check.observed or ''}".rstrip(": ") + seconds, _mark(check, page.style))
    if check.expected and check.status in ("failed", "warning"):
        page.paragraph(f"expected: {check.expected}", _INDENT)
    if check.detail and check.status != "passed":
        page.paragraph(check.detail, _INDENT)
    if check.status == "failed":
        for line in check.output[-_MOST_OUTPUT:]:
            page.lines += [page.style(part, "dim") for part in wrap(clean(line), width=page.width, first=f"{_INDENT}| ")]


def _verdict(validation: Validation, style: Style) -> str:
    counts = {status: sum(check.status == status for check in validation.checks) for status in _MARKS}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    if validation.status != "skipped":
        return style(f"{validation.status}: {words}", "bold", _MARKS[validation.status][1])
    if counts["passed"]:
        return style(f"no fault found without a GPU: {words}", "bold", "yellow")
    return style(f"skipped: nothing was computed on a GPU ({words})", "bold", "yellow")
