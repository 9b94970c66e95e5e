"""`fleet VERB`: what is done for many machines, class by class."""

from __future__ import annotations

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Status
from cudnn_resolve.operations.fleet_facts import FleetResult, announce, by_class, classes_of, notes_of, refused
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.options import DoctorRequest, FleetRequest
from cudnn_resolve.operations.question import gather_book


def fleet(request: FleetRequest, listener: Listener = SILENT) -> FleetResult:
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
    if request.verb == "doctor":
        return doctor(request, listener)
    from cudnn_resolve.operations.fleet_work import work

    return work(request, listener)


def detect(request: FleetRequest, listener: Listener) -> FleetResult:
    """The classes of the hosts with their facts."""
    classes, faults = classes_of(request, gather_book(request), listener)
    return FleetResult(verb=request.verb, classes=tuple(ClassAnswer(group=one) for one in classes), faults=faults)


def plan(request: FleetRequest, listener: Listener) -> FleetResult:
    """A plan for each class."""
    classes, faults = classes_of(request, gather_book(request), listener)
    answers = by_class(_planned, [(one, request) for one in classes], listener)
    return FleetResult(verb=request.verb, classes=answers, faults=faults, notes=notes_of(answers))


def doctor(request: FleetRequest, listener: Listener) -> FleetResult:
    """What is wrong on the hosts of each class by their facts."""
    from cudnn_resolve.operations.doctor import diagnose

    classes, faults = classes_of(request, gather_book(request), listener)
    answers = []
    announce(classes, listener)
    for one in classes:
        findings = diagnose(DoctorRequest(given=one.facts, framework=request.framework, matrix=request.matrix)).findings
        told = [f"{each.severity}: {each.summary}" for each in findings if each.severity != "info"]
        is_wrong = any(each.severity == "error" for each in findings)
        answers.append(ClassAnswer(group=one, status="no" if is_wrong else "ok", message="; ".join(told) or "no finding"))
        listener.state(one.name, answers[-1].message)
    return FleetResult(verb=request.verb, classes=tuple(answers), faults=faults)


def _planned(task: tuple[FleetClass, FleetRequest]) -> ClassAnswer:
    from cudnn_resolve.operations.plan import plan_targets, ranges_of

    group, request = task
    try:
        found = plan_targets(request, facts=group.facts)
    except (InputError, WorldError) as error:
        return refused(group, error)
    ranges = ranges_of(found.question, found.outcome) if request.ranges else ()
    status: Status = "ok" if found.plan.is_satisfiable else "no"
    return ClassAnswer(group=group, status=status, plan=found.plan, ranges=ranges, notes=found.plan.notes)
