"""`fleet VERB`: run a verb for many machines, class by class."""

from __future__ import annotations

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Status
from cudnn_resolve.listener import Listener
from cudnn_resolve.operations.fleet_classes import FleetResult, announce, answer_by_class, classes_of, error_answer, notes_of
from cudnn_resolve.operations.options import DoctorRequest, FleetRequest
from cudnn_resolve.operations.question import gather_book


def fleet(request: FleetRequest, listener: Listener) -> FleetResult:
    """Run the verb of the request."""
    if request.verb == "detect":
        return detect(request, listener)
    if request.verb == "plan":
        return plan(request, listener)
    if request.verb == "lock":
        from cudnn_resolve.operations.fleet_lock import lock

        return lock(request, listener)
    if request.verb == "check":
        from cudnn_resolve.operations.fleet_lock import check

        return check(request, listener)
    if request.verb == "doctor":
        return doctor(request, listener)
    from cudnn_resolve.operations.fleet_work import work

    return work(request, listener)


def detect(request: FleetRequest, listener: Listener) -> FleetResult:
    """Classes of the hosts, with their facts."""
    classes, faults = classes_of(request, gather_book(request), listener)
    return FleetResult(verb=request.verb, classes=tuple(ClassAnswer(group=group) for group in classes), faults=faults)


def plan(request: FleetRequest, listener: Listener) -> FleetResult:
    """A plan for each class."""
    classes, faults = classes_of(request, gather_book(request), listener)
    answers = answer_by_class(_plan_class, classes, request, listener)
    return FleetResult(verb=request.verb, classes=answers, faults=faults, notes=notes_of(answers))


def _plan_class(task: tuple[FleetClass, FleetRequest]) -> ClassAnswer:
    from cudnn_resolve.operations.plan import plan_targets, ranges_of

    group, request = task
    try:
        planned = plan_targets(request, facts=group.facts)
    except (InputError, WorldError) as error:
        return error_answer(group, error)
    status: Status = "ok" if planned.plan.is_satisfiable else "no"
    ranges = ranges_of(planned.question, planned.outcome)
    return ClassAnswer(group=group, status=status, plan=planned.plan, ranges=ranges, notes=planned.plan.notes)


def doctor(request: FleetRequest, listener: Listener) -> FleetResult:
    """Findings for each class, from its facts."""
    from cudnn_resolve.operations.doctor import diagnose

    classes, faults = classes_of(request, gather_book(request), listener)
    answers = []
    announce(classes, listener)
    for group in classes:
        findings = diagnose(DoctorRequest(given=group.facts, framework=request.framework, matrix=request.matrix)).findings
        message = "; ".join(f"{finding.severity}: {finding.summary}" for finding in findings if finding.severity != "info")
        status: Status = "no" if any(finding.severity == "error" for finding in findings) else "ok"
        answers.append(ClassAnswer(group=group, status=status, message=message or "no finding"))
        listener.state(group.name, answers[-1].message)
    return FleetResult(verb=request.verb, classes=tuple(answers), faults=faults)
