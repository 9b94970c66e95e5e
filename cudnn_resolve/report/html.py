"""A plan and its result as HTML for a notebook's cell."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_STATUS = {
    "done": ("#1a7f37", "done: the environment is as planned"),
    "nothing": ("#1a7f37", "nothing to do: the environment is as planned"),
    "dry-run": ("#57606a", "nothing was changed (dry run)"),
    "undone": ("#1a7f37", "undone: the environment is as it was before"),
    "reverted": ("#9a6700", "it failed, and everything is as it was"),
    "broken": ("#cf222e", "it failed, and not everything could be put back"),
    "interrupted": ("#9a6700", "interrupted before anything was changed"),
    "unsatisfiable": ("#cf222e", "there is no plan"),
}
_SIGNS = {"install": "+", "upgrade": "↑", "downgrade": "↓", "remove": "-"}


def render(result: Mapping[str, Any]) -> str:
    """The HTML of what `apply` gives; every text in it is escaped."""
    color, head = _STATUS.get(str(result.get("status")), ("#57606a", str(result.get("status"))))
    error = result.get("error") or {}
    if result.get("status") == "reverted" and error.get("code") == "interrupted":
        head = "interrupted, and everything is as it was"
    plan = result.get("plan") or {}
    parts = [f'<div><b style="color:{color}">{escape(head)}</b>']
    parts += _stack(plan.get("stack") or {})
    rows = [one for one in plan.get("pip", ()) if one.get("action") != "keep"]
    if rows:
        cells = "".join(_row(one) for one in rows)
        parts.append(f"<details><summary>{len(rows)} package{'' if len(rows) == 1 else 's'}</summary><table>{cells}</table></details>")
    if error:
        parts.append(f"<p>{escape(str(error.get('message')))}</p>")
        if error.get("hint"):
            parts.append(f"<p><i>{escape(str(error['hint']))}</i></p>")
    conflict = plan.get("conflict")
    if conflict:
        parts.append(f"<p>{escape(str(conflict.get('message')))}</p>")
        parts += _list(f"{one.get('change')}: {one.get('command')}" for one in conflict.get("relaxations", ()))
    parts += _list([*result.get("differences", ()), *result.get("left", ()), *result.get("notes", ())])
    if result.get("restart"):
        parts.append(f'<p><b style="color:#9a6700">{escape(str(result["restart"]))}</b></p>')
    parts.append("</div>")
    return "".join(parts)


def _stack(stack: Mapping[str, Any]) -> list[str]:
    rows = [("CUDA", stack.get("cuda")), ("cuDNN", stack.get("cudnn")), ("driver from", stack.get("driver_min"))]
    rows += [(str(one.get("name")), one.get("version")) for one in stack.get("frameworks", ())]
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in rows if value)
    return [f"<table>{cells}</table>"] if cells else []


def _row(one: Mapping[str, Any]) -> str:
    sign = _SIGNS.get(str(one.get("action")), "")
    before = f"{one['installed']} → " if one.get("installed") and one.get("action") != "remove" else ""
    return f"<tr><td>{sign}</td><td>{escape(str(one.get('name')))}</td><td>{escape(before + str(one.get('version')))}</td></tr>"


def _list(texts: Any) -> list[str]:
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return [f"<ul>{items}</ul>"] if items else []
