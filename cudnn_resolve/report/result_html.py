"""Render any result as HTML: the output of a notebook cell, and the body of a page. All text is escaped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from cudnn_resolve.report.apply import HEADS, STOPPED
from cudnn_resolve.report.picture import render as picture

_GREEN, _YELLOW, _RED, _GRAY = "#1a7f37", "#9a6700", "#cf222e", "#57606a"
_CLASSES = {_GREEN: "good", _YELLOW: "warn", _RED: "bad", _GRAY: "quiet"}
"""CSS classes that give these colours a variant for dark screens."""
_APPLY = {"done": _GREEN, "nothing": _GREEN, "undone": _GREEN, "reverted": _YELLOW, "broken": _RED, "interrupted": _YELLOW}
_PLAN = {"ok": (_GREEN, "there is a plan"), "unsatisfiable": (_RED, "there is no plan")}
_COLORS = {
    **dict.fromkeys(("current", "passed", "runs"), _GREEN),
    **dict.fromkeys(("error", "failed", "outdated", "breaks"), _RED),
    **dict.fromkeys(("warning", "unknown"), _YELLOW),
    **dict.fromkeys(("skipped", "info"), _GRAY),
}
_SIGNS = {"install": "+", "upgrade": "↑", "downgrade": "↓", "remove": "-"}
_CHECK = {"runs": "will run", "breaks": "will not run", "unknown": "is not known to run"}
_FLEET = {"ok": (_GREEN, "ok"), "unknown": (_YELLOW, "not known"), "no": (_RED, "no"), "failed": (_RED, "failed")}
_MAX_DEPTH = 8
"""Levels of a chain of reasons."""


def render(result: Mapping[str, Any]) -> str:
    """Render the object that `--format json` prints."""
    verb = str(result.get("schema", "")).split("/")[1:2]
    parts = {
        "detect": _detect,
        "check": _check,
        "validate": _validate,
        "doctor": _doctor,
        "lock": _lock,
        "fleet": _fleet,
        "why": _why,
        "apply-history": _history,
        "matrix": _matrix,
        "bundle": _bundle,
    }
    drawn = parts.get(verb[0] if verb else "", _apply)(result)
    return f"<div>{''.join(drawn)}</div>"


def _apply(result: Mapping[str, Any]) -> Iterator[str]:
    """A plan, or the outcome of an `apply`."""
    is_plan = "targets" in result
    status = str(result.get("status"))
    color, head = _PLAN.get(status) or (_APPLY.get(status, _GRAY), HEADS.get(status, status).replace("--dry-run", "dry run"))
    error = result.get("error") or {}
    if status == "reverted" and error.get("code") == "interrupted":
        head = STOPPED
    plan = result if is_plan else result.get("plan") or {}
    yield _head(head, color)
    if error:
        yield _paragraph(error.get("message"))
        if error.get("hint"):
            yield f"<p><i>{escape(str(error['hint']))}</i></p>"
    if is_plan:
        yield _machine(plan.get("facts") or {})
    yield from _conflict(plan.get("conflict"))
    yield _stack(plan.get("stack") or {})
    yield picture(plan.get("ranges", ()))
    yield from _packages(plan)
    if is_plan:
        yield _command(result.get("command"))
        yield _list(warning.get("message") for warning in plan.get("warnings", ()))
        yield _steps(plan)
    yield _list([*result.get("differences", ()), *result.get("left", ()), *result.get("notes", ())])
    if result.get("restart"):
        yield f"<p>{_head(str(result['restart']), _YELLOW)}</p>"


def _machine(facts: Mapping[str, Any]) -> str:
    """The machine that a plan is for, on one line."""
    platform, python, driver = (facts.get(name) or {} for name in ("platform", "python", "driver"))
    words = [
        " ".join(filter(None, (platform.get("distribution"), platform.get("release"), platform.get("arch")))),
        python.get("version") and f"Python {python['version']}",
        driver.get("version") and f"driver {driver['version']}",
        *(gpu.get("name") or f"compute capability {gpu.get('compute_capability')}" for gpu in facts.get("gpus") or ()),
    ]
    return _paragraph(f"for {', '.join(map(str, filter(None, words)))}") if any(words) else ""


def _packages(plan: Mapping[str, Any]) -> Iterator[str]:
    """The changed packages with their reasons, and the overridden pins."""
    changed = [action for action in plan.get("pip", ()) if action.get("action") != "keep"]
    if changed:
        rows = ((*_change(action), "; ".join(action.get("because", ()))) for action in changed)
        yield _details(_count(len(changed), "package"), _table(rows))
    overrides = plan.get("overrides", ())
    if overrides:
        columns = {"package": "package", "requested_by": "required by", "declared": "declared", "chosen": "chosen", "reason": "why"}
        table = _table([[override.get(name) for name in columns] for override in overrides], columns.values())
        yield _details(_count(len(overrides), "override"), table)


def _steps(plan: Mapping[str, Any]) -> str:
    steps = [_paragraph(step.get("why")) + _command(shlex.join(step.get("argv") or ())) for step in plan.get("steps", ())]
    return _details(_count(len(steps), "manual step"), "".join(steps)) if steps else ""


def _lock(result: Mapping[str, Any]) -> Iterator[str]:
    status = str(result.get("status"))
    if status in ("current", "outdated"):
        yield _head(f"the lock is {status}", _COLORS[status])
        yield _table((one.get("what"), one.get("locked"), f"now {one.get('now')}") for one in result.get("differences", ()))
        return
    packages = result.get("packages", ())
    if status == "unsatisfiable":
        yield _head("there is no lock", _RED)
    else:
        yield _head(f"{_count(len(packages), 'package')} locked in {result.get('path') or 'no file'}", _GREEN)
    for platform in result.get("platforms", ()):
        yield _paragraph(platform.get("platform"))
        yield _stack(platform)
    yield from _conflict(result.get("conflict"))
    yield picture(result.get("ranges", ()))
    if packages:
        table = _table((one.get("name"), one.get("version"), "; ".join(one.get("because") or ())) for one in packages)
        yield _details(_count(len(packages), "package"), table)
    changes = result.get("changes", ())
    if changes:
        table = _table((one.get("name"), one.get("action"), one.get("old") or "", one.get("new") or "") for one in changes)
        yield _details(f"{_count(len(changes), 'change')} since the previous lock", table)
    yield _list(result.get("warnings", ()))
    if result.get("path"):
        yield _command(f"uv pip sync {shlex.quote(str(result['path']))}")


def _detect(result: Mapping[str, Any]) -> Iterator[str]:
    platform, python = result.get("platform") or {}, result.get("python") or {}
    driver = result.get("driver") or {}
    rows = [
        ("system", f"{platform.get('distribution') or ''} {platform.get('release') or ''} {platform.get('arch') or ''}".strip()),
        ("Python", python.get("version")),
        ("driver", driver.get("version")),
        *(("GPU", f"{gpu.get('name')} ({gpu.get('compute_capability')})") for gpu in result.get("gpus") or ()),
        *(("cuDNN", f"{copy.get('version')} {copy.get('path') or ''}") for copy in result.get("cudnn") or ()),
        *((framework.get("name"), framework.get("version")) for framework in result.get("frameworks") or ()),
        *(("problem", f"{problem.get('what')}: {problem.get('why')}") for problem in result.get("problems") or ()),
    ]
    yield _table((name, value) for name, value in rows if value)


def _validate(result: Mapping[str, Any]) -> Iterator[str]:
    status = str(result.get("status"))
    checks = result.get("checks", ())
    yield _head(status, _COLORS.get(status, _GRAY))
    yield picture(result.get("ranges", ()))
    notable = [check for check in checks if check.get("status") != "passed"]
    yield _table((one.get("status"), one.get("id"), ": ".join(filter(None, (one.get("observed"), one.get("detail"))))) for one in notable)
    rows = ((check.get("status"), check.get("id"), check.get("observed") or "") for check in checks)
    yield _details(_count(len(checks), "check"), _table(rows))


def _doctor(result: Mapping[str, Any]) -> Iterator[str]:
    findings = result.get("findings", ())
    if not findings:
        yield _head("no problem was found", _GREEN)
    yield from _findings(findings)
    yield picture(result.get("ranges", ()))


def _findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for finding in findings:
        severity = str(finding.get("severity"))
        head = f"{severity}: {finding.get('cause')}"
        yield f"<p>{_head(head, _COLORS.get(severity, _GRAY))}</p>"
        yield _paragraph(finding.get("summary"))
        yield _list(evidence.get("text") for evidence in finding.get("evidence", ()))
        yield from _remedies(finding.get("remedy", ()))


def _remedies(remedies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for remedy in remedies:
        yield _paragraph(remedy.get("text"))
        yield _command(remedy.get("command"))


def _check(result: Mapping[str, Any]) -> Iterator[str]:
    """Each verdict: its frameworks, then the reasons, then the fixes."""
    for verdict in result.get("verdicts", ()):
        status = str(verdict.get("status"))
        machine = f" on {verdict['machine']}" if verdict.get("machine") else ""
        head = f"{verdict.get('what')}{machine}: {_CHECK.get(status, status)}"
        yield f"<p>{_head(head, _COLORS.get(status, _GRAY))}</p>"
        yield _table((one.get("name"), one.get("version"), _CHECK.get(str(one.get("status")))) for one in verdict.get("frameworks", ()))
        yield picture(verdict.get("ranges", ()))
        yield from _findings(verdict.get("findings", ()))
        yield from _remedies(verdict.get("remedy", ()))
        if verdict.get("complaints"):
            complaints = "".join(map(_paragraph, verdict["complaints"]))
            yield _details("apart from the verdict, pip check would complain", complaints)
        if verdict.get("not_judged"):
            yield _paragraph(f"not judged: {', '.join(map(str, verdict['not_judged']))}")


def _fleet(result: Mapping[str, Any]) -> Iterator[str]:
    """A table of the classes of hosts, then the details of each, changes, and hosts that did not answer."""
    classes = result.get("classes", ())
    color, status = _FLEET.get(str(result.get("status")), (_GRAY, ""))
    head = _head(f"{result.get('verb')}: {status}", color)
    yield f"<p>{head} {_count(result.get('hosts', 0), 'host')} in {_count(len(classes), 'class', 'es')}</p>"
    one_lock = result.get("one_lock")
    if one_lock:
        path = one_lock.get("path")
        yield _head(f"one lock: {path}", _GREEN) if path else _head("no lock fits every host", _RED)
        yield _paragraph(one_lock.get("message"))
        yield _list(f"{way.get('change')}: {way.get('result')}" for way in one_lock.get("ways", ()))
    facts = tuple(dict.fromkeys(name for one in classes for name in one.get("about", {})))
    rows = (
        (
            *(one.get("name"), _FLEET.get(str(one.get("status")), (_GRAY, ""))[1], len(one.get("hosts", ()))),
            *(one.get("about", {}).get(name, "") for name in facts),
            _hosts(one.get("hosts", ())),
        )
        for one in classes
    )
    yield _table(rows, ("class", "answer", "hosts", *facts, "names"))
    for one in classes:
        body = "".join(_fleet_class(one))
        yield f"<h2>{escape(str(one.get('name')))}</h2>{body}" if body else ""
    if "changes" in result:
        changes = result["changes"]
        yield "<h2>Changed since the earlier run</h2>" if changes else _paragraph("nothing changed since the earlier run")
        yield _table((change.get("fact"), change.get("before"), change.get("now"), _hosts(change.get("hosts", ()))) for change in changes)
    if result.get("faults"):
        yield "<h2>Hosts without facts</h2>"
        yield _table((fault.get("host"), fault.get("why")) for fault in result["faults"])
    yield _list(result.get("notes", ()))


def _fleet_class(one: Mapping[str, Any]) -> Iterator[str]:
    """The answer for one class, and the facts in which its hosts differ."""
    text = ": ".join(filter(None, (f"lock {one['lock']}" if one.get("lock") else "", one.get("message"))))
    yield _paragraph(text) if text else ""
    yield from _apply(one["plan"]) if one.get("plan") else ()
    yield from _check(one)
    yield _table((outcome.get("host"), outcome.get("status"), outcome.get("detail")) for outcome in one.get("outcomes", ()))
    differences = one.get("differences", ())
    rows = [(each.get("fact"), value, _hosts(hosts)) for each in differences for value, hosts in each.get("values", {}).items()]
    if rows:
        yield _details(f"hosts differ in {_count(len(differences), 'fact')}", _table(rows))


def _hosts(names: Sequence[str]) -> str:
    from cudnn_resolve.fleet.host_names import ranges

    return ranges(names)


def _why(result: Mapping[str, Any]) -> Iterator[str]:
    chosen = result.get("chosen")
    yield _head(f"{result.get('package')} {chosen}" if chosen else f"{result.get('package')} is not part of the plan", _GRAY)
    if result.get("absence"):
        yield _paragraph(result["absence"])
    yield picture(result.get("ranges", ()))
    yield _reasons(result.get("reasons", ()), _MAX_DEPTH)


def _reasons(reasons: Iterable[Mapping[str, Any]], depth: int) -> str:
    items = [
        f"<li>{escape(str(reason.get('wants')))}: {escape(str(reason.get('because')))}{_reasons(reason.get('reasons', ()), depth - 1)}</li>"
        for reason in (reasons if depth else ())
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _history(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [(past.get("id"), past.get("at"), past.get("state"), ", ".join(past.get("targets", ()))) for past in result.get("applies", ())]
    yield _table(rows, ("number", "begun", "state", "targets")) if rows else _head("no apply has run in this environment", _GRAY)


def _bundle(result: Mapping[str, Any]) -> Iterator[str]:
    path, files = str(result.get("path")), result.get("files", ())
    if result.get("status") != "ok":
        yield _head("there is no bundle", _RED)
        return
    count = _count(len(files), "file")
    yield _head(f"{count} in {path}", _GREEN)
    yield _command(f"cudnn-resolve apply {shlex.quote(path)}")
    yield _details(count, _table((file.get("name"), file.get("bytes")) for file in files))
    yield _list(result.get("notes", ()))


def _matrix(result: Mapping[str, Any]) -> Iterator[str]:
    """The faults, the frameworks, one framework, or rows of tables below the names of their columns."""
    if "faults" in result:
        status = str(result["status"])
        yield _head("the tables have no faults", _GREEN) if status == "ok" else _head("the tables have faults", _RED)
        yield _table((fault.get("file"), fault.get("place"), fault.get("message")) for fault in result["faults"])
    elif "frameworks" in result:
        yield _head(_count(len(result["frameworks"]), "framework"), _GRAY)
        yield _table((one.get("title"), ", ".join(one.get("packages", ())), one.get("releases")) for one in result["frameworks"])
    elif "framework" in result:
        yield _head(str(result["framework"].get("title")), _GRAY)
        columns = ("version", "variant", "pythons", "cuda_built", "cudnn_built", "driver_min")
        yield _table(([_cell(build.get(name)) for name in columns] for build in result.get("builds", ())), columns)
    else:
        for name, rows in result.items():
            if isinstance(rows, list) and rows:
                yield _head(name, _GRAY)
                columns = tuple(dict.fromkeys(column for row in rows for column in row if column != "source"))
                yield _table(([_cell(row.get(column)) for column in columns] for row in rows), columns)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(part)}" for name, part in value.items() if part is not None)
    return "" if value is None else str(value)


def _stack(stack: Mapping[str, Any]) -> str:
    rows = [("CUDA", stack.get("cuda")), ("cuDNN", stack.get("cudnn")), ("minimum driver", stack.get("driver_min"))]
    rows += [(str(framework.get("name")), framework.get("version")) for framework in stack.get("frameworks", ())]
    return _table((name, value) for name, value in rows if value)


def _conflict(conflict: Mapping[str, Any] | None) -> Iterator[str]:
    """Why there is no plan, and each solution with its command."""
    if conflict:
        yield _paragraph(conflict.get("message"))
        yield _list(f"{cause.get('what')}: {cause.get('because')}" for cause in conflict.get("causes", ()))
        for relaxation in conflict.get("relaxations", ()):
            yield _paragraph(relaxation.get("change")) + _command(relaxation.get("command"))


def _change(action: Mapping[str, Any]) -> tuple[str, str, str]:
    before = f"{action['installed']} → " if action.get("installed") and action.get("action") != "remove" else ""
    return _SIGNS.get(str(action.get("action")), ""), str(action.get("name")), f"{before}{action.get('version')}"


def _head(text: str, color: str) -> str:
    return f'<b class="{_CLASSES[color]}" style="color:{color}">{escape(text)}</b>'


def _paragraph(text: object) -> str:
    return f"<p>{escape(str(text))}</p>"


def _command(text: str | None) -> str:
    """A command to copy; nothing if it is empty."""
    return f"<pre>{escape(text)}</pre>" if text else ""


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def _table(rows: Iterable[Iterable[Any]], columns: Iterable[str] = ()) -> str:
    """A table; nothing if it has neither rows nor columns."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>" if head or body else ""


def _list(texts: Iterable[object]) -> str:
    """A bulleted list; nothing if it is empty."""
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
