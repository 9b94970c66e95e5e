"""Hosts grouped into classes, and an answer for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any

from cudnn_resolve.errors import CudnnResolveError, InputError, WorldError
from cudnn_resolve.fleet.classes import Classes
from cudnn_resolve.fleet.model import ClassAnswer, FleetAnswer, FleetClass, HostFault
from cudnn_resolve.host.pool import spread
from cudnn_resolve.listener import WAITING, Listener
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_facts import hosts
from cudnn_resolve.operations.machine_facts import refuse_other_systems
from cudnn_resolve.operations.options import FleetRequest
from cudnn_resolve.operations.question import share
from cudnn_resolve.operations.results import Result

_WITH_PACKAGES = ("plan", "doctor")
"""Verbs that depend on installed packages."""
_PARALLEL_CLASSES = 4
"""Number of classes from which child processes pay off."""


class FleetResult(FleetAnswer, Result, frozen=True, kw_only=True):
    """Result of `fleet`: an answer for each class of hosts."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `fleet VERB --format json`."""
        from cudnn_resolve.report.fleet import encode

        return encode(self)


def classes_of(request: FleetRequest, book: Book, listener: Listener) -> tuple[tuple[FleetClass, ...], tuple[HostFault, ...]]:
    """Group the hosts into classes; also returns hosts without usable facts, and raises an error if none has any."""
    classes = Classes(book, whole=request.verb in _WITH_PACKAGES, policy=request.driver_policy, diagnosed=request.verb == "doctor")
    faults = []
    for number, report in enumerate(hosts(request, book, listener), start=1):
        if number % 500 == 0:
            listener.tell(f"facts of {number} hosts")
        if isinstance(report, HostFault):
            faults.append(report)
            continue
        try:
            refuse_other_systems(report.facts)
            classes.add(report.host, report.facts)
        except CudnnResolveError as error:
            faults.append(HostFault(host=report.host, why=str(error)))
    groups = classes.build()
    if not groups and faults:
        kind = WorldError if request.inventory else InputError
        raise kind(f"none of {len(faults)} hosts has usable facts; {faults[0].host}: {faults[0].why}", code="facts-empty")
    return groups, tuple(faults)


def answer_by_class(
    answer: Callable[[tuple[FleetClass, FleetRequest]], ClassAnswer],
    classes: Sequence[FleetClass],
    request: FleetRequest,
    listener: Listener,
) -> tuple[ClassAnswer, ...]:
    """An answer for each class; several are computed in child processes, one per processor."""
    answers: dict[str, ClassAnswer] = {}
    announce(classes, listener)
    context = copy_context()
    context.run(share)
    tasks = [(group, request) for group in classes]
    in_process = ((task, context.run(answer, task)) for task in tasks)
    for (group, _), found in spread(answer, tasks, share) if len(tasks) >= _PARALLEL_CLASSES else in_process:
        answers[group.name] = found
        listener.state(group.name, found.status)
    return tuple(answers[group.name] for group in classes)


def error_answer(group: FleetClass, error: InputError | WorldError) -> ClassAnswer:
    """Answer for a class with an error, which does not affect the others."""
    message = "; ".join(map(str.strip, str(error).splitlines()))
    return ClassAnswer(group=group, status="failed" if isinstance(error, WorldError) else "no", message=message)


def notes_of(answers: Iterable[ClassAnswer]) -> tuple[str, ...]:
    """Notes of all classes, each once."""
    return tuple(sorted({note for answer in answers for note in answer.notes}))


def announce(classes: Iterable[FleetClass], listener: Listener) -> None:
    """Report the classes as waiting."""
    listener.tell("working on the classes")
    for group in classes:
        listener.state(group.name, WAITING)
