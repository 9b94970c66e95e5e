"""What a diagnosis is made of: matches in a log, what they show of the machine, suspected causes, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.symptom import Symptom
from cudnn_resolve.version import Capability, CodeTarget, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Range
from typing import Literal

SEVERITIES = ("error", "warning", "info")
EMPTY = "the log is empty"


class Evidence(Struct, frozen=True, kw_only=True):
    """One line that a finding rests on."""

    source: str
    """`log`, or the dotted fact."""
    line: int | None
    text: str


class Remedy(Struct, frozen=True, kw_only=True):
    """One thing to do; `command` is None where no command does it."""

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
    """What the log and the facts leave open, and what would decide it."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, the most likely cause first."""

    findings: tuple[Finding, ...] = ()
    lines: int = 0
    """Lines of the log, 0 where there was none."""
    note: str | None = None
    """What is to be known of the machine where nothing was found."""

    @property
    def is_error(self) -> bool:
        """True where something of severity error was found."""
        return any(one.severity == "error" for one in self.findings)


class Match(Struct, frozen=True, kw_only=True, eq=False):
    """A symptom that was found in a log."""

    symptom: Symptom
    line: int
    text: str
    """All of the message, which may go over several lines."""
    own: str | None = None
    """The user's own line, where the message goes over several."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Field to value, as its kind takes it."""

    @property
    def shown(self) -> str:
        """The line as evidence."""
        return self.own or self.text


class Suspect(Struct, frozen=True, kw_only=True):
    """A cause with what speaks for it."""

    cause: str
    weight: float
    matches: tuple[Match, ...]
    """The strongest first."""
    effects: tuple[Match, ...] = ()
    """Symptoms of other causes that this one explains."""
    summary: str | None = None
    """The sentence for it, where no symptom has one."""
    severity: str | None = None
    """Where it is not the cause's own."""


Suspects = dict[str, Suspect]
"""The suspected causes by name."""


class Present(Struct, frozen=True, kw_only=True):
    """A cuDNN that the log or the facts show: a file that was opened or listed, a package, a version."""

    major: int
    version: CudnnVersion | None
    match: Match | None
    """The line that shows it; None where the facts do."""
    path: str | None = None
    broken: str | None = None
    """Why it is not one whole release, where the facts know that."""


class Context(Struct, frozen=True, kw_only=True):
    """The machine as the log shows it, completed by the facts."""

    capabilities: tuple[Capability, ...] = ()
    frameworks: tuple[tuple[str, str], ...] = ()
    """Name as printed (lower case) and version."""
    builds: tuple[Build, ...] = ()
    """The builds of the matrix that those versions are."""
    cudnn: tuple[Present, ...] = ()
    cards: tuple[str, ...] = ()
    made_for: tuple[CodeTarget, ...] = ()
    """GPU code that the user's own build is told to hold."""
    unknown: frozenset[Capability] = frozenset()
    """Of the capabilities those that came after the newest CUDA which the log names."""

    def version(self, name: str) -> str | None:
        """The version of a framework that the log names."""
        return next((version for one, version in self.frameworks if one == name), None)


class Case(Struct, frozen=True, kw_only=True):
    """Everything that is known of a failure: a log, facts, the tables, and how the user wants plans made."""

    matches: tuple[Match, ...]
    features: frozenset[str]
    context: Context
    book: Book
    frames: tuple[Match, ...] = ()
    """Lines of tracebacks in installed packages."""
    facts: Facts | None = None
    wishes: Request | None = None


class CheckedFramework(Struct, frozen=True, kw_only=True):
    """One framework, and what is known of it."""

    name: str
    version: str
    status: Literal["runs", "breaks", "unknown"]


class Verdict(Struct, frozen=True, kw_only=True):
    """What was found of one thing on one machine."""

    what: str
    machine: str
    status: Literal["runs", "breaks", "unknown"]
    """`unknown` where nothing wrong was found and not everything was judged."""
    frameworks: tuple[CheckedFramework, ...] = ()
    findings: tuple[Finding, ...] = ()
    remedy: tuple[Remedy, ...] = ()
    """What mends all that breaks together, the smallest change first."""
    judged: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    """What `pip check` says besides: packages that declare of one another what is not met. It is no part of the verdict."""
    ranges: tuple[Range, ...] = ()
    """Where a picture is wanted: the versions that each framework allows, with those that are there."""


class Moved(Struct, frozen=True, kw_only=True):
    """One package that a change touches."""

    name: str
    before: str | None
    """Its version; None where it was not there."""
    after: str | None
    """None where it is gone."""


class Comparison(Struct, frozen=True, kw_only=True):
    """What the change of a list does to one machine."""

    before: Verdict
    after: Verdict
    moved: tuple[Moved, ...] = ()

    @property
    def appeared(self) -> tuple[Finding, ...]:
        """Findings that the new list has and the old one has not."""
        return _only(self.after, self.before)

    @property
    def gone(self) -> tuple[Finding, ...]:
        """Findings that the old list had."""
        return _only(self.before, self.after)


def _only(one: Verdict, other: Verdict) -> tuple[Finding, ...]:
    known = {(row.cause, row.severity, row.summary) for row in other.findings}
    return tuple(row for row in one.findings if (row.cause, row.severity, row.summary) not in known)
