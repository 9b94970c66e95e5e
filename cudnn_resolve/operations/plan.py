"""`plan`: from a request, or from a lock, to the plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, ExitCode
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.files import folder_of, read_bounded
from cudnn_resolve.operations.gather import Question, facts_meanwhile, gather_book, gather_question
from cudnn_resolve.operations.listener import SILENT, Listener, SearchProgress
from cudnn_resolve.operations.options import ApplyRequest, Options, PlanRequest
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.model import Plan, Warning
from cudnn_resolve.resolution.model import Conflict, Range, Resolution

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Verdict
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request


class PlanResult(Plan, Result, frozen=True, kw_only=True):
    """What `plan` returns: the plan, or the conflict in the place of one."""

    command: str | None = None
    """The command line that carries it out; None where there is nothing to do, or no plan."""
    ranges: tuple[Range, ...] = ()
    """The versions that each party allows, where they were asked for."""

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` where there is a conflict."""
        return "ok" if self.is_satisfiable else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """The object that `plan --format json` prints."""
        from cudnn_resolve.facts.codec import encode
        from cudnn_resolve.report.document import encode_plan

        return encode_plan(self, encode(self.facts))


BREAKS = "lock-breaks"
"""Code of the warnings about a lock with which a framework will not run."""
DOUBT = "lock-doubt"
"""Code of the warnings about a lock of which something is not as it should be, or not known."""


class LockMisfitError(CudnnResolveError):
    """The lock is for other machines: the answer is no."""

    exit_code = ExitCode.NO


def plan(request: PlanRequest, listener: Listener = SILENT) -> PlanResult:
    """The plan for the targets, or the one that leads to a lock; a conflict is a plan, too."""
    if request.lock is not None:
        found = plan_of_lock_file(request.lock, request)
        return recast(PlanResult, found, command=command_of(found, request, None))
    answer = answered(request, listener)
    command = command_of(answer.plan, request, answer.outcome.request)
    return recast(PlanResult, answer.plan, command=command, ranges=ranges_of(answer.question, answer.outcome) if request.ranges else ())


def ranges_of(question: Question, outcome: Resolution | Conflict) -> tuple[Range, ...]:
    """The versions of driver, Python, CUDA and cuDNN that each party of an answer allows."""
    from cudnn_resolve.resolution.party_ranges import ranges

    return ranges(question.book, outcome, question.source)


def command_of(plan: Plan, request: PlanRequest, asked: Request | None) -> str | None:
    """The command line that carries a plan out, or that writes the script of one for another machine."""
    from cudnn_resolve.resolution.proposal import command

    if not (plan.is_satisfiable and (plan.changes or plan.steps)) or request.given is not None:
        return None
    elsewhere = request.is_elsewhere
    if asked is not None:
        words = command(replace(asked, verb="plan")).partition(" plan")[2]
    else:
        named = ("--python", request.python), ("--facts", request.facts), ("--env", request.env), ("--kernel", request.kernel)
        said = ((name, value) for name, value in named if value)
        words = " " + shlex.join((request.lock or "", *(word for pair in said for word in pair)))
    return f"cudnn-resolve plan{words} --format sh -o setup.sh" if elsewhere else f"cudnn-resolve apply{words}"


class Answered(Struct, frozen=True, kw_only=True):
    """A plan, the question behind it, and what the resolution answered."""

    plan: Plan
    question: Question
    outcome: Resolution | Conflict


def answered(options: Options, listener: Listener = SILENT, verb: str = "plan", facts: Facts | None = None) -> Answered:
    """The plan behind the options, or for other `facts` than they describe, with the question that it answers."""
    asked = gather_question(options, verb=verb, listener=listener, facts=facts)
    from cudnn_resolve.planning.make_plan import make_plan
    from cudnn_resolve.resolution.resolve import resolve

    outcome = resolve(asked.book, asked.machine, asked.request, asked.source, tell=SearchProgress(listener))
    plan = make_plan(asked.facts, outcome, asked.book, asked.source)
    return Answered(plan=plan, question=asked, outcome=outcome)


def plan_of_lock_file(path: str, options: Options) -> Plan:
    """The plan from the environment to a lock; InputError for a file that is none, LockMisfitError for a lock of other machines."""
    book = gather_book(options)
    facts = facts_meanwhile(options, book)
    from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read  # while the machine answers
    from cudnn_resolve.planning.from_lock import plan_of_lock

    text = read_bounded(path, LIMIT_BYTES, "lock")
    lock = read(text, path)
    plan, misfits = plan_of_lock(lock, folder_of(path), facts.result(), book, options.reinstall_package)
    if plan is None:
        lines = "; ".join(f"{one.what}: the lock wants {one.locked}, here is {one.now}" for one in misfits[:5])
        raise LockMisfitError(f"{path} is not for this machine: {lines}", code="lock-misfit", hint="`cudnn-resolve lock` makes one that is")
    if isinstance(options, ApplyRequest) and plan.apt:
        from cudnn_resolve.operations.bundled_debs import from_bundle

        plan = from_bundle(plan, path, book)
    warnings: list[Warning] = []
    if options.framework or options.cuda or options.cudnn:
        from cudnn_resolve.locking.check import unmet_request

        for one in unmet_request(lock, options.framework, {"cuda": options.cuda, "cudnn": options.cudnn}, book):
            said = f"{one.now} is asked for, and {path} holds {one.locked}: the lock counts; `cudnn-resolve lock` brings it up to date"
            warnings.append(Warning(code="lock-settings", message=said))
    if plan.changes:
        warnings += breaks_installed(plan, options, book)
    if lock.tool is None:
        warnings += _what_is_wrong(path, text, plan.facts, book)
    return replace(plan, warnings=(*warnings, *plan.warnings))


def refuse_broken(plan: Plan, *, force: bool) -> None:
    """LockMisfitError for a plan from a lock with which a framework will not run, unless it is forced."""
    breaks = [one.message for one in plan.warnings if one.code == BREAKS]
    if breaks and not force:
        raise LockMisfitError(
            f"with this lock a framework will not run: {'; '.join(breaks)}",
            code=BREAKS,
            hint="an environment of its own (--env DIR) leaves this one as it is; --force installs it all the same",
        )


def breaks_installed(plan: Plan, options: Options, book: Book) -> Iterator[Warning]:
    """Installed frameworks that a lock does not speak of, and that no longer work once it is carried out."""
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.installed import InstalledFrameworks, broken_by
    from cudnn_resolve.resolution.open_request import OpenRequest

    machine = machine_of(plan.facts, book)
    after = {**machine.pip, **{one.name: one.version for one in plan.pip}}
    gone = {one.name for one in plan.pip if one.action == "remove"}
    spoken = {one.name for one in plan.pip} - gone
    for one in InstalledFrameworks(Context(book, machine, OpenRequest(targets=()))).protected:
        because = broken_by(one, {name: version for name, version in after.items() if name not in gone})
        if because is None or one.package in spoken:
            continue
        allowed = book.framework_of(one.package) in options.allow_break
        becomes = "will no longer import" if one.is_linked else "will no longer work as it did"
        yield Warning(code="breaks-framework" if allowed else BREAKS, message=f"{one.who} {becomes}: {because}")


def verdict_of_lock(path: str, text: str, facts: Facts, book: Book) -> Verdict:
    """What `check` says of a lock on the machine of the facts."""
    from cudnn_resolve.operations.package_set import subject_of_file
    from cudnn_resolve.operations.verdict import machine_name, verdict_on
    from cudnn_resolve.requirement.machine import machine_of

    machine = machine_of(replace(fresh_environment(facts), python=facts.python), book)
    return verdict_on(subject_of_file(path, text, book, machine), book, machine, machine_name(facts, None))


def _what_is_wrong(path: str, text: str, facts: Facts, book: Book) -> Iterator[Warning]:
    """What `check` says against a lock that another tool made: of our own, the resolution has said it."""
    for one in verdict_of_lock(path, text, facts, book).findings:
        because = f" ({one.evidence[0].text.partition(': ')[2] or one.evidence[0].text})" if one.evidence else ""
        if one.severity == "error":
            yield Warning(code=BREAKS, message=f"{one.summary}{because}: `cudnn-resolve check {shlex.quote(path)}` says what mends it")
        elif one.severity == "warning":
            yield Warning(code=DOUBT, message=f"{one.summary}{because}")
