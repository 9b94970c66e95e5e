"""Render a lock as text: its contents, its changes, and whether it is current."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_resolve.locking.change import Change
from cudnn_resolve.locking.model import Difference, Lock
from cudnn_resolve.locking.proof import Proof, proofs
from cudnn_resolve.report.text import Page, clean

_MOST_CHANGES = 12
"""Changes to list before counting the rest, unless verbose."""


def summary(lock: Lock) -> str:
    """Describe the contents of a lock in one line."""
    count = len(lock.packages)
    text = f"{count} package{'' if count == 1 else 's'}"
    if lock.tool is not None:
        text += f" for Python {lock.tool.python} on {', '.join(stack.platform for stack in lock.tool.stacks)}"
    return text


def change_lines(changes: Sequence[Change], *, verbose: bool) -> Iterator[str]:
    """Describe the changes of a renewed lock, one line for each package."""
    shown = changes if verbose or len(changes) <= _MOST_CHANGES else changes[: _MOST_CHANGES - 1]
    for change in shown:
        if change.action in ("added", "removed"):
            yield f"  {change.action} {change.name} {change.new or change.old}"
        elif change.action == "files":
            yield f"  {change.name} {change.new}: other files"
        elif change.action == "replaced":
            yield f"  {change.name} {change.new}: the index now serves different content under the same file name"
        else:
            yield f"  {change.action} {change.name} {change.old} -> {change.new}"
    if len(shown) < len(changes):
        yield f"  and {len(changes) - len(shown)} more (-v lists them)"


def _show_proof(page: Page, proof: Proof) -> None:
    """Describe one validation record, with the reason if it does not prove the current pins."""
    if proof.because is None:
        page.paragraph(proof.words, "  proven on ")
    else:
        page.paragraph(f"{proof.words}: {proof.because}", "  recorded on " if proof.is_open else "  no longer proven on ", "      ")


def show_check(page: Page, lock: Lock, differences: Sequence[Difference], path: str) -> None:
    """Show whether the lock at `path` is current, and every way in which it is not."""
    count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
    verdict = f"{page.style('outdated', 'red', 'bold')}: {count}" if differences else f"{page.style('current', 'green')}: {summary(lock)}"
    page.lines.append(f"{clean(path)} is {verdict}")
    for difference in differences:
        page.paragraph(f"{difference.what}: {difference.locked}", "  ", "      ")
        page.paragraph(f"now {difference.now}", "      ")
        if difference.because:
            page.paragraph(f"because {difference.because}", "      ")
    if any(not difference.machine for difference in differences):
        page.lines.append("`cudnn-resolve lock` renews it, changing only the pins that must change.")
    elif differences:
        page.lines.append("The lock is valid, but not for this machine; --no-facts ignores the machine.")
    for proof in proofs(lock):
        _show_proof(page, proof)
