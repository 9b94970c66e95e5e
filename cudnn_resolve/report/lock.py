"""A lock in words: what it holds, what it changes, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_resolve.locking.change import Change
from cudnn_resolve.locking.model import Difference, Lock
from cudnn_resolve.locking.proof import Proof, proofs
from cudnn_resolve.report.text import Style, clean, wrap

_SHOWN = 12
"""Changes that are named one by one, unless more is asked for."""


def summary(lock: Lock) -> str:
    """What a lock holds, in one line."""
    count = len(lock.packages)
    words = f"{count} package{'' if count == 1 else 's'}"
    if lock.tool is not None:
        words += f" for Python {lock.tool.python} on {', '.join(one.platform for one in lock.tool.stacks)}"
    return words


def change_lines(changes: Sequence[Change], *, verbose: bool) -> Iterator[str]:
    """What a new lock changes against the old one, a line for each package."""
    shown = changes if verbose or len(changes) <= _SHOWN else changes[: _SHOWN - 1]
    for one in shown:
        if one.action in ("added", "removed"):
            yield f"  {one.action} {one.name} {one.new or one.old}"
        elif one.action == "files":
            yield f"  {one.name} {one.new}: other files"
        elif one.action == "replaced":
            yield f"  {one.name} {one.new}: the index gives other contents under the same name"
        else:
            yield f"  {one.action} {one.name} {one.old} -> {one.new}"
    if len(shown) < len(changes):
        yield f"  and {len(changes) - len(shown)} more; -v names them"


def proof_lines(one: Proof, width: int) -> list[str]:
    """On what a lock was tested, and why that counts no more."""
    if one.because is None:
        return wrap(clean(one.words), width=width, first="  proven on ")
    first = "  recorded on " if one.is_open else "  no longer proven on "
    return wrap(clean(f"{one.words}: {one.because}"), width=width, first=first, rest="      ")


def render_check(lock: Lock, found: Sequence[Difference], path: str, *, style: Style, width: int) -> str:
    """Whether the lock at `path` is current, and every way in which it is not."""
    name = clean(path)
    proven = [line for one in proofs(lock) for line in proof_lines(one, width)]
    if not found:
        return "\n".join([f"{name} is {style('current', 'green')}: {summary(lock)}", *proven]) + "\n"
    count = "one difference" if len(found) == 1 else f"{len(found)} differences"
    lines = [f"{name} is {style('outdated', 'red', 'bold')}: {count}"]
    for one in found:
        lines += wrap(f"{clean(one.what)}: {clean(one.locked)}", width=width, first="  ", rest="      ")
        lines += wrap(f"now {clean(one.now)}", width=width, first="      ")
        if one.because:
            lines += wrap(f"because {clean(one.because)}", width=width, first="      ")
    if any(not one.machine for one in found):
        lines.append("`cudnn-resolve lock` writes it anew; pins that can stay do.")
    else:
        lines.append("The lock is right, but not for this machine; --no-facts leaves the machine out.")
    return "\n".join([*lines, *proven]) + "\n"
