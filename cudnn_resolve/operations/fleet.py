"""`fleet VERB`: what is done for many machines, class by class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass
from cudnn_resolve.operations.fleet_hosts import FleetResult, classes_of
from cudnn_resolve.operations.gather import gather_book
from cudnn_resolve.operations.listener import NOBODY, Listener

if TYPE_CHECKING:
    from cudnn_resolve.operations.options import FleetRequest


def fleet(request: FleetRequest, listener: Listener = NOBODY) -> FleetResult:
    """The answer of a verb for many machines."""
    if request.verb == "detect":
        return detect(request, listener)
    if request.verb == "plan":
        return plan(request, listener)
    if request.verb == "lock":
        from cudnn_resolve.operations.fleet_lock import lock

        return lock(request, listener)
    if request.verb == "check":
        from cudnn_resolve.operations.fleet_check import check

        return check(request, listener)
    raise UsageError(f"fleet {request.verb} is not there yet", code="usage-command", hint="there are detect, plan, lock and check")


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
    from cudnn_resolve.operations.plan import answered

    listener.tell(f"plan for {group.name}")
    try:
        found = answered(request, listener, facts=group.facts)
    except InputError as error:
        return ClassAnswer(group=group, status="no", message=str(error))
    return ClassAnswer(group=group, status="ok" if found.plan.is_satisfiable else "no", plan=found.plan)
