"""Row types of `symptom/*.toml`: shapes of messages, the causes that they speak for, and what helps.

Like every row these trust their constructor; `matrix.parse` validates, and `symptom_law` holds what goes beyond one row.
"""

from __future__ import annotations

from msgspec import Struct


class Symptom(Struct, frozen=True, kw_only=True):
    """One shape of a message and what it says.

    Without a `cause` it is something that the log tells of the machine (`feature`), or noise (`role` harmless).
    """

    id: str
    pattern: tuple[str, ...]
    """Regular expressions with fields, `{found:cudnn}`; the first that is found counts."""
    role: str
    """`proves`, `suggests`, `excludes`, `effect` (comes after another fault), `context` or `harmless`."""
    sample: tuple[str, ...]
    """Messages that it must find."""
    anchor: tuple[str, ...] = ()
    """Read off the patterns, in lower case; a line without any of them is not looked at."""
    cause: str | None = None
    weight: int = 50
    """How much it speaks for its cause, up to 100."""
    feature: str | None = None
    """What the log then is known to have: `wsl`, `colab`, `gpu-seen`."""
    when: tuple[str, ...] = ()
    """Comparisons of fields that must hold: `found < built`."""
    needs: tuple[str, ...] = ()
    """Features that the log or the facts must have, all of them."""
    unless: tuple[str, ...] = ()
    """Features of which none may be there."""
    span: int = 1
    """Lines that the message goes over."""
    mild: bool = False
    """True for a warning after which a program goes on: where it is the only line of a log, nothing has failed yet."""
    summary: str | None = None
    """The cause in one sentence, with the fields in braces."""
    framework: str | None = None
    """The framework or tool that prints it; None = any."""
    versions: str | None = None
    """PEP 440 specifier: the versions of it for which the message means this."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Cause(Struct, frozen=True, kw_only=True):
    """One cause of the closed set: what is said of it, and which others it explains."""

    id: str
    title: str
    severity: str
    summary: str
    """One sentence, where no symptom has a better one."""
    explains: tuple[str, ...] = ()
    """Causes whose symptoms follow from this one."""
    confused: tuple[str, ...] = ()
    """Causes that look alike in a log."""
    decide: str | None = None
    """The command that tells it from those."""
    note: str | None = None
    source: tuple[str, ...] = ()


class Help(Struct, frozen=True, kw_only=True):
    """One remedy for a cause, the least invasive first in the order of the table."""

    cause: str
    id: str
    text: str
    command: str | None = None
    """With fields of the finding in braces; left out where one of them is not known."""
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    note: str | None = None
    source: tuple[str, ...] = ()
