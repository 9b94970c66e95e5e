"""`fleet VERB`: run a verb for many machines, class by class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Status
from cudnn_resolve.listener import Listener
from cudnn_resolve.operations.fleet_classes import FleetResult, announce, answer_by_class, classes_of, error_answer, notes_of
from cudnn_resolve.operations.options import DoctorRequest, FleetRequest
from cudnn_resolve.operations.question import gather_book


def fleet(request: FleetRequest, listener: Listener) -> FleetResult:
    """Run the verb of the request."""
    if request.verb in ("lock", "check"):
        from cudnn_resolve.operations.fleet_lock import check, lock

        return (lock if request.verb == "lock" else check)(request, listener)
    if request.verb in ("apply", "undo", "validate"):
        from cudnn_resolve.operations.fleet_work import work

        return work(request, listener)
    classes, faults = classes_of(request, gather_book(request), listener)
    if request.verb == "plan":
        answers = answer_by_class(_plan_class, classes, request, listener)
    elif request.verb == "doctor":
        answers = tuple(_diagnoses(classes, request, listener))
    else:
        answers = tuple(ClassAnswer(group=group) for group in classes)
    return FleetResult(verb=request.verb, classes=answers, faults=faults, notes=notes_of(answers))


def _plan_class(task: tuple[FleetClass, FleetRequest]) -> ClassAnswer:
    """A plan for a class."""
    from cudnn_resolve.operations.plan import plan_targets, ranges_of

    group, request = task
    try:
        planned = plan_targets(request, facts=group.facts)
    except (InputError, WorldError) as error:
        return error_answer(group, error)
    status: Status = "ok" if planned.plan.is_satisfiable else "no"
    ranges = ranges_of(planned.question, planned.outcome)
    return ClassAnswer(group=group, status=status, plan=planned.plan, ranges=ranges, notes=planned.plan.notes)


def _diagnoses(classes: Sequence[FleetClass], request: FleetRequest, listener: Listener) -> Iterator[ClassAnswer]:
    """Findings for each class, from its facts."""
    from cudnn_resolve.operations.doctor import diagnose

    announce(classes, listener)
    for group in classes:
        findings = diagnose(DoctorRequest(given=group.facts, framework=request.framework, matrix=request.matrix)).findings
        message = "; ".join(f"{finding.severity}: {finding.summary}" for finding in findings if finding.severity != "info") or "no finding"
        status: Status = "no" if any(finding.severity == "error" for finding in findings) else "ok"
        listener.state(group.name, message)
        yield ClassAnswer(group=group, status=status, message=message)
