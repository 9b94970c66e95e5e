"""Render the outcome of an `apply`, and the history of an environment, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.errors import mib
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.report.text import Page, clean

if TYPE_CHECKING:
    from cudnn_resolve.report.document import PastDocument

HEADS = {
    "nothing": "nothing to do: the environment already matches the plan",
    "done": "done: the environment matches the plan",
    "reverted": "failed; everything was put back",
    "broken": "failed; not everything could be put back",
    "undone": "undone: the environment is as it was before",
    "interrupted": "interrupted before anything was changed",
    "declined": "nothing was changed: not confirmed",
    "dry-run": "nothing was changed (--dry-run)",
}
"""Headline for each status of an execution."""
STOPPED = "interrupted; everything was put back"
"""Headline for an `apply` that a signal ended and that was then reverted."""
_COLORS = {"done": "green", "undone": "green", "reverted": "yellow", "broken": "red", "interrupted": "yellow"}
_LARGE_UNDO_BYTES = 64 << 20
"""Report the disk space that an undo keeps only above this."""
_MOST_LEFT = 10
"""Unrestored items to list before counting the rest."""
_MOST_CHANGES = 8
"""Changes of a past `apply` to list before counting the rest."""


def show_execution(page: Page, done: Execution, *, head: str | None = None, python: str | None = None, env: str | None = None) -> None:
    """Summarize the execution in a few lines.

    `head` replaces the headline; `python` and `env` are the options with which the user named the environment.
    """
    headline = head or (STOPPED if _is_stopped(done) else HEADS[done.status])
    page.lines.append(page.style(headline, *dict.fromkeys(("bold", _COLORS.get(done.status, "bold")))))
    option = f" --env {shlex.quote(env)}" if env else f" --python {shlex.quote(python)}" if python else ""
    for text, prefix in _details(done, option):
        page.paragraph(text, prefix)


def _is_stopped(done: Execution) -> bool:
    """True if a signal ended it and everything could be put back."""
    return done.status == "reverted" and done.trouble is not None and done.trouble.code == "interrupted"


def _details(done: Execution, option: str) -> Iterator[tuple[str, str]]:
    """Lines below the headline: text and prefix."""
    if done.trouble is not None and done.status not in ("undone", "interrupted") and done.trouble.code != "left":
        yield done.trouble.message, "  "
        if done.trouble.hint:
            yield f"hint: {done.trouble.hint}", "  "
    for difference in done.differences:
        yield difference, "  - "
    for item in done.left[:_MOST_LEFT]:
        yield item, "  left: "
    if len(done.left) > _MOST_LEFT:
        yield f"and {len(done.left) - _MOST_LEFT} more", "  left: "
    for step in done.steps:
        yield (f"{step.what}, {step.seconds:.1f} s" if step.seconds >= 0.05 else step.what), "  "
    if done.removed and done.status == "done":
        yield f"removed: {', '.join(done.removed)}", "  "
    for note in done.notes:
        yield note, "  ! "
    for text in _next_steps(done, option):
        yield text, "  "


def _next_steps(done: Execution, option: str) -> Iterator[str]:
    yield from done.use
    if done.restart is not None:
        yield done.restart
    if done.status == "done" and done.id is not None:
        space = f" (and keeps {mib(done.kept_bytes)} on disk; `cudnn-resolve clean --all` frees it)"
        yield f"`cudnn-resolve apply --undo {done.id}{option}` undoes this apply{space if done.kept_bytes > _LARGE_UNDO_BYTES else ''}"
    if done.status == "broken":
        yield f"`cudnn-resolve apply --undo{option}` tries again to put everything back"
    if done.id is not None and (done.status == "interrupted" or _is_stopped(done)):
        yield f"`cudnn-resolve apply --resume{option}` runs it again"
    if done.log and done.status in ("reverted", "broken"):
        yield f"installer output: {done.log}"


def show_history(page: Page, applies: Sequence[PastDocument]) -> None:
    """List every `apply` of an environment with what it changed."""
    if not applies:
        page.lines.append("no apply has run in this environment")
    for past in applies:
        undo = "" if past.can_undo or past.state != "committed" else " (can no longer be undone)"
        page.lines.append(clean(f"{past.id}  {past.at}  {past.state}{undo}  {', '.join(past.targets)}"))
        for change in past.changes[:_MOST_CHANGES]:
            page.paragraph(change, "     ")
        if len(past.changes) > _MOST_CHANGES:
            page.lines.append(f"     and {len(past.changes) - _MOST_CHANGES} more")
