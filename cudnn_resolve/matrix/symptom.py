"""Rows of `symptom/*.toml`: message patterns, the causes they indicate, and remedies."""

from typing import Annotated, Literal

from msgspec.structs import force_setattr

from cudnn_resolve.matrix.anchor import Literals, anchors_of, anchors_of_lines, literals_of
from cudnn_resolve.matrix.column import SINGLE, Comparison, Count, Identifier, Lines, Pattern, Percent, Specifier, Text
from cudnn_resolve.matrix.message import expand
from cudnn_resolve.matrix.row import DERIVED, Row

Singles = Annotated[tuple[Identifier, ...], SINGLE]
PLACE = "context-place"
"""Start of the names of symptoms whose fields are named like the features that they show: see `place_feature`."""


def place_feature(field: str) -> str:
    """Feature that a field of such a symptom shows."""
    return field.replace("_", "-")


class Symptom(Row, frozen=True, kw_only=True):
    """symptom/*.toml: message pattern and its meaning.

    Without a `cause` it is a fact about the machine (`feature`), or noise (`role` harmless).
    """

    identity = ("id",)
    id: Identifier
    pattern: Annotated[tuple[Pattern, ...], SINGLE]
    """Regular expressions with fields, `{found:cudnn}`; the first match counts."""
    role: Literal["proves", "suggests", "excludes", "effect", "context", "harmless"]
    """`effect`: follows from another fault."""
    sample: Annotated[tuple[Lines, ...], SINGLE]
    """Messages that the patterns must match."""
    anchor: Annotated[tuple[Text, ...], SINGLE] = ()
    """Lower-case strings; every line that a pattern matches contains one, and lines without any are skipped.

    The default is taken from the patterns.
    """
    literals: Annotated[tuple[Literals, ...], DERIVED] = ()
    """What a line must contain, for each pattern."""
    cause: Identifier | None = None
    weight: Percent = 50
    """Strength of the evidence for the cause, up to 100."""
    feature: Identifier | None = None
    """Feature that the message adds to the log: `wsl`, `colab`, `gpu-seen`."""
    when: Annotated[tuple[Comparison, ...], SINGLE] = ()
    """Comparisons of fields that must hold: `found < built`."""
    needs: Singles = ()
    """Features that the log or the facts must all have."""
    unless: Singles = ()
    """Features that must all be absent."""
    span: Count = 1
    """Number of lines of the message."""
    mild: bool = False
    """True for a warning that does not stop the program: alone in a log, it means that nothing has failed yet."""
    last: bool = False
    """True for generic wording that counts only if no other symptom matches."""
    summary: Text | None = None
    """The cause in one sentence, with fields in braces."""
    framework: Identifier | None = None
    """Framework or tool that prints it; None = any."""
    versions: Specifier | None = None
    """Versions of the framework in which the message has this meaning."""

    def __post_init__(self) -> None:
        """Derive the literals from the patterns, and the anchors from the literals if the row has none."""
        if not self.literals:
            force_setattr(self, "literals", tuple(literals_of(expand(pattern)) for pattern in self.pattern))
        if not self.anchor:
            anchors = anchors_of if self.span == 1 else anchors_of_lines
            force_setattr(self, "anchor", tuple(dict.fromkeys(text for literals in self.literals for text in anchors(literals))))


class Cause(Row, frozen=True, kw_only=True):
    """symptom/*.toml: one cause of the closed set, its wording, and the causes that it explains."""

    identity = ("id",)
    id: Identifier
    title: Text
    severity: Literal["error", "warning", "info"]
    summary: Text
    """One sentence, used if no symptom has a more specific one."""
    explains: tuple[Identifier, ...] = ()
    """Causes whose symptoms follow from this one."""
    confused: tuple[Identifier, ...] = ()
    """Causes that look the same in a log."""
    decide: Text | None = None
    """Command that tells it apart from those."""
    decide_windows: Text | None = None
    """The same on Windows; without it, `decide` as far as Windows has its commands."""
    answer: Text | None = None
    """What that command shows, in words; the first step if the evidence is weak."""
    version: Literal["kept", "free", "kept if possible"] = "kept"
    """Framework versions that help: the installed one, any, or the installed one if another build or other libraries fix it."""


class RemedyRow(Row, frozen=True, kw_only=True):
    """symptom/*.toml: remedy for a cause; table order puts the least invasive first."""

    identity = ("cause", "id")
    cause: Identifier
    also: Singles = ()
    """Other causes that it serves."""
    id: Identifier
    text: Text
    command: Text | None = None
    """With fields of the finding in braces; dropped if one of them is unknown."""
    needs: Singles = ()
    unless: Singles = ()
    settles: bool = False
    """True if, with its needs met, it answers in place of the later rows of the cause that are shown unless `settled`."""
    fallback: bool = False
    """Shown only where no remedy of a symptom, and none of the cause that needs a feature, is."""


class Clue(Row, frozen=True, kw_only=True):
    """symptom/*.toml: words in the lines of a finding that its remedies need beyond the cause."""

    identity = ("id",)
    id: Identifier
    tells: Identifier
    """`feature`, which remedies need; `error_kind`, the same for the line of an unknown failure; `framework` or `traceback`, naming the
    framework; else the field of remedies that it fills."""
    values: dict[Text, Text]
    """Lower-case word to its meaning; `*` matches any word. The first matching word counts."""
    field: Singles = ()
    """Fields of the message, one of which must equal the word; () = the line contains it."""
    same: Singles = ()
    """Words that mean themselves, besides `values`."""
    symptoms: Singles = ()
    """Symptoms in whose lines it counts; () = all."""

    def __post_init__(self) -> None:
        """Add the words that mean themselves to the others."""
        force_setattr(self, "values", {**self.values, **{word: word for word in self.same}})
