"""A validation as a table for people: what failed in full, what passed in one line for each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_resolve.report.text import Style, clean, wrap
from cudnn_resolve.validation.model import Check, Validation

_MARKS = {"passed": ("ok", "green"), "failed": ("FAILED", "red"), "warning": ("warning", "yellow"), "skipped": ("skipped", "dim")}
_COLUMN = 9


def render(validation: Validation, *, style: Style | None = None, width: int = 100, verbose: bool = False) -> str:
    """The checks in lines of at most `width` columns; `verbose` gives every check its own."""
    style = style or Style()
    lines = [*_head(validation)]
    for group in _groups(validation.checks, whole=verbose):
        lines += _group(group, style, width)
    lines += ["", _verdict(validation, style)]
    return "\n".join(lines) + "\n"


def _head(validation: Validation) -> Iterator[str]:
    for gpu in validation.gpus:
        capability = f", compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
        yield clean(f"GPU {gpu.index}: {gpu.name or 'unknown'}{capability}, driver {validation.driver or 'unknown'}")
    if validation.loaded:
        yield clean("loaded: " + ", ".join(f"{kind} {version}" for kind, version in validation.loaded.items()))


def _groups(checks: Sequence[Check], *, whole: bool) -> list[list[Check]]:
    """Cases of one group that ended alike without a fault stand together, all other checks alone."""
    found: list[list[Check]] = []
    together: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        if whole or check.group is None or check.status not in ("passed", "skipped"):
            found.append([check])
            continue
        key = check.group, check.status
        if key not in together:
            found.append(together.setdefault(key, []))
        together[key].append(check)
    return found


def _group(group: Sequence[Check], style: Style, width: int) -> Iterator[str]:
    first = group[0]
    word, color = _MARKS[first.status]
    mark = style(word.ljust(_COLUMN), color)
    if first.group is not None and len(group) > 1:
        total = sum(check.seconds or 0.0 for check in group)
        classes = list(dict.fromkeys(check.id.removeprefix(f"{first.group}/").partition("/")[0] for check in group))
        text = f"{first.group}: {len(group)} cases ({total:.2f} s): {', '.join(classes)}"
        lines = wrap(clean(text), width=width, first=" " * _COLUMN, rest=" " * (_COLUMN + 2))
        yield mark + lines[0][_COLUMN:]
        yield from lines[1:]
        return
    seconds = f" ({first.seconds:.2f} s)" if first.seconds is not None else ""
    text = f"{first.id}: {first.observed or ''}".rstrip(": ") + seconds
    indent = " " * _COLUMN
    lines = wrap(clean(text), width=width, first=indent)
    yield mark + lines[0][_COLUMN:]
    yield from lines[1:]
    if first.expected and first.status in ("failed", "warning"):
        yield from wrap(clean(f"expected: {first.expected}"), width=width, first=indent + "  ")
    if first.detail and first.status != "passed":
        yield from wrap(clean(first.detail), width=width, first=indent + "  ")
    if first.status == "failed":
        for line in first.output[-6:]:
            yield from (style(part, "dim") for part in wrap(clean(line), width=width, first=f"{indent}  | "))


def _verdict(validation: Validation, style: Style) -> str:
    counts = {status: sum(check.status == status for check in validation.checks) for status in _MARKS}
    found = [f"{count} {status}" for status, count in counts.items() if count]
    words = ", ".join(found)
    status = validation.status
    if status == "skipped":
        words = f"nothing was computed on a GPU ({words})"
    if status == "skipped" and counts["passed"]:
        return style(f"sound as far as that can be seen without a GPU: {', '.join(found)}", "bold", "yellow")
    return style(f"{status}: {words}", "bold", _MARKS[status][1] if status != "skipped" else "yellow")
