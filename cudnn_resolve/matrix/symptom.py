"""Rows of `symptom/*.toml`: shapes of messages, the causes that they speak for, and what helps."""

from typing import Annotated, Literal

from msgspec.structs import force_setattr

from cudnn_resolve.matrix.anchor import literals_of
from cudnn_resolve.matrix.column import SINGLE, Comparison, Count, Identifier, Lines, Pattern, Percent, Specifier, Text
from cudnn_resolve.matrix.row import Row

Singles = Annotated[tuple[Identifier, ...], SINGLE]


class Symptom(Row, frozen=True, kw_only=True):
    """symptom/*.toml: one shape of a message and what it says.

    Without a `cause` it is something that the log tells of the machine (`feature`), or noise (`role` harmless).
    """

    identity = ("id",)
    id: Identifier
    pattern: Annotated[tuple[Pattern, ...], SINGLE]
    """Regular expressions with fields, `{found:cudnn}`; the first that is found counts."""
    role: Literal["proves", "suggests", "excludes", "effect", "context", "harmless"]
    """`effect` comes after another fault."""
    sample: Annotated[tuple[Lines, ...], SINGLE]
    """Messages that it must find."""
    anchor: Annotated[tuple[Text, ...], SINGLE] = ()
    """Lower-case texts, one of which is in every line that a pattern matches; lines without any of them are skipped.

    A row without the column gets the longest literal of each alternative of its patterns.
    """
    cause: Identifier | None = None
    weight: Percent = 50
    """How much it speaks for its cause, up to 100."""
    feature: Identifier | None = None
    """What the log then is known to have: `wsl`, `colab`, `gpu-seen`."""
    when: Annotated[tuple[Comparison, ...], SINGLE] = ()
    """Comparisons of fields that must hold: `found < built`."""
    needs: Singles = ()
    """Features that the log or the facts must have, all of them."""
    unless: Singles = ()
    """Features of which none may be there."""
    span: Count = 1
    """Lines that the message goes over."""
    mild: bool = False
    """True for a warning after which a program goes on: where it is the only line of a log, nothing has failed yet."""
    last: bool = False
    """True for general words, which only count where no other symptom speaks."""
    summary: Text | None = None
    """The cause in one sentence, with the fields in braces."""
    framework: Identifier | None = None
    """The framework or tool that prints it; None = any."""
    versions: Specifier | None = None
    """The versions of it for which the message means this."""

    def __post_init__(self) -> None:
        """Derive the anchors that the row leaves out."""
        if not self.anchor:
            force_setattr(self, "anchor", tuple(dict.fromkeys(text for pattern in self.pattern for text in literals_of(pattern))))


class Cause(Row, frozen=True, kw_only=True):
    """symptom/*.toml: one cause of the closed set, what is said of it, and which others it explains."""

    identity = ("id",)
    id: Identifier
    title: Text
    severity: Literal["error", "warning", "info"]
    summary: Text
    """One sentence, where no symptom has a better one."""
    explains: tuple[Identifier, ...] = ()
    """Causes whose symptoms follow from this one."""
    confused: tuple[Identifier, ...] = ()
    """Causes that look alike in a log."""
    decide: Text | None = None
    """The command that tells it from those."""
    version: Literal["kept", "free", "kept if possible"] = "kept"
    """Which versions of the framework help: the installed one, any, or the installed one where another build or other libraries do."""


class Help(Row, frozen=True, kw_only=True):
    """symptom/*.toml: one remedy for a cause, the least invasive first in the order of the table."""

    identity = ("cause", "id")
    cause: Identifier
    id: Identifier
    text: Text
    command: Text | None = None
    """With fields of the finding in braces; left out where one of them is not known."""
    needs: Singles = ()
    unless: Singles = ()


class Clue(Row, frozen=True, kw_only=True):
    """symptom/*.toml: words in the lines of a finding that tell more than its cause, for the remedies."""

    identity = ("id",)
    id: Identifier
    tells: Identifier
    """`feature`, which remedies need; `framework` or `traceback`, whose framework is meant; else the field of remedies that it fills."""
    values: dict[Text, Text]
    """Word, in lower case, to what it tells; `*` stands for any. The first word counts where one thing is told."""
    field: Identifier | None = None
    """The field of the message that must be the word; None: the line holds it."""
    symptoms: Singles = ()
    """The symptoms in whose lines it means this; () = all."""
