"""What is done on the hosts of an inventory: environments with a canary first, validations, the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, InputError, UsageError
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Outcome, Status
from cudnn_resolve.host import disk
from cudnn_resolve.host.bundle import is_bundle
from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.host.playbook import HostAnswer, Play, run_play
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read
from cudnn_resolve.locking.select import select
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_bundles import bundle_of, in_use, lock_for, lock_request
from cudnn_resolve.operations.fleet_facts import FleetResult, classes_of
from cudnn_resolve.operations.listener import SILENT, WAITING, Listener
from cudnn_resolve.operations.options import FleetRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.requirement.machine import machine_of

GOOD = frozenset({"changed", "nothing to do", "passed", "skipped", "no finding"})
"""What is said of a host on which nothing is wrong."""


def work(request: FleetRequest, listener: Listener) -> FleetResult:
    """What became of each host of an inventory; what cannot be carried out is refused before any host is asked."""
    if not request.inventory:
        hint = "-i INVENTORY names the hosts; facts in a folder are no hosts"
        raise UsageError(f"fleet {request.verb} works on hosts, and none is named", code="usage-argument", hint=hint)
    if request.verb != "validate":
        _environment(request)
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
    """The environments of the hosts as the locks want them: first on one host of each class, then on the others of those that came well."""
    path = _environment(request)
    locks, answers = {}, {}
    for one in classes:
        try:
            locks[one.name] = bundle_of(_lock(one, request, book), one.facts, listener, whole=request.fetch != "host", asked=request)
        except InputError:  # noqa: PERF203 - a file that cannot be read is no matter of a class
            raise
        except CudnnResolveError as error:
            answers[one.name] = ClassAnswer(group=one, status="no", message=error.message)
    ready = [one for one in classes if one.name in locks]
    words = {"path": path, "bundle": "{{ cudnn_resolve_bundles[inventory_hostname] }}", **_said(request)}
    bundles = {host: locks[one.name] for one in ready for host in one.hosts}
    play = Play(module="cudnn_env", words=words, variables={"cudnn_resolve_bundles": bundles})
    _groups(ready, listener)
    told = _on({one.hosts[0]: one.name for one in ready}, play, request, listener)
    good = [one for one in ready if told.get(one.hosts[0], _NOTHING).status in GOOD]
    rest = {host: one.name for one in good for host in one.hosts[1:]}
    told |= _on(rest, replace(play, serial=request.serial, max_fail=request.max_fail), request, listener)
    for one in ready:
        canary = told.get(one.hosts[0], _NOTHING)
        why = "its batch was not begun, too many had failed" if one in good else f"left as it is: the canary {one.hosts[0]} {canary.status}"
        outcomes = tuple(told.get(host) or Outcome(host=host, status="left", detail=why) for host in one.hosts)
        answers[one.name] = _answer(one, outcomes)
    return tuple(answers[one.name] for one in classes)


def undo(classes: Sequence[FleetClass], request: FleetRequest, listener: Listener = SILENT) -> tuple[ClassAnswer, ...]:
    """What was there before the last change, on each host."""
    words = {"path": _environment(request), "state": "previous", "replace": request.replace}
    return _everywhere(classes, Play(module="cudnn_env", words=words, serial=request.serial, max_fail=request.max_fail), request, listener)


def validate(classes: Sequence[FleetClass], request: FleetRequest, listener: Listener = SILENT) -> tuple[ClassAnswer, ...]:
    """The checks of an environment on each host."""
    words: dict[str, Any] = _python(request) if request.python or not request.env else {"python": request.env}
    if request.framework:
        words["frameworks"] = list(request.framework)
    return _everywhere(classes, Play(module="cudnn_validate", words=words, serial=request.serial), request, listener)


def _everywhere(classes: Sequence[FleetClass], play: Play, request: FleetRequest, listener: Listener) -> tuple[ClassAnswer, ...]:
    told = _on(_groups(classes, listener), play, request, listener)
    left = Outcome(host="", status="left", detail="its batch was not begun, too many had failed")
    return tuple(_answer(one, tuple(told.get(host) or replace(left, host=host) for host in one.hosts)) for one in classes)


def _answer(group: FleetClass, outcomes: tuple[Outcome, ...]) -> ClassAnswer:
    wrong = [one for one in outcomes if one.status not in GOOD]
    status: Status = "failed" if wrong else "ok"
    if not wrong and all(one.status == "nothing to do" for one in outcomes):
        message = "nothing to do"
    else:
        counts: dict[str, int] = {}
        for one in outcomes:
            counts[one.status] = counts.get(one.status, 0) + 1
        message = ", ".join(f"{count} {name}" for name, count in counts.items())
    return ClassAnswer(group=group, status=status, message=message, outcomes=outcomes)


_NOTHING = Outcome(host="", status="left")


def _groups(classes: Sequence[FleetClass], listener: Listener) -> dict[str, str]:
    """The class of each host, all of which are waited for."""
    found = {host: one.name for one in classes for host in one.hosts}
    listener.tell("working on the hosts")
    for host, of in found.items():
        listener.state(host, WAITING, of)
    return found


def _on(hosts: Mapping[str, str], play: Play, request: FleetRequest, listener: Listener) -> dict[str, Outcome]:
    """What became of a play on those hosts, each with its class."""
    told: dict[str, Outcome] = {}
    if not hosts:
        return told

    def hear(answer: HostAnswer) -> None:
        told[answer.host] = outcome_of(answer)
        listener.state(answer.host, told[answer.host].status, hosts.get(answer.host, ""))

    run_play(replace(play, hosts=tuple(hosts)), request.inventory, request.limit, hear)
    return told


def outcome_of(answer: HostAnswer) -> Outcome:
    """The answer of a host in words."""
    if answer.state != "ok":
        status = "put back" if answer.result.get("reverted") else "unreachable" if answer.state == "unreachable" else "failed"
        return Outcome(host=answer.host, status=status, detail=answer.message)
    told = answer.result.get("status")
    said = answer.result.get("said") or ()
    status = str(told) if told is not None else "changed" if answer.result.get("changed") else "nothing to do"
    return Outcome(host=answer.host, status=status, detail="; ".join(map(str, said)))


def _python(request: FleetRequest) -> dict[str, Any]:
    return {"python": request.python} if request.python else {}


def _said(request: FleetRequest) -> dict[str, Any]:
    return {**_python(request), **({"replace": True} if request.replace else {}), **({"fetch": "host"} if request.fetch == "host" else {})}


def _environment(request: FleetRequest) -> str:
    """The path of the environment on the hosts; UsageError where none is named."""
    if request.env is None or not request.env.startswith(("/", "~/")):
        hint = "--env /opt/dl names it; hosts of which some have it and some do not are brought to the same state"
        raise UsageError("the environment on the hosts is not named by its full path", code="usage-path", hint=hint)
    return request.env


def _lock(group: FleetClass, request: FleetRequest, book: Book) -> str:
    """The lock for a class: of those that are named the one that fits it, or what is resolved for it."""
    named: list[str] = []
    for one in request.packages:
        if is_bundle(one) or one.endswith(".toml"):
            named.append(one)
        elif disk.is_folder(one):
            named += [f"{one}/{name}" for name in disk.names_in(one) if name.endswith(".toml")]
    if not named:
        return lock_for(lock_request(request, group.facts, "-"))
    why: list[str] = []
    for path in named:
        misfits = _misfits(path, group, book)
        if not misfits:
            return path
        why += [f"{path}: {misfits[0]}"]
    raise UsageError(
        f"no lock fits the class {group.name}: {'; '.join(why[:3])}", code="lock-unfit", hint="`fleet lock` writes one for each class"
    )


def _misfits(path: str, group: FleetClass, book: Book) -> Sequence[str]:
    """Why a lock is not for a class."""
    if is_bundle(path):
        names = [one for one in disk.names_in(path) if one.startswith("pylock") and one.endswith(".toml")]
        path = f"{path}/{names[0]}" if names else path
    lock = read(read_bounded(path, LIMIT_BYTES, "lock"), path)
    machine = replace(machine_of(group.facts, book), python=None, python_full=None)  # the lock's own Python is chosen on the host
    return [f"{one.what}: the lock has {one.locked}, and here is {one.now}" for one in select(lock, machine).differences]
