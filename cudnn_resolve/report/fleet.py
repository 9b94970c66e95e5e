"""Render an answer for many machines as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from cudnn_resolve.facts.codec import encode as encode_facts
from cudnn_resolve.fleet.host_names import ranges
from cudnn_resolve.fleet.model import Change, ClassAnswer, FleetAnswer, HostFault, OneLock, Outcome, Spread, Status
from cudnn_resolve.report.document import FACTS, PLAN_OBJECT, VerdictDocument, document, encode_plan, from_value
from cudnn_resolve.report.plan import verdict
from cudnn_resolve.report.text import Page

_MOST_ROWS = 20
"""Rows of one kind to show, unless verbose."""
_MOST_SPREADS = 5
"""Facts in which the hosts of a class differ, and values of one such fact, to show unless verbose."""
_STATUS_TEXT = {"check": {"ok": "runs", "no": "breaks", "unknown": "not known"}, "detect": {"ok": ""}}
"""Verb to the words for its statuses."""


class ClassDocument(Struct, frozen=True, kw_only=True):
    """One class of hosts, and the answer for it."""

    name: str
    hosts: tuple[str, ...]
    about: dict[str, str]
    """The facts that define the class, as text."""
    status: Status
    message: str
    facts: FACTS
    """Those of the host that stands for the class."""
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
    """Hosts that were named, including those that did not answer."""
    classes: tuple[ClassDocument, ...]
    faults: tuple[HostFault, ...]
    """Hosts that could not be asked, or whose facts cannot be read."""
    one_lock: OneLock | UnsetType = UNSET
    changes: tuple[Change, ...] | UnsetType = UNSET
    """Changes since the run that `--since` names."""
    notes: tuple[str, ...]


def encode(answer: FleetAnswer) -> dict[str, Any]:
    """Encode the answer as an object for `json.dumps`."""
    one, changes = (UNSET if part is None else part for part in (answer.one, answer.changes))
    return document(FleetDocument, answer, classes=tuple(map(_class_document, answer.classes)), one_lock=one, changes=changes)


def _class_document(answer: ClassAnswer) -> ClassDocument:
    group = answer.group
    facts = encode_facts(group.facts)
    return ClassDocument(
        name=group.name,
        hosts=group.hosts,
        about=dict(group.about),
        status=answer.status,
        message=answer.message,
        facts=facts,
        differences=group.spreads,
        plan=None if answer.plan is None else encode_plan(answer.plan, facts, command=None, ranges=answer.ranges),
        lock=answer.lock,
        verdicts=tuple(from_value(VerdictDocument, each) for each in answer.verdicts) or UNSET,
        outcomes=answer.outcomes or UNSET,
    )


def show_answer(page: Page, answer: FleetAnswer, *, verbose: bool = False) -> None:
    """Show a table of the classes, then the details of each, changes, and hosts that did not answer."""
    names = tuple(dict.fromkeys(name for one in answer.classes for name in one.group.about))
    rows = (
        (
            one.group.name,
            _STATUS_TEXT.get(answer.verb, {}).get(one.status, one.status),
            str(len(one.group.hosts)),
            *(one.group.about.get(name, "") for name in names),
            ranges(one.group.hosts),
        )
        for one in answer.classes
    )
    page.table(("class", "", "hosts", *names, "names"), rows, droppable=("platform", "glibc", "python"))
    if answer.one is not None:
        page.title(f"one lock: {answer.one.path}" if answer.one.path is not None else "one lock: none fits every host")
        page.paragraph(answer.one.message)
        for way in answer.one.ways:
            page.paragraph(f"{way.change}: {way.result}", first="  - ")
    for one in answer.classes:
        lines = [line for line in _class_lines(one, verbose=verbose) if line]
        if lines:
            page.title(one.group.name)
            for line in lines:
                page.paragraph(line)
    if answer.changes is not None:
        changes = [(one.fact, f"{one.before} -> {one.now}", ranges(one.hosts)) for one in answer.changes]
        _first_rows(page, "changed since then" if changes else "nothing changed since then", changes, verbose=verbose)
    if answer.faults:
        faults = [(fault.host, " ".join(fault.why.split())) for fault in answer.faults]
        _first_rows(page, "hosts without facts", faults, verbose=verbose)
    for note in answer.notes:
        page.paragraph(note, first="note: ")


def _first_rows(page: Page, title: str, rows: Sequence[Sequence[str]], *, verbose: bool) -> None:
    page.title(title)
    page.rows(rows if verbose else rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS and not verbose:
        page.paragraph(f"and {len(rows) - _MOST_ROWS} more (-v shows them)")


def _class_lines(answer: ClassAnswer, *, verbose: bool) -> Iterator[str]:
    """The lock, plan or outcomes of one class, and the facts in which its hosts differ."""
    yield ": ".join(filter(None, (f"lock {answer.lock}" if answer.lock else "", answer.message)))
    if answer.plan is not None:
        yield verdict(answer.plan).strip()
        if answer.plan.conflict is not None:
            yield from (f"{way.change}: {way.result}" for way in answer.plan.conflict.relaxations[:3])
    hosts_by_outcome: dict[tuple[str, str], list[str]] = {}
    for outcome in answer.outcomes:
        hosts_by_outcome.setdefault((outcome.status, outcome.detail), []).append(outcome.host)
    for (status, detail), hosts in list(hosts_by_outcome.items())[: None if verbose else _MOST_ROWS]:
        yield f"{ranges(hosts)}: {status}{detail and ': ' + detail}"
    spreads = answer.group.spreads
    shown = spreads if verbose else spreads[:_MOST_SPREADS]
    yield from (f"hosts differ in {spread.fact}: {_values(spread)}" for spread in shown)
    if len(shown) < len(spreads):
        yield f"and in {len(spreads) - len(shown)} more facts (-v shows them)"


def _values(spread: Spread) -> str:
    texts = [f"{value} on {ranges(hosts)}" for value, hosts in list(spread.values.items())[:_MOST_SPREADS]]
    more = len(spread.values) - len(texts)
    return "; ".join(texts) + (f"; and {more} more values" if more else "")
