"""Hosts, their classes, and the answers of a verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Verdict
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.resolution.model import Range

Status = Literal["ok", "unknown", "no", "failed"]


class HostFacts(Struct, frozen=True, kw_only=True):
    """A host with its facts."""

    host: str
    facts: Facts


class HostFault(Struct, frozen=True, kw_only=True):
    """A host that could not be reached, or whose facts cannot be read."""

    host: str
    why: str


class Spread(Struct, frozen=True, kw_only=True):
    """A fact in which hosts of one class differ, but which decides nothing."""

    fact: str
    """Such as `driver.version`."""
    values: Mapping[str, tuple[str, ...]]
    """Hosts by value, most frequent value first."""


class FleetClass(Struct, frozen=True, kw_only=True):
    """Hosts with equal decisive facts."""

    name: str
    """Describes its hosts, `a100-r550-py311`; the same in every run."""
    hosts: tuple[str, ...]
    about: Mapping[str, str]
    """The facts that define the class, as text."""
    facts: Facts
    """Facts of the host with the oldest driver."""
    spreads: tuple[Spread, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of a verb on one host."""

    host: str
    status: str
    detail: str = ""


class ClassAnswer(Struct, frozen=True, kw_only=True):
    """Result of a verb for one class."""

    group: FleetClass
    status: Status = "ok"
    plan: Plan | None = None
    lock: str | None = None
    """Path of its lock."""
    message: str = ""
    """Summary in one line."""
    ranges: tuple[Range, ...] = ()
    """Versions that each party allows, if requested."""
    verdicts: tuple[Verdict, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """Results of single hosts that differ from that of the class."""
    notes: tuple[str, ...] = ()
    """Remarks, for example of an index; mostly shared by all classes."""


class WayOut(Struct, frozen=True, kw_only=True):
    """A change after which one lock fits all remaining hosts."""

    change: str
    hosts: tuple[str, ...]
    """The affected hosts."""
    result: str


class OneLock(Struct, frozen=True, kw_only=True):
    """A single lock for all hosts, or why there is none."""

    path: str | None = None
    """None without a lock."""
    message: str
    ways: tuple[WayOut, ...] = ()
    """Changes that would make one possible, fewest hosts first."""


class Change(Struct, frozen=True, kw_only=True):
    """A fact that has changed."""

    fact: str
    before: str
    now: str
    hosts: tuple[str, ...]


class FleetAnswer(Struct, frozen=True, kw_only=True):
    """Result of a verb for many machines."""

    verb: str
    classes: tuple[ClassAnswer, ...]
    faults: tuple[HostFault, ...] = ()
    one: OneLock | None = None
    """With `lock --one-lock`."""
    changes: tuple[Change, ...] | None = None
    """Changes since an earlier run; None if none was named."""
    is_strict: bool = False
    """True if changes and unknown verdicts count as a no."""
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> int:
        """Number of hosts, including those that did not answer."""
        return sum(len(answer.group.hosts) for answer in self.classes) + len(self.faults)

    @property
    def status(self) -> Status:
        """`failed` if a class failed, `no` if one has no answer or a host has no usable facts, else `ok`."""
        statuses = {answer.status for answer in self.classes}
        if "failed" in statuses:
            return "failed"
        has_no_lock = self.one is not None and self.one.path is None
        is_strict_no = self.is_strict and (self.changes or "unknown" in statuses)
        return "no" if "no" in statuses or self.faults or has_no_lock or is_strict_no else "ok"
