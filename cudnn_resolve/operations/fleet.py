"""`fleet VERB`: what is done for many machines, class by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import CudnnResolveError, InputError, UsageError
from cudnn_resolve.fleet.classes import Classes
from cudnn_resolve.fleet.model import ClassAnswer, FleetAnswer, FleetClass, HostFault
from cudnn_resolve.operations.fleet_hosts import hosts
from cudnn_resolve.operations.gather import gather_book, refuse_other_systems
from cudnn_resolve.operations.listener import NOBODY, Listener
from cudnn_resolve.operations.plan import answered
from cudnn_resolve.operations.results import Result

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.operations.options import FleetRequest

_WHOLE = ("plan", "apply")
"""Verbs for which counts what is installed."""


class FleetResult(FleetAnswer, Result, frozen=True, kw_only=True):
    """What `fleet` returns: an answer for each class of hosts."""

    def to_json(self) -> dict[str, Any]:
        """The object that `fleet VERB --format json` prints."""
        from cudnn_resolve.report.fleet import encode

        return encode(self)


def fleet(request: FleetRequest, listener: Listener = NOBODY) -> FleetResult:
    """The answer of a verb for many machines."""
    verbs = {"detect": detect, "plan": plan}
    if request.verb not in verbs:
        raise UsageError(f"fleet {request.verb} is not there yet", code="usage-command", hint=f"there are {', '.join(verbs)}")
    return verbs[request.verb](request, listener)


def classes_of(request: FleetRequest, book: Book, listener: Listener = NOBODY) -> tuple[tuple[FleetClass, ...], tuple[HostFault, ...]]:
    """The hosts in their classes, and those of which nothing is known; InputError where that is all of them."""
    found = Classes(book, whole=request.verb in _WHOLE, policy=request.driver_policy)
    faults = []
    for number, one in enumerate(hosts(request, book), start=1):
        if number % 500 == 0:
            listener.tell(f"facts of {number} hosts")
        try:
            if one.facts is not None:
                refuse_other_systems(one.facts)
                found.add(one.name, one.facts)
        except CudnnResolveError as error:
            faults.append(HostFault(host=one.name, why=str(error)))
        if one.fault is not None:
            faults.append(HostFault(host=one.name, why=one.fault))
    made = found.made()
    if not made and faults:
        first = faults[0]
        raise InputError(f"none of {len(faults)} hosts says what it is; {first.host}: {first.why}", code="facts-empty")
    return made, tuple(faults)


def detect(request: FleetRequest, listener: Listener = NOBODY) -> FleetResult:
    """The classes of the hosts with their facts."""
    classes, faults = classes_of(request, gather_book(request), listener)
    return FleetResult(verb=request.verb, classes=tuple(ClassAnswer(group=one) for one in classes), faults=faults)


def plan(request: FleetRequest, listener: Listener = NOBODY) -> FleetResult:
    """A plan for each class."""
    classes, faults = classes_of(request, gather_book(request), listener)
    answers = tuple(_planned(one, request, listener) for one in classes)
    return FleetResult(verb=request.verb, classes=answers, faults=faults)


def _planned(group: FleetClass, request: FleetRequest, listener: Listener) -> ClassAnswer:
    listener.tell(f"plan for {group.name}")
    try:
        found = answered(request, listener, facts=group.facts)
    except InputError as error:
        return ClassAnswer(group=group, status="no", message=str(error))
    return ClassAnswer(group=group, status="ok" if found.plan.is_satisfiable else "no", plan=found.plan)
