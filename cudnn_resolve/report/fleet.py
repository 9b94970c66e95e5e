"""Answers for many machines as text and as JSON."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.facts.codec import encode as encode_facts
from cudnn_resolve.fleet.classes import ranges
from cudnn_resolve.fleet.model import Change, ClassAnswer, FleetAnswer, HostFault, OneLock, Outcome, Spread, Status
from cudnn_resolve.report.document import FACTS, PLAN_OBJECT, VerdictDocument, document, encode_plan, taken
from cudnn_resolve.report.plan import verdict
from cudnn_resolve.report.text import Page, Style


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
    """Hosts that could not be asked, or whose facts cannot be read."""
    one_lock: OneLock | UnsetType = UNSET
    changes: tuple[Change, ...] | UnsetType = UNSET
    """Since the run that `--since` names."""
    notes: tuple[str, ...]


def encode(found: FleetAnswer) -> dict[str, Any]:
    """The answer, ready for `json.dumps`."""
    one, changes = (UNSET if each is None else each for each in (found.one, found.changes))
    return document(FleetDocument, found, classes=tuple(map(_class, found.classes)), one_lock=one, changes=changes)


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
        plan=None if one.plan is None else encode_plan(one.plan, facts, command=None, ranges=one.ranges),
        lock=one.lock,
        verdicts=tuple(taken(VerdictDocument, each) for each in one.verdicts) or UNSET,
        outcomes=one.outcomes or UNSET,
    )


def render(found: FleetAnswer, *, style: Style, width: int, verbose: bool = False) -> str:
    """The answer for a reader at a terminal: a table of the classes, what is said of each, and what is not as it should be."""
    page = Page(style, width)
    facts = tuple(dict.fromkeys(name for one in found.classes for name in one.group.about))
    rows = (
        (
            one.group.name,
            _word(found, one),
            str(len(one.group.hosts)),
            *(one.group.about.get(name, "") for name in facts),
            ranges(one.group.hosts),
        )
        for one in found.classes
    )
    page.table(("class", "", "hosts", *facts, "names"), rows, least=("platform", "glibc", "python"))
    if found.one is not None:
        page.title(f"one lock: {found.one.path}" if found.one.path is not None else "one lock: there is none")
        page.say(found.one.message)
        for way in found.one.ways:
            page.say(f"{way.change}: {way.result}", first="  - ")
    for one in found.classes:
        _class_text(page, one, verbose=verbose)
    if found.changes is not None:
        page.title("changed since then" if found.changes else "nothing changed since then")
        page.rows((one.fact, f"{one.before} -> {one.now}", ranges(one.hosts)) for one in found.changes[: None if verbose else _FEW])
        _more(page, len(found.changes), verbose=verbose)
    if found.faults:
        page.title("hosts that say nothing of themselves")
        page.rows((one.host, " ".join(one.why.split())) for one in found.faults[: None if verbose else _FEW])
        _more(page, len(found.faults), verbose=verbose)
    for note in found.notes:
        page.say(note, first="note: ")
    return page.text()


_FEW = 20
"""Rows of a kind that are shown, unless more is asked for."""
_WORDS = {"check": {"ok": "runs", "no": "breaks", "unknown": "not known"}, "detect": {"ok": ""}}


def _word(found: FleetAnswer, one: ClassAnswer) -> str:
    return _WORDS.get(found.verb, {}).get(one.status, one.status)


def _more(page: Page, count: int, *, verbose: bool) -> None:
    if count > _FEW and not verbose:
        page.say(f"and {count - _FEW} more: -v")


def _class_text(page: Page, one: ClassAnswer, *, verbose: bool) -> None:
    """What is said of one class: its lock, plan or verdict, and in what its hosts differ."""
    lines = [f"lock {one.lock}: {one.message}" if one.lock and one.message else one.message or (one.lock and f"lock {one.lock}") or ""]
    if one.plan is not None:
        lines.append(verdict(one.plan).strip())
        conflict = one.plan.conflict
        lines += [f"{way.change}: {way.result}" for way in (conflict.relaxations[:3] if conflict is not None else ())]
    differ: dict[tuple[str, str], list[str]] = {}
    for outcome in one.outcomes:
        differ.setdefault((outcome.status, outcome.detail), []).append(outcome.host)
    lines += [
        f"{ranges(hosts)}: {status}{detail and ': ' + detail}"
        for (status, detail), hosts in list(differ.items())[: None if verbose else _FEW]
    ]
    spreads = one.group.spreads if verbose else one.group.spreads[:_SPREADS]
    lines += [f"hosts differ in {row.fact}: {_values(row)}" for row in spreads]
    if len(spreads) < len(one.group.spreads):
        lines.append(f"and in {len(one.group.spreads) - len(spreads)} facts more: -v")
    if any(lines):
        page.title(one.group.name)
        for line in filter(None, lines):
            page.say(line)


_SPREADS = 5
"""Facts in which hosts of one class differ, and that are shown unless more is asked for."""


def _values(row: Spread) -> str:
    texts = [f"{value} on {ranges(hosts)}" for value, hosts in list(row.values.items())[:_SPREADS]]
    more = len(row.values) - len(texts)
    return "; ".join(texts) + (f"; and {more} values more" if more else "")
