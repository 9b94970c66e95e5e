"""`plan`: from targets or from a lock to a plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, ExitCode
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.files import folder_of
from cudnn_resolve.listener import SILENT, Listener, SearchProgress
from cudnn_resolve.operations.machine_facts import facts_meanwhile
from cudnn_resolve.operations.options import ApplyRequest, Options, PlanRequest, option_words
from cudnn_resolve.operations.question import Question, gather_book, gather_question
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.model import Plan, Warning
from cudnn_resolve.resolution.model import Conflict, Range, Resolution

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Verdict
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request


class PlanResult(Plan, Result, frozen=True, kw_only=True):
    """Result of `plan`: the plan, or the conflict instead of one."""

    command: str | None = None
    """Command line that applies the plan; None without a plan, or with nothing to do."""
    ranges: tuple[Range, ...] = ()
    """Versions that each party allows, if requested."""

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` for a conflict."""
        return "ok" if self.is_satisfiable else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `plan --format json`."""
        from cudnn_resolve.facts.codec import encode
        from cudnn_resolve.report.document import encode_plan

        return encode_plan(self, encode(self.facts))


BREAKS = "lock-breaks"
"""Code of warnings about a lock with which a framework will not run."""
DOUBT = "lock-doubt"
"""Code of warnings about a lock with a lesser or possible problem."""


class LockMisfitError(CudnnResolveError):
    """The lock does not fit this machine: the answer is no."""

    exit_code = ExitCode.NO


def plan(request: PlanRequest, listener: Listener = SILENT) -> PlanResult:
    """Plan for the targets, or for a lock; a conflict is returned as a plan, too."""
    if request.lock is not None:
        of_lock = plan_of_lock_file(request.lock, request)
        return recast(PlanResult, of_lock, command=command_of(of_lock, request, None))
    answer = plan_targets(request, listener)
    command = command_of(answer.plan, request, answer.outcome.request)
    return recast(PlanResult, answer.plan, command=command, ranges=ranges_of(answer.question, answer.outcome))


def ranges_of(question: Question, outcome: Resolution | Conflict) -> tuple[Range, ...]:
    """Versions of driver, Python, CUDA and cuDNN that each party of an answer allows, if the question asks for them."""
    if not question.wants_ranges:
        return ()
    from cudnn_resolve.resolution.party_ranges import ranges

    return ranges(question.book, outcome, question.source)


def command_of(plan: Plan, request: PlanRequest, resolved_request: Request | None) -> str | None:
    """Command line that applies a plan, or that writes its script for another machine."""
    from cudnn_resolve.resolution.proposal import command

    if not (plan.is_satisfiable and (plan.changes or plan.steps)) or request.given is not None:
        return None
    if resolved_request is not None:
        words = command(replace(resolved_request, verb="plan")).partition(" plan")[2]
    else:
        given = option_words(request, ("python", "facts", "env", "kernel"))
        words = " " + shlex.join((request.lock or "", *(word for pair in given for word in pair)))
    return f"cudnn-resolve plan{words} --format sh -o setup.sh" if request.is_elsewhere else f"cudnn-resolve apply{words}"


class PlannedTargets(Struct, frozen=True, kw_only=True):
    """A plan for targets, with its question and the outcome of the resolution."""

    plan: Plan
    question: Question
    outcome: Resolution | Conflict


def plan_targets(options: Options, listener: Listener = SILENT, verb: str = "plan", facts: Facts | None = None) -> PlannedTargets:
    """Resolve the targets in the options, on the machine that they describe or on that of `facts`, and plan."""
    question = gather_question(options, verb=verb, listener=listener, facts=facts)
    from cudnn_resolve.planning.make_plan import make_plan
    from cudnn_resolve.resolution.resolve import resolve

    outcome = resolve(question.book, question.machine, question.request, question.source, progress=SearchProgress(listener))
    plan = make_plan(question.facts, outcome, question.book, question.source)
    return PlannedTargets(plan=plan, question=question, outcome=outcome)


def plan_of_lock_file(path: str, options: Options) -> Plan:
    """Plan from the environment to a lock; InputError for an invalid lock, LockMisfitError for one of other machines."""
    book = gather_book(options)
    facts = facts_meanwhile(options, book)
    from cudnn_resolve.locking.read_pylock import read  # during detection
    from cudnn_resolve.operations.lock_file import lock_text
    from cudnn_resolve.planning.from_lock import plan_of_lock

    text = lock_text(path)
    lock = read(text, path)
    plan, misfits = plan_of_lock(lock, folder_of(path), facts.result(), book, options.reinstall_package)
    if plan is None:
        reasons = "; ".join(f"{misfit.what}: the lock wants {misfit.locked}, here is {misfit.now}" for misfit in misfits[:5])
        raise LockMisfitError(
            f"{path} does not fit this machine: {reasons}", code="lock-misfit", hint="`cudnn-resolve lock` makes one that does"
        )
    if isinstance(options, ApplyRequest) and plan.apt:
        from cudnn_resolve.operations.bundled_debs import from_bundle

        plan = from_bundle(plan, path, book)
    warnings: list[Warning] = []
    if options.framework or options.cuda or options.cudnn:
        from cudnn_resolve.locking.up_to_date import unmet_request

        for difference in unmet_request(lock, options.framework, {"cuda": options.cuda, "cudnn": options.cudnn}, book):
            message = f"{path} holds {difference.locked}, but the settings ask for {difference.now}: "
            message += "the lock counts; `cudnn-resolve lock` updates it"
            warnings.append(Warning(code="lock-settings", message=message))
    if plan.changes:
        warnings += broken_installed(plan, options, book)
    if lock.tool is None:
        warnings += _problems_of_foreign_lock(path, text, plan.facts, book)
    return replace(plan, warnings=(*warnings, *plan.warnings))


def refuse_broken(plan: Plan, *, force: bool) -> None:
    """Reject a plan from a lock with which a framework will not run, unless forced; raises LockMisfitError."""
    broken = [warning.message for warning in plan.warnings if warning.code == BREAKS]
    if broken and not force:
        raise LockMisfitError(
            f"with this lock a framework will not run: {'; '.join(broken)}",
            code=BREAKS,
            hint="use a separate environment (--env DIR), or --force to install anyway",
        )


def broken_installed(plan: Plan, options: Options, book: Book) -> Iterator[Warning]:
    """Warnings about installed frameworks that the lock does not list and that its installation breaks."""
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.installed import InstalledFrameworks
    from cudnn_resolve.resolution.open_request import OpenRequest

    machine = machine_of(plan.facts, book)
    removed = {action.name for action in plan.pip if action.action == "remove"}
    locked = {action.name: action.version for action in plan.pip if action.name not in removed}
    after = {name: version for name, version in machine.pip.items() if name not in removed} | locked
    for framework in InstalledFrameworks(Context(book, machine, OpenRequest(targets=()))).protected:
        message = framework.breakage(after)
        if message is not None and framework.package not in locked:
            is_allowed = book.framework_of(framework.package) in options.allow_break
            yield Warning(code="breaks-framework" if is_allowed else BREAKS, message=message)


def verdict_of_lock(path: str, text: str, facts: Facts, book: Book) -> Verdict:
    """Verdict of `check` on a lock for the machine of the facts."""
    from cudnn_resolve.operations.package_set import subject_of_file
    from cudnn_resolve.operations.verdict import machine_name, verdict_on
    from cudnn_resolve.requirement.machine import machine_of

    machine = machine_of(replace(fresh_environment(facts), python=facts.python), book)
    return verdict_on(subject_of_file(path, text, book, machine), book, machine, machine_name(facts, None))


def _problems_of_foreign_lock(path: str, text: str, facts: Facts, book: Book) -> Iterator[Warning]:
    """Warnings from the verdict on a lock of another tool; our own locks were judged by the resolution."""
    for finding in verdict_of_lock(path, text, facts, book).findings:
        because = ""
        if finding.evidence:
            evidence = finding.evidence[0].text
            because = f" ({evidence.partition(': ')[2] or evidence})"
        if finding.severity == "error":
            fix = f"`cudnn-resolve check {shlex.quote(path)}` shows how to fix it"
            yield Warning(code=BREAKS, message=f"{finding.summary}{because}: {fix}")
        elif finding.severity == "warning":
            yield Warning(code=DOUBT, message=f"{finding.summary}{because}")
