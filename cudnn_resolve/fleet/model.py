"""What is known of many machines, and what a verb says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Verdict
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.resolution.model import Range

Status = Literal["ok", "unknown", "no", "failed"]


class HostReport(Struct, frozen=True, kw_only=True):
    """What one host said: its facts, or why there are none."""

    name: str
    facts: Facts | None = None
    fault: str | None = None


class HostFault(Struct, frozen=True, kw_only=True):
    """A host that could not be asked, or whose facts cannot be read."""

    host: str
    why: str


class Spread(Struct, frozen=True, kw_only=True):
    """A fact in which hosts of one class differ, and that decides nothing."""

    fact: str
    """`driver.version`."""
    values: Mapping[str, tuple[str, ...]]
    """Each value with its hosts, the most frequent first."""


class FleetClass(Struct, frozen=True, kw_only=True):
    """Hosts whose facts are equal as far as they matter."""

    name: str
    """Of what its hosts are, `a100-r550-py3.11`: the same in every run."""
    hosts: tuple[str, ...]
    about: Mapping[str, str]
    """The facts that make the class, each in words."""
    facts: Facts
    """Those of the host that stands for it: the one with the oldest driver."""
    spreads: tuple[Spread, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What a verb did on one host, or says of it."""

    host: str
    status: str
    detail: str = ""


class ClassAnswer(Struct, frozen=True, kw_only=True):
    """What a verb says of one class."""

    group: FleetClass
    status: Status = "ok"
    plan: Plan | None = None
    lock: str | None = None
    """The file of its lock."""
    message: str = ""
    """What was answered, in a line."""
    ranges: tuple[Range, ...] = ()
    """Where they are asked for: the versions that each party allows, for a picture."""
    verdicts: tuple[Verdict, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """By host, where there is more to say than of the class."""
    notes: tuple[str, ...] = ()
    """Of what was asked on the way, an index for example: classes mostly share them."""


class WayOut(Struct, frozen=True, kw_only=True):
    """A change after which one lock fits every host that is left."""

    change: str
    hosts: tuple[str, ...]
    """Those that it is about."""
    result: str


class OneLock(Struct, frozen=True, kw_only=True):
    """One lock for all hosts, or why there is none."""

    path: str | None = None
    """None where there is none."""
    message: str
    ways: tuple[WayOut, ...] = ()
    """Where there is none: what would change that, the fewest hosts first."""


class Change(Struct, frozen=True, kw_only=True):
    """A fact that is no longer what it was."""

    fact: str
    before: str
    now: str
    hosts: tuple[str, ...]


class FleetAnswer(Struct, frozen=True, kw_only=True):
    """What a verb says of many machines."""

    verb: str
    classes: tuple[ClassAnswer, ...]
    faults: tuple[HostFault, ...] = ()
    one: OneLock | None = None
    """With `lock --one-lock`."""
    changes: tuple[Change, ...] | None = None
    """Since an earlier run; None where none was named."""
    is_strict: bool = False
    """True where changes, and what is not known to run, count as a no."""
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> int:
        """Hosts that were named, those that did not answer among them."""
        return sum(len(one.group.hosts) for one in self.classes) + len(self.faults)

    @property
    def status(self) -> Status:
        """`failed` where a class failed, `no` where one has no answer or a host did not say what it is, else `ok`."""
        found = {one.status for one in self.classes}
        refused = (
            self.faults or (self.one is not None and self.one.path is None) or (self.is_strict and (self.changes or "unknown" in found))
        )
        return "failed" if "failed" in found else "no" if "no" in found or refused else "ok"
