"""Any result as HTML: what a notebook's cell shows, and the body of a page; every text in it is escaped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from cudnn_resolve.report.apply import HEADS
from cudnn_resolve.report.picture import render as picture

_GREEN, _YELLOW, _RED, _GRAY = "#1a7f37", "#9a6700", "#cf222e", "#57606a"
_CLASSES = {_GREEN: "good", _YELLOW: "warn", _RED: "bad", _GRAY: "quiet"}
"""A page gives these the colours of a dark screen."""
_APPLY = {"done": _GREEN, "nothing": _GREEN, "undone": _GREEN, "reverted": _YELLOW, "broken": _RED, "interrupted": _YELLOW}
_PLAN = {"ok": (_GREEN, "there is a plan"), "unsatisfiable": (_RED, "there is no plan")}
_COLORS = {
    **dict.fromkeys(("current", "passed", "runs"), _GREEN),
    **dict.fromkeys(("error", "failed", "outdated", "breaks"), _RED),
    **dict.fromkeys(("warning", "unknown"), _YELLOW),
    **dict.fromkeys(("skipped", "info"), _GRAY),
}
_SIGNS = {"install": "+", "upgrade": "↑", "downgrade": "↓", "remove": "-"}


def render(result: Mapping[str, Any]) -> str:
    """The HTML of a result, which is the object that `--format json` prints."""
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
    """A plan, or what became of carrying it out."""
    is_plan = "targets" in result
    status = str(result.get("status"))
    color, head = _PLAN.get(status) or (_APPLY.get(status, _GRAY), HEADS.get(status, status).replace("--dry-run", "dry run"))
    error = result.get("error") or {}
    if status == "reverted" and error.get("code") == "interrupted":
        head = "interrupted, and everything is as it was"
    plan = result if is_plan else result.get("plan") or {}
    yield _head(head, color)
    if error:
        yield f"<p>{escape(str(error.get('message')))}</p>"
        if error.get("hint"):
            yield f"<p><i>{escape(str(error['hint']))}</i></p>"
    if is_plan:
        yield from _machine(plan.get("facts") or {})
    yield from _conflict(plan.get("conflict"))
    yield from _stack(plan.get("stack") or {})
    yield picture(plan.get("ranges", ()))
    yield from _packages(plan)
    if is_plan:
        yield _command(result.get("command"))
        yield from _list(str(one.get("message")) for one in plan.get("warnings", ()))
        yield from _steps(plan)
    yield from _list([*result.get("differences", ()), *result.get("left", ()), *result.get("notes", ())])
    if result.get("restart"):
        yield f"<p>{_head(str(result['restart']), _YELLOW)}</p>"


def _machine(facts: Mapping[str, Any]) -> Iterator[str]:
    """The machine that a plan is for, in one line."""
    platform, python, driver = (facts.get(name) or {} for name in ("platform", "python", "driver"))
    words = [
        " ".join(filter(None, (platform.get("distribution"), platform.get("release"), platform.get("arch")))),
        python.get("version") and f"Python {python['version']}",
        driver.get("version") and f"driver {driver['version']}",
        *(one.get("name") or f"compute capability {one.get('compute_capability')}" for one in facts.get("gpus") or ()),
    ]
    if any(words):
        yield f"<p>for {escape(', '.join(map(str, filter(None, words))))}</p>"


def _packages(plan: Mapping[str, Any]) -> Iterator[str]:
    """What changes, with the reasons; and the pins of wheels that are left."""
    rows = [one for one in plan.get("pip", ()) if one.get("action") != "keep"]
    if rows:
        changes = ((*_change(one), "; ".join(one.get("because", ()))) for one in rows)
        yield _details(_many(len(rows), "package"), _table(changes))
    overrides = plan.get("overrides", ())
    if overrides:
        columns = ("package", "requested_by", "declared", "chosen", "reason")
        lines = _table([[one.get(name) for name in columns] for one in overrides], ("package", "of", "declares", "chosen", "why"))
        yield _details(f"{_many(len(overrides), 'pin')} of wheels left", lines)


def _steps(plan: Mapping[str, Any]) -> Iterator[str]:
    """What would be typed without this program."""
    steps = [f"<p>{escape(str(one.get('why')))}</p>" + _command(shlex.join(one.get("argv") or ())) for one in plan.get("steps", ())]
    if steps:
        yield _details(f"{_many(len(steps), 'step')} by hand", "".join(steps))


def _command(text: str | None) -> str:
    """A command to copy; nothing where there is none."""
    return f"<pre>{escape(text)}</pre>" if text else ""


def _lock(result: Mapping[str, Any]) -> Iterator[str]:
    status = str(result.get("status"))
    if status in ("current", "outdated"):
        yield _head(f"the lock is {status}", _COLORS[status])
        yield _table((one.get("what"), one.get("locked"), f"now {one.get('now')}") for one in result.get("differences", ()))
        return
    if status == "unsatisfiable":
        yield _head("there is no lock", _RED)
    else:
        yield _head(f"{len(result.get('packages', ()))} packages locked in {result.get('path') or 'no file'}", _GREEN)
    for platform in result.get("platforms", ()):
        yield f"<p>{escape(str(platform.get('platform')))}</p>"
        yield from _stack(platform)
    yield from _conflict(result.get("conflict"))
    yield picture(result.get("ranges", ()))
    rows = [(one.get("name"), one.get("version"), "; ".join(one.get("because") or ())) for one in result.get("packages", ())]
    if rows:
        yield _details(f"{len(rows)} packages", _table(rows))
    changed = [(one.get("name"), one.get("action"), one.get("old") or "", one.get("new") or "") for one in result.get("changes", ())]
    if changed:
        yield _details(f"{_many(len(changed), 'change')} against the lock before", _table(changed))
    yield from _list(map(str, result.get("warnings", ())))
    if result.get("path"):
        yield _command(f"uv pip sync {shlex.quote(str(result['path']))}")


def _detect(result: Mapping[str, Any]) -> Iterator[str]:
    platform, python = result.get("platform") or {}, result.get("python") or {}
    driver = result.get("driver") or {}
    names = [f"{one.get('name')} ({one.get('compute_capability')})" for one in result.get("gpus") or ()]
    rows = [
        ("system", f"{platform.get('distribution') or ''} {platform.get('release') or ''} {platform.get('arch') or ''}".strip()),
        ("Python", python.get("version")),
        ("driver", driver.get("version")),
        *(("GPU", name) for name in names),
        *(("cuDNN", f"{one.get('version')} {one.get('path') or ''}") for one in result.get("cudnn") or ()),
        *((one.get("name"), one.get("version")) for one in result.get("frameworks") or ()),
        *(("problem", f"{one.get('what')}: {one.get('why')}") for one in result.get("problems") or ()),
    ]
    yield _table((name, value) for name, value in rows if value)


def _validate(result: Mapping[str, Any]) -> Iterator[str]:
    status = str(result.get("status"))
    checks = result.get("checks", ())
    yield _head(status, _COLORS.get(status, _GRAY))
    told = [one for one in checks if one.get("status") != "passed"]
    yield picture(result.get("ranges", ()))
    yield _table((one.get("status"), one.get("id"), ": ".join(filter(None, (one.get("observed"), one.get("detail"))))) for one in told)
    yield _details(f"{len(checks)} checks", _table((one.get("status"), one.get("id"), one.get("observed") or "") for one in checks))


def _doctor(result: Mapping[str, Any]) -> Iterator[str]:
    findings = result.get("findings", ())
    if not findings:
        yield _head("nothing wrong was found", _GREEN)
    yield from _findings(findings)
    yield picture(result.get("ranges", ()))


def _findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for one in findings:
        severity = str(one.get("severity"))
        head = f"{severity}: {one.get('cause')}"
        yield f"<p>{_head(head, _COLORS.get(severity, _GRAY))}</p>"
        yield f"<p>{escape(str(one.get('summary')))}</p>"
        yield from _list(str(line.get("text")) for line in one.get("evidence", ()))
        yield from _remedies(one.get("remedy", ()))


def _remedies(remedies: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"<p>{escape(str(one.get('text')))}</p>{_command(one.get('command'))}" for one in remedies)


_WORDS = {"runs": "will run", "breaks": "will not run", "unknown": "is not known to run"}


def _check(result: Mapping[str, Any]) -> Iterator[str]:
    """Each verdict: the frameworks first, then the reasons, then what mends it."""
    for one in result.get("verdicts", ()):
        status = str(one.get("status"))
        where = f" on {one['machine']}" if one.get("machine") else ""
        head = f"{one.get('what')}{where}: {_WORDS.get(status, status)}"
        yield f"<p>{_head(head, _COLORS.get(status, _GRAY))}</p>"
        yield _table((each.get("name"), each.get("version"), _WORDS.get(str(each.get("status")))) for each in one.get("frameworks", ()))
        yield picture(one.get("ranges", ()))
        yield from _findings(one.get("findings", ()))
        yield from _remedies(one.get("remedy", ()))
        if one.get("complaints"):
            yield _details(
                "apart from the verdict, pip check would complain", "".join(f"<p>{escape(str(text))}</p>" for text in one["complaints"])
            )
        if one.get("not_judged"):
            yield f"<p>not judged: {escape(', '.join(map(str, one['not_judged'])))}</p>"


_FLEET = {"ok": (_GREEN, "ok"), "unknown": (_YELLOW, "not known"), "no": (_RED, "no"), "failed": (_RED, "failed")}


def _fleet(result: Mapping[str, Any]) -> Iterator[str]:
    """The classes of hosts in a table, then what is said of each, what changed, and the hosts that said nothing."""
    from cudnn_resolve.fleet.classes import ranges

    classes = result.get("classes", ())
    color, word = _FLEET.get(str(result.get("status")), (_GRAY, ""))
    head = _head(f"{result.get('verb')}: {word}", color)
    yield f"<p>{head} {_many(result.get('hosts', 0), 'host')} in {_many(len(classes), 'class', 'es')}</p>"
    one = result.get("one_lock")
    if one:
        path = one.get("path")
        yield _head(f"one lock: {path}", _GREEN) if path else _head("no lock fits every host", _RED)
        yield f"<p>{escape(str(one.get('message')))}</p>"
        yield from _list(f"{way.get('change')}: {way.get('result')}" for way in one.get("ways", ()))
    about = tuple(dict.fromkeys(name for each in classes for name in each.get("about", {})))
    rows = (
        (
            *(each.get("name"), _FLEET.get(str(each.get("status")), (_GRAY, ""))[1], len(each.get("hosts", ()))),
            *(each.get("about", {}).get(name, "") for name in about),
            ranges(each.get("hosts", ())),
        )
        for each in classes
    )
    yield _table(rows, ("class", "answer", "hosts", *about, "names"))
    for each in classes:
        body = "".join(_fleet_class(each, ranges))
        yield f"<h2>{escape(str(each.get('name')))}</h2>{body}" if body else ""
    if "changes" in result:
        yield "<h2>Changed since the earlier run</h2>" if result["changes"] else "<p>nothing changed since the earlier run</p>"
        yield _table((one.get("fact"), one.get("before"), one.get("now"), ranges(one.get("hosts", ()))) for one in result["changes"])
    if result.get("faults"):
        yield "<h2>Hosts that say nothing of themselves</h2>"
        yield _table((one.get("host"), one.get("why")) for one in result["faults"])
    yield from _list(map(str, result.get("notes", ())))


def _fleet_class(one: Mapping[str, Any], ranges: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """What is said of one class, and in what its hosts differ."""
    said = ": ".join(filter(None, (f"lock {one['lock']}" if one.get("lock") else "", one.get("message"))))
    yield f"<p>{escape(said)}</p>" if said else ""
    yield from _apply(one["plan"]) if one.get("plan") else ()
    yield from _check(one)
    yield _table((each.get("host"), each.get("status"), each.get("detail")) for each in one.get("outcomes", ()))
    rows = [
        (each.get("fact"), value, ranges(hosts)) for each in one.get("differences", ()) for value, hosts in each.get("values", {}).items()
    ]
    if rows:
        yield _details(f"hosts differ in {len(one['differences'])} facts", _table(rows))


def _why(result: Mapping[str, Any]) -> Iterator[str]:
    chosen = result.get("chosen")
    yield _head(f"{result.get('package')} {chosen}" if chosen else f"{result.get('package')} is not part of the plan", _GRAY)
    if result.get("absence"):
        yield f"<p>{escape(str(result['absence']))}</p>"
    yield picture(result.get("ranges", ()))
    yield from _reasons(result.get("reasons", ()), 8)


def _reasons(reasons: Iterable[Mapping[str, Any]], depth: int) -> Iterator[str]:
    items = [
        f"<li>{escape(str(one.get('wants')))}: {escape(str(one.get('because')))}{''.join(_reasons(one.get('reasons', ()), depth - 1))}</li>"
        for one in (reasons if depth else ())
    ]
    if items:
        yield f"<ul>{''.join(items)}</ul>"


def _history(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [(one.get("id"), one.get("at"), one.get("state"), ", ".join(one.get("targets", ()))) for one in result.get("applies", ())]
    yield _table(rows, ("number", "begun", "state", "targets")) if rows else _head("nothing was applied to this environment", _GRAY)


def _bundle(result: Mapping[str, Any]) -> Iterator[str]:
    """The files of a bundle, and how it is used."""
    path, files = str(result.get("path")), result.get("files", ())
    if result.get("status") != "ok":
        yield _head("there is no bundle", _RED)
        return
    yield _head(f"{len(files)} files in {path}", _GREEN)
    yield _command(f"cudnn-resolve apply {shlex.quote(path)}")
    yield _details(f"{len(files)} files", _table((one.get("name"), one.get("bytes")) for one in files))
    yield from _list(result.get("notes", ()))


def _matrix(result: Mapping[str, Any]) -> Iterator[str]:
    """What the tables hold or say; rows of tables under the names of their columns."""
    if "faults" in result:
        status = str(result["status"])
        yield _head("the tables are sound" if status == "ok" else "the tables have faults", _GREEN if status == "ok" else _RED)
        yield _table((one.get("file"), one.get("place"), one.get("message")) for one in result["faults"])
    elif "frameworks" in result:
        yield _head(f"{len(result['frameworks'])} frameworks", _GRAY)
        yield _table((one.get("title"), ", ".join(one.get("packages", ())), one.get("releases")) for one in result["frameworks"])
    elif "framework" in result:
        yield _head(str(result["framework"].get("title")), _GRAY)
        columns = ("version", "variant", "pythons", "cuda_built", "cudnn_built", "driver_min")
        yield _table(([_cell(one.get(name)) for name in columns] for one in result.get("builds", ())), columns)
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
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items() if one is not None)
    return "" if value is None else str(value)


def _stack(stack: Mapping[str, Any]) -> Iterator[str]:
    rows = [("CUDA", stack.get("cuda")), ("cuDNN", stack.get("cudnn")), ("driver from", stack.get("driver_min"))]
    rows += [(str(one.get("name")), one.get("version")) for one in stack.get("frameworks", ())]
    yield _table((name, value) for name, value in rows if value)


def _conflict(conflict: Mapping[str, Any] | None) -> Iterator[str]:
    """Why there is no plan, and each way out with its command."""
    if conflict:
        yield f"<p>{escape(str(conflict.get('message')))}</p>"
        yield from _list(f"{one.get('what')}: {one.get('because')}" for one in conflict.get("causes", ()))
        for one in conflict.get("relaxations", ()):
            yield f"<p>{escape(str(one.get('change')))}</p>{_command(one.get('command'))}"


def _change(one: Mapping[str, Any]) -> tuple[str, str, str]:
    before = f"{one['installed']} → " if one.get("installed") and one.get("action") != "remove" else ""
    return _SIGNS.get(str(one.get("action")), ""), str(one.get("name")), f"{before}{one.get('version')}"


def _head(text: str, color: str) -> str:
    return f'<b class="{_CLASSES[color]}" style="color:{color}">{escape(text)}</b>'


def _many(count: int, what: str, ending: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else ending}"


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def _table(rows: Iterable[Iterable[Any]], head: Iterable[str] = ()) -> str:
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    cells = (f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    lines = (f"<tr>{names}</tr>" if names else "") + "".join(cells)
    return f"<table>{lines}</table>" if lines else ""


def _list(texts: Iterable[str]) -> Iterator[str]:
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    if items:
        yield f"<ul>{items}</ul>"
