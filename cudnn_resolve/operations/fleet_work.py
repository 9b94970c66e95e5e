"""Verbs that work on the hosts of an inventory: apply (with canaries), undo and validate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, InputError, UsageError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Outcome, Status
from cudnn_resolve.host import disk
from cudnn_resolve.host.bundle import is_bundle
from cudnn_resolve.host.playbook import HostAnswer, Play, run_play
from cudnn_resolve.listener import SILENT, WAITING, Listener
from cudnn_resolve.locking.select import select
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_bundles import bundle_of, in_use, lock_for, lock_request
from cudnn_resolve.operations.fleet_classes import FleetResult, classes_of
from cudnn_resolve.operations.lock_file import read_lock
from cudnn_resolve.operations.options import FleetRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.requirement.machine import machine_of

GOOD = frozenset({"changed", "nothing to do", "passed", "skipped", "no finding"})
"""Statuses of hosts without a problem."""
_NO_OUTCOME = Outcome(host="", status="left")
_SKIPPED_BATCH = "its batch was skipped, since too many hosts had failed"


def work(request: FleetRequest, listener: Listener) -> FleetResult:
    """Run the verb on each host; invalid requests are rejected before any host is contacted."""
    if not request.inventory:
        hint = "-i INVENTORY names the hosts; facts in a folder are not enough"
        raise UsageError(f"fleet {request.verb} works on hosts, and none is named", code="usage-argument", hint=hint)
    if request.verb != "validate":
        _environment_path(request)
    if request.verb == "apply" and not (request.framework or request.packages):
        raise UsageError("neither a lock nor a target is named", code="usage-argument", hint="`fleet lock` writes the locks")
    book = gather_book(request)
    classes, faults = classes_of(request, book, listener)
    if request.verb == "apply":
        with in_use():
            answers = apply(classes, request, book, listener)
    else:
        answers = undo(classes, request, listener) if request.verb == "undo" else validate(classes, request, listener)
    return FleetResult(verb=request.verb, classes=answers, faults=faults)


def apply(classes: Sequence[FleetClass], request: FleetRequest, book: Book, listener: Listener = SILENT) -> tuple[ClassAnswer, ...]:
    """Bring the environments to the state of the locks: first on one host of each class, then on the others of successful classes."""
    path = _environment_path(request)
    bundles, answers = {}, {}
    for group in classes:
        try:
            lock = _lock(group, request, book)
            bundles[group.name] = bundle_of(lock, group.facts, listener, whole=request.fetch != "host", options=request)
        except InputError:  # noqa: PERF203 - an unreadable file affects all classes
            raise
        except CudnnResolveError as error:
            answers[group.name] = ClassAnswer(group=group, status="no", message=error.message)
    ready = [group for group in classes if group.name in bundles]
    words = {"path": path, "bundle": "{{ cudnn_resolve_bundles[inventory_hostname] }}", **_module_options(request)}
    by_host = {host: bundles[group.name] for group in ready for host in group.hosts}
    play = Play(module="cudnn_env", words=words, variables={"cudnn_resolve_bundles": by_host})
    _announce_hosts(ready, listener)
    outcomes = _run({group.hosts[0]: group.name for group in ready}, play, request, listener)
    successful = [group for group in ready if outcomes.get(group.hosts[0], _NO_OUTCOME).status in GOOD]
    others = {host: group.name for group in successful for host in group.hosts[1:]}
    outcomes |= _run(others, replace(play, serial=request.serial, max_fail=request.max_fail), request, listener)
    for group in ready:
        canary = outcomes.get(group.hosts[0], _NO_OUTCOME)
        why = _SKIPPED_BATCH if group in successful else f"unchanged: the canary {group.hosts[0]} {canary.status}"
        answers[group.name] = _answer(group, outcomes, why)
    return tuple(answers[group.name] for group in classes)


def undo(classes: Sequence[FleetClass], request: FleetRequest, listener: Listener) -> tuple[ClassAnswer, ...]:
    """Undo the last change on each host."""
    words = {"path": _environment_path(request), "state": "previous", "replace": request.replace}
    play = Play(module="cudnn_env", words=words, serial=request.serial, max_fail=request.max_fail)
    return _run_on_all(classes, play, request, listener)


def validate(classes: Sequence[FleetClass], request: FleetRequest, listener: Listener) -> tuple[ClassAnswer, ...]:
    """Validate an environment on each host."""
    python = request.python or request.env
    words: dict[str, Any] = {"python": python} if python else {}
    if request.framework:
        words["frameworks"] = list(request.framework)
    return _run_on_all(classes, Play(module="cudnn_validate", words=words, serial=request.serial), request, listener)


def _run_on_all(classes: Sequence[FleetClass], play: Play, request: FleetRequest, listener: Listener) -> tuple[ClassAnswer, ...]:
    outcomes = _run(_announce_hosts(classes, listener), play, request, listener)
    return tuple(_answer(group, outcomes, _SKIPPED_BATCH) for group in classes)


def _answer(group: FleetClass, results: Mapping[str, Outcome], why: str) -> ClassAnswer:
    """The answer for a class; `why` hosts without an outcome were left as they are."""
    outcomes = tuple(results.get(host) or Outcome(host=host, status="left", detail=why) for host in group.hosts)
    status: Status = "ok" if all(outcome.status in GOOD for outcome in outcomes) else "failed"
    counts = Counter(outcome.status for outcome in outcomes)
    is_unchanged = list(counts) == ["nothing to do"]
    message = "nothing to do" if is_unchanged else ", ".join(f"{count} {name}" for name, count in counts.items())
    return ClassAnswer(group=group, status=status, message=message, outcomes=outcomes)


def _announce_hosts(classes: Sequence[FleetClass], listener: Listener) -> dict[str, str]:
    """Report the hosts as waiting; returns the class of each."""
    class_of = {host: group.name for group in classes for host in group.hosts}
    listener.tell("working on the hosts")
    for host, name in class_of.items():
        listener.state(host, WAITING, name)
    return class_of


def _run(class_of: Mapping[str, str], play: Play, request: FleetRequest, listener: Listener) -> dict[str, Outcome]:
    """Run a play on hosts, given with their classes."""
    outcomes: dict[str, Outcome] = {}
    if not class_of:
        return outcomes

    def on_answer(answer: HostAnswer) -> None:
        outcomes[answer.host] = outcome_of(answer)
        listener.state(answer.host, outcomes[answer.host].status, class_of.get(answer.host, ""))

    run_play(replace(play, hosts=tuple(class_of)), request.inventory, request.limit, on_answer)
    return outcomes


def outcome_of(answer: HostAnswer) -> Outcome:
    """Outcome from the answer of a host."""
    if answer.state != "ok":
        status = "put back" if answer.result.get("reverted") else "unreachable" if answer.state == "unreachable" else "failed"
        return Outcome(host=answer.host, status=status, detail=answer.message)
    default = "changed" if answer.result.get("changed") else "nothing to do"
    stated = answer.result.get("status")
    status = default if stated is None else str(stated)
    notes = answer.result.get("said") or ()
    return Outcome(host=answer.host, status=status, detail="; ".join(map(str, notes)))


def _module_options(request: FleetRequest) -> dict[str, Any]:
    """Options of the module that were given."""
    options: dict[str, Any] = {"python": request.python} if request.python else {}
    if request.replace:
        options["replace"] = True
    if request.fetch == "host":
        options["fetch"] = "host"
    return options


def _environment_path(request: FleetRequest) -> str:
    """Path of the environment on the hosts; UsageError without a full path."""
    if request.env is None or not request.env.startswith(("/", "~/")):
        hint = "name it, such as --env /opt/dl; hosts without it get it"
        raise UsageError("the environment on the hosts needs a full path", code="usage-path", hint=hint)
    return request.env


def _lock(group: FleetClass, request: FleetRequest, book: Book) -> str:
    """The lock for a class: the named one that fits, or a new one for the targets."""
    paths: list[str] = []
    for word in request.packages:
        if is_bundle(word) or word.endswith(".toml"):
            paths.append(word)
        elif disk.is_folder(word):
            paths += [f"{word}/{name}" for name in disk.names_in(word) if name.endswith(".toml")]
    if not paths:
        return lock_for(lock_request(request, group.facts, "-"))
    reasons: list[str] = []
    for path in paths:
        misfits = _misfits(path, group, book)
        if not misfits:
            return path
        reasons.append(f"{path}: {misfits[0]}")
    raise UsageError(
        f"no lock fits the class {group.name}: {'; '.join(reasons[:3])}", code="lock-unfit", hint="`fleet lock` writes one for each class"
    )


def _misfits(path: str, group: FleetClass, book: Book) -> Sequence[str]:
    """Why a lock does not fit a class."""
    if is_bundle(path):
        names = [name for name in disk.names_in(path) if name.startswith("pylock") and name.endswith(".toml")]
        path = f"{path}/{names[0]}" if names else path
    machine = replace(machine_of(group.facts, book), python=None, python_full=None)  # the host uses the lock's own Python
    misfits = select(read_lock(path), machine).differences
    return [f"{misfit.what}: the lock has {misfit.locked}, and here is {misfit.now}" for misfit in misfits]
