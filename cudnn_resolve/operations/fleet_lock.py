"""`fleet lock`: a lock for each class of hosts, or one that fits every host."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, WorldError
from cudnn_resolve.facts.model import Driver, Facts, or_none
from cudnn_resolve.fleet.classes import in_order, ranges
from cudnn_resolve.fleet.joint import joint, left_out, python_of
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, OneLock, Status, WayOut
from cudnn_resolve.host import disk
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import machine_differences
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_bundles import lock_request
from cudnn_resolve.operations.fleet_facts import FleetResult, by_class, classes_of, notes_of, refused
from cudnn_resolve.operations.listener import Listener, Notes
from cudnn_resolve.operations.lock import LockResult, make_lock
from cudnn_resolve.operations.options import LOCK, FleetRequest
from cudnn_resolve.operations.plan import verdict_of_lock
from cudnn_resolve.operations.question import gather_book, gather_question
from cudnn_resolve.operations.verdict import machine_name
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.other_driver import first_that_works
from cudnn_resolve.resolution.proposal import result
from cudnn_resolve.resolution.resolve import resolved
from cudnn_resolve.version import DriverVersion

_MOST_SOLVES = 150
"""Resolutions that are made to find the fewest hosts that stand in the way."""


def lock(request: FleetRequest, listener: Listener) -> FleetResult:
    """A lock for each class, in the folder of `-o`; with `one_lock` a single one."""
    book = gather_book(request)
    classes, faults = classes_of(request, book, listener)
    if request.one_lock:
        return replace(_one(request, classes, book, listener), faults=faults)
    folder = request.output or "."
    if not disk.is_folder(folder):
        if not disk.is_missing(folder):
            hint = "-o FOLDER takes one for each class; --one-lock -o FILE is a single one"
            raise UsageError(f"-o {folder} is no folder", code="usage-path", hint=hint)
        disk.make_folder(folder)
    answers = by_class(_locked, [(one, replace(request, output=folder)) for one in classes], listener)
    return FleetResult(verb=request.verb, classes=answers, faults=faults, notes=notes_of(answers))


def lock_name(one: FleetClass) -> str:
    """The file of the lock of a class, as pip and uv take it for one."""
    return f"pylock.{one.name}.toml"


def _locked(task: tuple[FleetClass, FleetRequest]) -> ClassAnswer:
    one, request = task
    path = os.path.join(request.output or ".", lock_name(one))
    notes = Notes()
    try:
        made = make_lock(lock_request(request, one.facts, path), notes)
    except (InputError, WorldError) as error:
        return refused(one, error)
    if made.plan is not None:
        return ClassAnswer(group=one, status="no", plan=made.plan, notes=(*notes.texts, *made.plan.notes))
    return ClassAnswer(group=one, lock=path, message=_summary(made), notes=tuple(notes.texts))


def _summary(made: LockResult) -> str:
    """The stacks of a lock in a line."""
    stacks = made.lock.stacks if made.lock is not None else ()
    return "; ".join(
        ", ".join(
            (
                *(f"{one.name} {one.version}" for one in stack.frameworks),
                *(f"{name} {value}" for name, value in (("CUDA", stack.cuda), ("cuDNN", stack.cudnn)) if value),
                *((f"driver {stack.driver_min} or newer",) if stack.driver_min else ()),
            )
        )
        + (f" ({stack.platform})" if len(stacks) > 1 else "")
        for stack in stacks
    )


# ---- one lock for all


def _one(request: FleetRequest, classes: Sequence[FleetClass], book: Book, listener: Listener) -> FleetResult:
    path = request.output or LOCK
    machines = joint(classes, book)
    listener.tell(f"one lock for {len(classes)} classes")
    pythons = sorted({str(python_of(one)) for one in classes if python_of(one) is not None})
    if len(pythons) > 1:
        said = "; ".join(f"{python} on {ranges(_hosts(one for one in classes if python_of(one) == python))}" for python in pythons)
        refused = f"a lock is for one Python, and the hosts have {said}"
    else:
        made = make_lock(lock_request(request, machines[0], path), listener, machines if len(machines) > 1 else ())
        if made.plan is None:
            answers = tuple(judged(one, made.path, made.text, book) for one in classes)  # what `check` says of it on each class
            return FleetResult(verb=request.verb, classes=answers, one=OneLock(path=made.path, message=_summary(made)))
        refused = made.plan.conflict.message if made.plan.conflict is not None else "there is no resolution"
    trials = _Trials(request, classes, book, listener)
    dropped, is_fewest = left_out(classes, trials.fits, trials.allowed)
    ways = (*_without(trials, dropped, is_fewest=is_fewest), *_otherwise(trials))
    blocked = {one.name for one in dropped}
    answers = tuple(
        ClassAnswer(group=one, status="no", message="stands in the way") if one.name in blocked else ClassAnswer(group=one)
        for one in classes
    )
    one_lock = OneLock(message=f"no lock fits every host: {refused}", ways=ways)
    return FleetResult(verb=request.verb, classes=answers, one=one_lock)


def judged(one: FleetClass, path: str, text: str, book: Book) -> ClassAnswer:
    """What `check` says of a lock on the hosts of a class, and whether the lock is for them at all."""
    verdict = replace(verdict_of_lock(path, text, one.facts, book), machine=f"{one.name}: {machine_name(one.facts, None)}")
    differences = "; ".join(
        f"{each.what}: the lock wants {each.locked}, here is {each.now}" for each in machine_differences(read(text, path), one.facts, book)
    )
    errors = (finding.summary for finding in verdict.findings if finding.severity == "error")
    status: Status = "no" if verdict.status == "breaks" or differences else "ok" if verdict.status == "runs" else "unknown"
    message = differences or "; ".join(errors) or ("; ".join(verdict.not_judged[:-1]) if status == "unknown" else "")
    return ClassAnswer(group=one, status=status, lock=path, verdicts=(verdict,), message=message)


class _Trials:
    """Resolutions for some of the classes together, each set of needs tried once."""

    def __init__(self, request: FleetRequest, classes: Sequence[FleetClass], book: Book, listener: Listener) -> None:
        self.classes, self.book, self._listener = classes, book, listener
        first = joint(classes[:1], book)[0]
        self._asked = gather_question(lock_request(request, first, "-"), fresh=True, verb="lock", listener=listener, facts=first)
        self._known: dict[tuple[str, ...], tuple[Resolution, ...] | None] = {}
        self.solves = 0

    def fits(self, classes: Sequence[FleetClass]) -> bool:
        """True where one lock fits all of them."""
        return self.found(classes) is not None

    def allowed(self) -> bool:
        """True while more may be tried."""
        return self.solves < _MOST_SOLVES

    def found(self, classes: Sequence[FleetClass]) -> tuple[Resolution, ...] | None:
        """The resolution for each architecture; None where there is none."""
        if len({python_of(one) for one in classes} - {None}) > 1:
            return None
        machines = joint(classes, self.book)
        key = tuple(map(str, machines))
        if key not in self._known:
            self.solves += 1
            self._listener.tell(f"what stands in the way of one lock: {self.solves}")
            self._known[key] = self._resolved(machines)
        return self._known[key]

    def _resolved(self, machines: Sequence[Facts]) -> tuple[Resolution, ...] | None:
        asked, found = self._asked, []
        for facts in machines:
            one = resolved(asked.book, machine_of(facts, asked.book), asked.request, asked.source)
            if one is None:
                return None
            found.append(one)
        return tuple(found)

    def with_driver(self, driver: DriverVersion) -> Resolution | None:
        """The resolution where no host has an older driver than that one; None where a GPU is too old for it, too."""
        found = self.found([_with_driver(one, driver) for one in self.classes])
        return found[0] if found is not None else None


def _without(trials: _Trials, dropped: Sequence[FleetClass], *, is_fewest: bool) -> Iterator[WayOut]:
    """One lock for all but some classes, and a second one for these where there is one."""
    rest = [one for one in trials.classes if one not in dropped]
    found = trials.found(rest) if rest else None
    if found is None:
        return
    more = "" if is_fewest else " (fewer may do: not every choice was tried)"
    yield WayOut(change=f"without {_named(dropped)}{more}", hosts=_hosts(dropped), result=result(found[0]))
    own = trials.found(dropped)
    if own is not None:
        yield WayOut(change=f"a second lock for {_named(dropped)}", hosts=_hosts(dropped), result=result(own[0]))


def _otherwise(trials: _Trials) -> Iterator[WayOut]:
    """One lock for all, with another Python or another driver on some hosts."""
    hosts_of: dict[str, int] = {}
    for one in trials.classes:
        if (python := python_of(one)) is not None:
            hosts_of[python] = hosts_of.get(python, 0) + len(one.hosts)
    if len(hosts_of) < 2:
        yield from _newer_driver(trials)
        return
    for python in sorted(hosts_of, key=lambda one: -hosts_of[one]):
        moved = [one for one in trials.classes if python_of(one) not in (python, None)]
        found = trials.found([_with_python(one, python) for one in trials.classes])
        if found is not None:
            yield WayOut(change=f"with an environment of Python {python} on {_named(moved)}", hosts=_hosts(moved), result=result(found[0]))
            return


def _newer_driver(trials: _Trials) -> Iterator[WayOut]:
    book = trials.book
    drivers = [machine_of(one.facts, book).driver for one in trials.classes]
    oldest = min((one for one in drivers if one is not None), default=None)
    if oldest is None:
        return
    newer = sorted({one.driver for one in book.minimums() if one.driver > oldest})
    driver, found = first_that_works(newer, trials.with_driver)
    if driver is None or found is None:
        return
    older = [one for one, own in zip(trials.classes, drivers, strict=True) if own is not None and own < driver]
    if all(_takes(one, driver, book) for one in older):
        yield WayOut(change=f"with driver {driver} or newer on {_named(older)}", hosts=_hosts(older), result=result(found))


def _takes(one: FleetClass, driver: DriverVersion, book: Book) -> bool:
    """False where a GPU of the class is no longer served by drivers of that branch."""
    rows = (book.architecture(gpu.capability) for gpu in machine_of(one.facts, book).gpus if gpu.capability is not None)
    return all(row is None or row.driver_last is None or driver.major <= row.driver_last for row in rows)


def _with_driver(one: FleetClass, driver: DriverVersion) -> FleetClass:
    own = or_none(one.facts.driver)
    if own is None or own.version is None or type(driver)(own.version) >= driver:
        return one
    return replace(one, facts=replace(one.facts, driver=Driver(version=str(driver))))


def _with_python(one: FleetClass, python: str) -> FleetClass:
    said = replace(one.facts.python, version=python.removesuffix("t"), free_threaded=python.endswith("t"))
    return replace(one, facts=replace(one.facts, python=said))


def _hosts(classes: Iterable[FleetClass]) -> tuple[str, ...]:
    return in_order(host for one in classes for host in one.hosts)


def _named(classes: Sequence[FleetClass]) -> str:
    """Classes with their hosts: `the 2 hosts of k80-r470-py310 (k80-[1-2])`."""
    count = sum(len(one.hosts) for one in classes)
    what = ", ".join(one.name for one in classes[:4]) + (f" and {len(classes) - 4} more classes" if len(classes) > 4 else "")
    return f"the {f'{count} hosts' if count > 1 else 'host'} of {what} ({ranges(_hosts(classes))})"
