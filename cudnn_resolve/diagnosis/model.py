"""Types of a diagnosis: matches in a log, the machine that they show, suspected causes, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.symptom import Symptom
from cudnn_resolve.version import Capability, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Range

SEVERITIES = ("error", "warning", "info")
EMPTY = "the log is empty"


class Evidence(Struct, frozen=True, kw_only=True):
    """One line of evidence for a finding."""

    source: str
    """`log`, or the dotted name of a fact."""
    line: int | None
    text: str


class Remedy(Struct, frozen=True, kw_only=True):
    """One thing to do; `command` is None if no command does it."""

    text: str
    command: str | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One diagnosed cause, with its evidence and its remedy."""

    cause: str
    severity: str
    """`error`, `warning` or `info`."""
    summary: str
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[Remedy, ...] = ()
    confidence: float = 0.5
    """From 0 to 1."""
    undecided: str | None = None
    """What the log and the facts leave open, and how to decide it."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, the most likely cause first."""

    findings: tuple[Finding, ...] = ()
    lines: int = 0
    """Lines of the log; 0 without a log."""
    note: str | None = None
    """Remark on the log or the machine if nothing was found."""

    @property
    def is_error(self) -> bool:
        """True if a finding has severity error."""
        return any(finding.severity == "error" for finding in self.findings)


class Match(Struct, frozen=True, kw_only=True, eq=False):
    """A symptom found in a log."""

    symptom: Symptom
    line: int
    text: str
    """The whole message, which may span several lines."""
    own: str | None = None
    """The user's line on which the message starts, if it spans several."""
    fields: Mapping[str, Any] = MappingProxyType({})
    """Field → value, parsed by its kind."""

    @property
    def shown(self) -> str:
        """The line as evidence."""
        return self.own or self.text


def of_symptom(matches: Iterable[Match], *names: str) -> Iterator[Match]:
    """The matches of the symptoms with these names."""
    return (match for match in matches if match.symptom.id in names)


def values_of(matches: Iterable[Match], name: str, kind: type[Any] = object) -> Iterator[Any]:
    """Values of a field, of one type, in the messages that have it."""
    return (match.fields[name] for match in matches if name in match.fields and isinstance(match.fields[name], kind))


class Suspect(Struct, frozen=True, kw_only=True):
    """A possible cause and its evidence."""

    cause: str
    weight: float
    matches: tuple[Match, ...]
    """Strongest first."""
    effects: tuple[Match, ...] = ()
    """Symptoms of other causes that this one explains."""
    summary: str | None = None
    """Overrides the symptoms' sentence."""
    severity: str | None = None
    """Overrides the cause's severity."""

    @property
    def every(self) -> tuple[Match, ...]:
        """Its symptoms and those that it explains."""
        return (*self.matches, *self.effects)


class Suspects(dict[str, Suspect]):
    """Suspected causes by name; one that is not suspected has no weight and no symptoms."""

    def __missing__(self, cause: str) -> Suspect:
        return Suspect(cause=cause, weight=0, matches=())

    def add(self, cause: str, base: Suspect, more: float, summary: str, shown: Iterable[Match | None] = ()) -> None:
        """Suspect a cause on the evidence of another one, and a little more."""
        matches = dict.fromkeys((*base.matches, *(match for match in shown if match), *self[cause].matches))
        self[cause] = Suspect(cause=cause, weight=min(base.weight + more, 98), matches=tuple(matches), summary=summary)

    def supersede(self, base: Suspect, cause: str, more: float, summary: str, shown: Iterable[Match | None] = ()) -> None:
        """The same in place of the other cause."""
        self.pop(base.cause, None)
        self.add(cause, base, more, summary, shown)


class Present(Struct, frozen=True, kw_only=True):
    """A cuDNN shown by the log or the facts: a file that was opened or listed, a package, a version."""

    major: int
    version: CudnnVersion | None
    match: Match | None
    """The line that shows it; None if the facts do."""
    path: str | None = None
    broken: str | None = None
    """Why it is not a complete release, according to the facts."""


class Context(Struct, frozen=True, kw_only=True):
    """The machine as shown by the log, completed by the facts."""

    capabilities: tuple[Capability, ...] = ()
    frameworks: tuple[tuple[str, str], ...] = ()
    """Name as printed (lower case) and version."""
    builds: tuple[Build, ...] = ()
    """The matrix builds of those versions."""
    cudnn: tuple[Present, ...] = ()
    cards: tuple[str, ...] = ()

    def version(self, name: str) -> str | None:
        """Version of a framework named in the log."""
        return next((version for framework, version in self.frameworks if framework == name), None)


_NOTHING = Facts()


class Case(Struct, frozen=True, kw_only=True):
    """Everything known of a failure: log, facts, tables, and the user's options for plans."""

    matches: tuple[Match, ...]
    features: frozenset[str]
    context: Context
    book: Book
    frames: tuple[Match, ...] = ()
    """Traceback lines in installed packages."""
    facts: Facts | None = None
    wishes: Request | None = None

    @property
    def known(self) -> Facts:
        """The facts; without any, those of a machine of which nothing is known."""
        return self.facts or _NOTHING


class CheckedFramework(Struct, frozen=True, kw_only=True):
    """One framework and its verdict."""

    name: str
    version: str
    status: Literal["runs", "breaks", "unknown"]


class Verdict(Struct, frozen=True, kw_only=True):
    """Result of `check` for one item on one machine."""

    what: str
    machine: str
    status: Literal["runs", "breaks", "unknown"]
    """`unknown` if nothing wrong was found but not everything was judged."""
    frameworks: tuple[CheckedFramework, ...] = ()
    findings: tuple[Finding, ...] = ()
    remedy: tuple[Remedy, ...] = ()
    """Remedies for all problems together, smallest change first."""
    judged: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    """Unmet requirements as reported by `pip check`; not part of the verdict."""
    ranges: tuple[Range, ...] = ()
    """For a picture: the versions that each framework allows, and the installed ones."""


class Moved(Struct, frozen=True, kw_only=True):
    """One package that a change touches."""

    name: str
    before: str | None
    """Its version; None if it was not installed."""
    after: str | None
    """None if it was removed."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Effect of a changed package list on one machine."""

    before: Verdict
    after: Verdict
    moved: tuple[Moved, ...] = ()

    @property
    def appeared(self) -> tuple[Finding, ...]:
        """Findings of the new list only."""
        return _only(self.after, self.before)

    @property
    def gone(self) -> tuple[Finding, ...]:
        """Findings of the old list only."""
        return _only(self.before, self.after)


def _only(verdict: Verdict, other: Verdict) -> tuple[Finding, ...]:
    known = {(row.cause, row.severity, row.summary) for row in other.findings}
    return tuple(row for row in verdict.findings if (row.cause, row.severity, row.summary) not in known)
