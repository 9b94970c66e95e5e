"""What became of an `apply`, as text, and every `apply` of an environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cudnn_resolve.execution.journal import OPEN, PastApply
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.report.text import Style, clean, mib, wrap

if TYPE_CHECKING:
    from cudnn_resolve.report.document import PastDocument

HEADS = {
    "nothing": "nothing to do: the environment is as planned",
    "done": "done: the environment is as planned",
    "reverted": "it failed, and everything is as it was",
    "broken": "it failed, and not everything could be put back",
    "undone": "undone: the environment is as it was before",
    "interrupted": "interrupted before anything was changed",
    "declined": "nothing was changed: the answer was no",
    "dry-run": "nothing was changed (--dry-run)",
}
"""What became of it, by its status."""
_TOLD_BYTES = 64 << 20
"""From here on it is said how much an undo holds."""
_MOST_LEFT = 10
"""Things that are left which are named one by one; the rest is counted."""
_COLORS = {"done": "green", "undone": "green", "reverted": "yellow", "broken": "red", "interrupted": "yellow"}


def render(
    done: Execution,
    *,
    style: Style | None = None,
    width: int = 100,
    head: str | None = None,
    python: str | None = None,
    env: str | None = None,
) -> str:
    """The execution in a few lines.

    `head` stands for the first one where what was asked for is not an `apply`; `python` and `env` are how the user named the environment.
    """
    paint = style or Style()
    said = head or ("interrupted, and everything is as it was" if _is_stopped(done) else HEADS[done.status])
    lines = [paint(said, *dict.fromkeys(("bold", _COLORS.get(done.status, "bold"))))]
    for text, first in _details(done, _where(python, env)):
        lines.extend(wrap(clean(text), width=width, first=first, rest=" " * len(first)))
    return "\n".join(lines) + "\n"


def _where(python: str | None, env: str | None) -> str:
    said = (("--env", env),) if env else (("--python", python),)
    return "".join(f" {name} {shlex.quote(value)}" for name, value in said if value)


def _is_stopped(done: Execution) -> bool:
    """True where a signal ended it, and everything could be put back."""
    return done.status == "reverted" and done.trouble is not None and done.trouble.code == "interrupted"


def _details(done: Execution, where: str) -> Iterator[tuple[str, str]]:
    """What follows the head: each text with what stands before it."""
    if done.trouble is not None and done.status not in ("undone", "interrupted") and done.trouble.code != "left":
        yield done.trouble.message, "  "
        if done.trouble.hint:
            yield f"hint: {done.trouble.hint}", "  "
    yield from ((one, "  - ") for one in done.differences)
    yield from ((one, "  left: ") for one in done.left[:_MOST_LEFT])
    if len(done.left) > _MOST_LEFT:
        yield f"and {len(done.left) - _MOST_LEFT} more", "  left: "
    for step in done.steps:
        yield (f"{step.what}, {step.seconds:.1f} s" if step.seconds >= 0.05 else step.what), "  "
    if done.removed and done.status == "done":
        yield f"removed: {', '.join(done.removed)}", "  "
    yield from ((note, "  ! ") for note in done.notes)
    yield from ((text, "  ") for text in _next(done, where))


def _next(done: Execution, where: str) -> Iterator[str]:
    yield from done.use
    if done.restart is not None:
        yield done.restart
    if done.status == "done" and done.id is not None:
        kept = f" (it holds {mib(done.kept_bytes)}; `cudnn-resolve clean --all` frees that)" if done.kept_bytes > _TOLD_BYTES else ""
        does = "takes this apply back" if " --env" in where else "puts back what was there before"
        yield f"`cudnn-resolve apply --undo {done.id}{where}` {does}{kept}"
    if done.status == "broken":
        yield f"`cudnn-resolve apply --undo{where}` tries again to put everything back"
    if done.id is not None and (done.status == "interrupted" or _is_stopped(done)):
        yield f"`cudnn-resolve apply --resume{where}` does it again"
    if done.log and done.status in ("reverted", "broken"):
        yield f"what the tools said: {done.log}"


def history(applies: Sequence[PastApply], undoable: Sequence[int], *, at_work: bool = False) -> tuple[PastDocument, ...]:
    """Every `apply` of an environment, the newest first; `at_work`: the newest one is not over."""
    from cudnn_resolve.report.document import PastDocument

    return tuple(
        PastDocument(
            id=one.id,
            at=str(one.begin.get("at", "")),
            state="at work" if at_work and one is applies[-1] and one.state in OPEN else _state(one),
            targets=tuple(one.begin.get("targets", [])),
            changes=(
                *(_change(row) for row in one.begin.get("install", [])),
                *(f"- {name}" for name in one.begin.get("remove", [])),
                *(f"{_change(row)} (apt)" for row in _system(one)),
            ),
            can_undo=one.id in undoable,
            log=one.log,
        )
        for one in reversed(applies)
    )


def _state(past: PastApply) -> str:
    """The state in a user's words."""
    last = past.last("revert")
    if past.state == "reverted" and last is not None and last.get("why") == "undo":
        return "undone"
    return {"begun": "interrupted", "changing": "interrupted", "dropped": "failed before a change"}.get(past.state, past.state)


def _system(past: PastApply) -> Iterator[tuple[str, str, str | None]]:
    """Name, new and old version of the system's packages that it changed, as far as that is readable."""
    record = past.last("apt") or {}
    rows, along = record.get("packages"), record.get("along")
    found = [tuple(row) for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    found += [(name, *row) for name, row in along.items() if isinstance(row, list)] if isinstance(along, dict) else []
    yield from (row for row in found if len(row) == 3 and row[1] != row[2])


def _change(row: Any) -> str:
    name, version, before = row
    return f"+ {name} {version}" if before is None else f"{name} {before} -> {version}"


def render_history(rows: Sequence[PastDocument], *, width: int = 100) -> str:
    """The history in lines."""
    if not rows:
        return "no apply has been carried out in this environment\n"
    lines: list[str] = []
    for row in rows:
        undo = "" if row.can_undo or row.state != "committed" else " (cannot be undone any more)"
        lines.append(clean(f"{row.id}  {row.at}  {row.state}{undo}  {', '.join(row.targets)}"))
        for change in row.changes[:8]:
            lines.extend(wrap(clean(change), width=width, first="     "))
        if len(row.changes) > 8:
            lines.append(f"     and {len(row.changes) - 8} more")
    return "\n".join(lines) + "\n"
