"""`fleet lock`: a lock for each class of hosts, or a single one for all; `fleet check`: verdicts on locks, and what has changed."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, WorldError
from cudnn_resolve.facts.model import Driver, Facts, or_none
from cudnn_resolve.fleet.host_names import in_order, ranges
from cudnn_resolve.fleet.joint import joint, left_out, python_of
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, OneLock, Outcome, Status, WayOut
from cudnn_resolve.fleet.since_earlier import by_host, changed, earlier
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.listener import Listener, Notes
from cudnn_resolve.locking.fits_machine import machine_differences
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import select
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_bundles import lock_request
from cudnn_resolve.operations.fleet_classes import FleetResult, announce, answer_by_class, classes_of, error_answer, notes_of
from cudnn_resolve.operations.lock import LockResult, make_lock
from cudnn_resolve.operations.lock_file import lock_text
from cudnn_resolve.operations.options import LOCK, LOCK_NAMES, FleetRequest
from cudnn_resolve.operations.plan import verdict_of_lock
from cudnn_resolve.operations.question import gather_book, gather_question
from cudnn_resolve.operations.verdict import machine_name
from cudnn_resolve.requirement.machine import architectures, machine_of
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.proposal import result
from cudnn_resolve.resolution.relaxation_driver import first_that_works
from cudnn_resolve.resolution.resolve import resolved
from cudnn_resolve.version import DriverVersion

_MAX_SOLVES = 150
"""Limit on resolutions to find the fewest hosts that stand in the way."""


def lock(request: FleetRequest, listener: Listener) -> FleetResult:
    """Write a lock for each class into the folder of `-o`; with `one_lock` a single one."""
    book = gather_book(request)
    classes, faults = classes_of(request, book, listener)
    if request.one_lock:
        return replace(_lock_together(request, classes, book, listener), faults=faults)
    folder = request.output or "."
    if not disk.is_folder(folder):
        if not disk.is_missing(folder):
            hint = "-o FOLDER takes one for each class; --one-lock -o FILE is a single one"
            raise UsageError(f"-o {folder} is not a folder", code="usage-path", hint=hint)
        disk.make_folder(folder)
    answers = answer_by_class(_lock_class, classes, replace(request, output=folder), listener)
    return FleetResult(verb=request.verb, classes=answers, faults=faults, notes=notes_of(answers))


def lock_name(group: FleetClass) -> str:
    """File name of the lock of a class, in the form that pip and uv accept."""
    return f"pylock.{group.name}.toml"


def _lock_class(task: tuple[FleetClass, FleetRequest]) -> ClassAnswer:
    group, request = task
    path = os.path.join(request.output or ".", lock_name(group))
    notes = Notes()
    try:
        result = make_lock(lock_request(request, group.facts, path), notes)
    except (InputError, WorldError) as error:
        return error_answer(group, error)
    if result.plan is not None:
        return ClassAnswer(group=group, status="no", plan=result.plan, notes=(*notes.texts, *result.plan.notes))
    return ClassAnswer(group=group, lock=path, message=_summary(result), notes=tuple(notes.texts))


def _summary(result: LockResult) -> str:
    """The stacks of a lock in one line."""
    stacks = result.lock.stacks if result.lock is not None else ()
    summaries = []
    for stack in stacks:
        parts = [f"{framework.name} {framework.version}" for framework in stack.frameworks]
        parts += [f"{name} {version}" for name, version in (("CUDA", stack.cuda), ("cuDNN", stack.cudnn)) if version]
        parts += [f"driver {stack.driver_min} or newer"] if stack.driver_min else []
        summaries.append(", ".join(parts) + (f" ({stack.platform})" if len(stacks) > 1 else ""))
    return "; ".join(summaries)


def judged(group: FleetClass, path: str, text: str, book: Book) -> ClassAnswer:
    """Verdict on a lock for a class, and whether the lock fits its hosts."""
    verdict = replace(verdict_of_lock(path, text, group.facts, book), machine=f"{group.name}: {machine_name(group.facts, None)}")
    differences = machine_differences(read(text, path), group.facts, book)
    misfits = "; ".join(f"{misfit.what}: the lock wants {misfit.locked}, here is {misfit.now}" for misfit in differences)
    errors = (finding.summary for finding in verdict.findings if finding.severity == "error")
    status: Status = "no" if verdict.status == "breaks" or misfits else "ok" if verdict.status == "runs" else "unknown"
    message = misfits or "; ".join(errors) or ("; ".join(verdict.not_judged[:-1]) if status == "unknown" else "")
    return ClassAnswer(group=group, status=status, lock=path, verdicts=(verdict,), message=message)


# ---- one lock for all


def _lock_together(request: FleetRequest, classes: Sequence[FleetClass], book: Book, listener: Listener) -> FleetResult:
    path = request.output or LOCK
    machines = joint(classes, book)
    listener.tell(f"one lock for {len(classes)} classes")
    pythons = sorted({str(python_of(group)) for group in classes if python_of(group) is not None})
    if len(pythons) > 1:
        hosts_of = {python: _hosts(group for group in classes if python_of(group) == python) for python in pythons}
        found = "; ".join(f"{python} on {ranges(hosts)}" for python, hosts in hosts_of.items())
        why = f"a lock is for one Python, and the hosts have {found}"
    else:
        made = make_lock(lock_request(request, machines[0], path), listener, machines if len(machines) > 1 else ())
        if made.plan is None:
            answers = tuple(judged(group, made.path, made.text, book) for group in classes)
            return FleetResult(verb=request.verb, classes=answers, one=OneLock(path=made.path, message=_summary(made)))
        why = made.plan.conflict.message if made.plan.conflict is not None else "there is no resolution"
    trials = _Trials(request, classes, book, listener)
    dropped, is_fewest = left_out(classes, trials.fits, trials.allowed)
    ways = (*_without(trials, dropped, is_fewest=is_fewest), *_with_changed_hosts(trials))
    blocking = {group.name for group in dropped}
    answers = tuple(
        ClassAnswer(group=group, status="no", message="stands in the way") if group.name in blocking else ClassAnswer(group=group)
        for group in classes
    )
    one_lock = OneLock(message=f"no lock fits every host: {why}", ways=ways)
    return FleetResult(verb=request.verb, classes=answers, one=one_lock)


class _Trials:
    """Resolutions for sets of classes, each computed once."""

    def __init__(self, request: FleetRequest, classes: Sequence[FleetClass], book: Book, listener: Listener) -> None:
        self.classes, self.book, self._listener = classes, book, listener
        first = joint(classes[:1], book)[0]
        self._question = gather_question(lock_request(request, first, "-"), fresh=True, verb="lock", listener=listener, facts=first)
        self._known: dict[tuple[str, ...], tuple[Resolution, ...] | None] = {}
        self.solves = 0

    def fits(self, classes: Sequence[FleetClass]) -> bool:
        """True if one lock fits all of them."""
        return self.resolutions(classes) is not None

    def allowed(self) -> bool:
        """True while the limit on resolutions is not reached."""
        return self.solves < _MAX_SOLVES

    def resolutions(self, classes: Sequence[FleetClass]) -> tuple[Resolution, ...] | None:
        """The resolution for each architecture; None if one has none."""
        if len({python_of(group) for group in classes} - {None}) > 1:
            return None
        machines = joint(classes, self.book)
        key = tuple(map(str, machines))
        if key not in self._known:
            self.solves += 1
            self._listener.tell(f"looking for what prevents one lock: {self.solves}")
            self._known[key] = self._resolve(machines)
        return self._known[key]

    def _resolve(self, machines: Sequence[Facts]) -> tuple[Resolution, ...] | None:
        question, resolutions = self._question, []
        for facts in machines:
            resolution = resolved(question.book, machine_of(facts, question.book), question.request, question.source)
            if resolution is None:
                return None
            resolutions.append(resolution)
        return tuple(resolutions)

    def with_driver(self, driver: DriverVersion) -> Resolution | None:
        """The resolution if every host has at least that driver; None if there is none."""
        resolutions = self.resolutions([_with_driver(group, driver) for group in self.classes])
        return resolutions[0] if resolutions is not None else None


def _without(trials: _Trials, dropped: Sequence[FleetClass], *, is_fewest: bool) -> Iterator[WayOut]:
    """One lock for all but some classes, and a second one for these if possible."""
    others = [group for group in trials.classes if group not in dropped]
    resolutions = trials.resolutions(others) if others else None
    if resolutions is None:
        return
    more = "" if is_fewest else " (fewer may do: not every choice was tried)"
    yield WayOut(change=f"without {_describe(dropped)}{more}", hosts=_hosts(dropped), result=result(resolutions[0]))
    second = trials.resolutions(dropped)
    if second is not None:
        yield WayOut(change=f"a second lock for {_describe(dropped)}", hosts=_hosts(dropped), result=result(second[0]))


def _with_changed_hosts(trials: _Trials) -> Iterator[WayOut]:
    """One lock for all, with another Python or a newer driver on some hosts."""
    pythons = Counter(python for group in trials.classes if (python := python_of(group)) is not None for _ in group.hosts)
    if len(pythons) < 2:
        yield from _with_newer_driver(trials)
        return
    for python, _ in pythons.most_common():
        moved = [group for group in trials.classes if python_of(group) not in (python, None)]
        resolutions = trials.resolutions([_with_python(group, python) for group in trials.classes])
        if resolutions is not None:
            change = f"with an environment of Python {python} on {_describe(moved)}"
            yield WayOut(change=change, hosts=_hosts(moved), result=result(resolutions[0]))
            return


def _with_newer_driver(trials: _Trials) -> Iterator[WayOut]:
    book = trials.book
    drivers = [machine_of(group.facts, book).driver for group in trials.classes]
    oldest = min((version for version in drivers if version is not None), default=None)
    if oldest is None:
        return
    newer = sorted({minimum.driver for minimum in book.minimums() if minimum.driver > oldest})
    driver, resolution = first_that_works(newer, trials.with_driver)
    if driver is None or resolution is None:
        return
    older = [group for group, own in zip(trials.classes, drivers, strict=True) if own is not None and own < driver]
    if all(_supports(group, driver, book) for group in older):
        yield WayOut(change=f"with driver {driver} or newer on {_describe(older)}", hosts=_hosts(older), result=result(resolution))


def _supports(group: FleetClass, driver: DriverVersion, book: Book) -> bool:
    """False if drivers of that branch no longer support a GPU of the class."""
    rows = architectures(machine_of(group.facts, book).gpus, book)
    return all(row.driver_last is None or driver.major <= row.driver_last for row in rows)


def _with_driver(group: FleetClass, driver: DriverVersion) -> FleetClass:
    """The class with at least that driver."""
    own = or_none(group.facts.driver)
    if own is None or own.version is None or type(driver)(own.version) >= driver:
        return group
    return replace(group, facts=replace(group.facts, driver=Driver(version=str(driver))))


def _with_python(group: FleetClass, version: str) -> FleetClass:
    """The class with another Python, `3.12` or `3.13t`."""
    python = replace(group.facts.python, version=version.removesuffix("t"), free_threaded=version.endswith("t"))
    return replace(group, facts=replace(group.facts, python=python))


def _hosts(classes: Iterable[FleetClass]) -> tuple[str, ...]:
    return in_order(host for group in classes for host in group.hosts)


def _describe(classes: Sequence[FleetClass]) -> str:
    """Classes with their hosts: `the 2 hosts of k80-r470-py310 (k80-[1-2])`."""
    count = sum(len(group.hosts) for group in classes)
    names = ", ".join(group.name for group in classes[:4]) + (f" and {len(classes) - 4} more classes" if len(classes) > 4 else "")
    return f"the {f'{count} hosts' if count > 1 else 'host'} of {names} ({ranges(_hosts(classes))})"


# ---- `fleet check`


_EARLIER_BYTES = 256 << 20
_SHOWN = 4
"""Number of differing packages to name per host."""
_BEST_FIRST = ("ok", "unknown", "no", "failed")


def check(request: FleetRequest, listener: Listener) -> FleetResult:
    """Verdict on the lock of each class, hosts with other packages, and with `since` the facts that changed."""
    book = gather_book(request)
    locks = {path: lock_text(path) for path in _paths(request.packages)}
    since = request.since
    before = None if since is None else earlier(read_bounded(since, _EARLIER_BYTES, "earlier answer"), since)
    classes, faults = classes_of(request, book, listener)
    answers = []
    announce(classes, listener)
    for group in classes:
        answers.append(_check_class(group, locks, book))
        listener.state(group.name, answers[-1].status)
    changes = None if before is None else tuple(changed(before, classes))
    return FleetResult(verb=request.verb, classes=tuple(answers), faults=faults, changes=changes, is_strict=request.strict)


def _paths(words: Sequence[str]) -> tuple[str, ...]:
    """The named locks, those in named folders, or by default those in the current folder; InputError if there is none."""
    paths: list[str] = []
    for word in words or (".",):
        if not disk.is_folder(word):
            paths.append(word)
            continue
        names = sorted(name for name in disk.names_in(word) if LOCK_NAMES.fullmatch(name))
        paths += [name if word == "." else os.path.join(word, name) for name in names]
    if not paths:
        hint = "`cudnn-resolve fleet lock` writes one for each class; or name one: fleet check LOCK"
        raise InputError(f"there is no lock in {', '.join(words) or 'this folder'}", code="lock-missing", hint=hint)
    return tuple(dict.fromkeys(paths))


def _check_class(group: FleetClass, locks: Mapping[str, str], book: Book) -> ClassAnswer:
    """Verdict on the lock that is named after the class, else on the one that fits it best."""
    own = [path for path in locks if os.path.basename(path) == lock_name(group)]
    answers = [judged(group, path, locks[path], book) for path in own or locks]
    best = min(answers, key=lambda answer: _BEST_FIRST.index(answer.status))
    if best.status == "no" and len(answers) > 1:
        best = replace(best, message=f"none of {len(answers)} locks fits these hosts; {best.lock}: {best.message}")
    path = best.lock or ""
    return replace(best, outcomes=tuple(_differing_hosts(group, path, locks[path], book)))


def _differing_hosts(group: FleetClass, path: str, text: str, book: Book) -> Iterator[Outcome]:
    """Hosts on which packages of the lock are missing or have other versions."""
    chosen = select(read(text, path), machine_of(group.facts, book)).chosen
    pins = {f"packages.pip.{entry.package.name}": str(entry.package.version) for entry in chosen}
    for name, host in by_host((group,)).items():
        wrong = {fact: version for fact, version in pins.items() if host.knows(fact) and host.get(fact) != version}
        texts = [f"{fact.removeprefix('packages.pip.')} {host.get(fact)} instead of {version}" for fact, version in wrong.items()]
        if texts and all(host.get(fact) == "none" for fact in pins):
            yield Outcome(host=name, status="empty", detail="no package of the lock is installed")
        elif texts:
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            yield Outcome(host=name, status="differs", detail="; ".join(texts[:_SHOWN]) + more)
