"""Answers for many machines as text and as JSON."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.facts.codec import encode as encode_facts
from cudnn_resolve.fleet.classes import ranges
from cudnn_resolve.fleet.model import ClassAnswer, FleetAnswer, HostFault, Outcome, Spread, Status
from cudnn_resolve.report.document import FACTS, PLAN_OBJECT, VerdictDocument, encode_plan, taken
from cudnn_resolve.report.json import plain
from cudnn_resolve.report.text import Page, Style

_COLORS = {"ok": "green", "no": "red", "failed": "red"}


class ClassDocument(Struct, frozen=True, kw_only=True):
    """One class of hosts, and what the verb says of it."""

    name: str
    hosts: tuple[str, ...]
    about: dict[str, str]
    """The facts that make the class, each in words."""
    status: Status
    message: str
    facts: FACTS
    """Of the host that stands for the class."""
    differences: tuple[Spread, ...]
    plan: PLAN_OBJECT = None
    command: str | None = None
    lock: str | None = None
    verdicts: tuple[VerdictDocument, ...] | UnsetType = UNSET
    outcomes: tuple[Outcome, ...] | UnsetType = UNSET


class FleetDocument(Struct, frozen=True, kw_only=True):
    """`fleet VERB --format json`: the classes of hosts, each with its answer."""

    schema: Literal["cudnn-resolve/fleet/1"] = "cudnn-resolve/fleet/1"
    verb: str
    status: Status
    hosts: int
    """Hosts that were named, those that did not answer among them."""
    classes: tuple[ClassDocument, ...]
    faults: tuple[HostFault, ...]
    notes: tuple[str, ...]


def encode(found: FleetAnswer) -> dict[str, Any]:
    """The answer, ready for `json.dumps`."""
    made = FleetDocument(
        verb=found.verb,
        status=found.status,
        hosts=found.hosts,
        classes=tuple(map(_class, found.classes)),
        faults=found.faults,
        notes=found.notes,
    )
    value: dict[str, Any] = plain(made)
    return value


def _class(one: ClassAnswer) -> ClassDocument:
    facts = encode_facts(one.group.facts)
    return ClassDocument(
        name=one.group.name,
        hosts=one.group.hosts,
        about=dict(one.group.about),
        status=one.status,
        message=one.message,
        facts=facts,
        differences=one.group.spreads,
        plan=None if one.plan is None else encode_plan(one.plan, facts, one.command, ()),
        command=one.command,
        lock=one.lock,
        verdicts=tuple(taken(VerdictDocument, each) for each in one.verdicts) or UNSET,
        outcomes=one.outcomes or UNSET,
    )


def render(found: FleetAnswer, *, style: Style, width: int) -> str:
    """The answer for a reader at a terminal."""
    page = Page(style, width)
    names = ("class", "hosts", "", *dict.fromkeys(name for one in found.classes for name in one.group.about))
    page.table(
        names,
        (
            (one.group.name, str(len(one.group.hosts)), one.status, *(one.group.about.get(name, "") for name in names[3:]))
            for one in found.classes
        ),
    )
    for one in found.classes:
        page.title(one.group.name)
        page.say(ranges(one.group.hosts))
        if one.message:
            page.say(one.message)
    if found.faults:
        page.title("not answered")
        page.rows((one.host, one.why.replace("\n", " ")) for one in found.faults)
    return page.text()
