"""What `apply` does, for the command line and for the library: hold, repair, plan, carry out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.execution.conditions import differences, package_folder, require_writable
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.journals import Journals, read_mark, was_stopped, write_mark
from cudnn_resolve.execution.loader_settings import is_done
from cudnn_resolve.execution.model import Execution, Reporter
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.environment_lock import alive, hold
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.operations.apply_memory import Settled, settled_of
from cudnn_resolve.operations.gather import detect_facts, gather_book
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.options import LOCK, ApplyRequest, PlanRequest
from cudnn_resolve.operations.plan import PlanResult, answered, plan_of_lock_file, ranges_of, refuse_broken
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.model import AptRepository, Plan
from cudnn_resolve.probe.python import choose_python

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.report.document import PastDocument

_ORPHAN_SECONDS = 20.0
"""How long an installer is awaited whose own `apply` was killed."""
_RACE_SECONDS = 0.3


class Interaction(Struct, frozen=True, kw_only=True):
    """What is open while a plan is carried out: who hears of it, and who is asked."""

    reporter: Reporter = field(default_factory=Reporter)
    confirm: Callable[[Plan], bool] | None = None
    """Shows a plan that changes something, and says whether it may; None = it may."""
    watch: Callable[[str], None] | None = None
    listener: Listener = SILENT


class ApplyResult(Struct, Result, frozen=True, kw_only=True):
    """What `apply` returns: what became of it, and the plan."""

    execution: Execution | None = None
    """None where there is no plan that could be carried out."""
    plan: PlanResult | None = None

    @property
    def status(self) -> str:
        """`done`, `nothing`, `reverted`, `broken`, `undone`, `interrupted`, `declined`, `dry-run` or `unsatisfiable`."""
        return self.execution.status if self.execution is not None else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """The object that `apply --format json` prints."""
        from cudnn_resolve.report.document import encode_apply

        return encode_apply(self.execution, self.plan.to_json() if self.plan is not None else None)


class HistoryResult(Struct, Result, frozen=True, kw_only=True):
    """Every `apply` of an environment, the newest first."""

    applies: tuple[PastDocument, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `apply --history --format json` prints."""
        from cudnn_resolve.report.document import HistoryDocument, document

        return document(HistoryDocument, self)


DEFAULT = Interaction()


def apply(request: ApplyRequest, interaction: Interaction = DEFAULT) -> ApplyResult:
    """What became of it, and the plan; no execution where there is no plan."""
    settled = settled_of(request, lock_path(request))
    known = settled.recall()
    if known is not None:
        return ApplyResult(execution=known.execution, plan=recast(PlanResult, known.plan))
    return _looked_at(request, interaction, settled)


def _looked_at(request: ApplyRequest, interaction: Interaction, settled: Settled) -> ApplyResult:
    """The same after a look at everything."""
    asked = Later(lambda: _environment(request.python))
    from cudnn_resolve.execution.recover import repair  # while the interpreter answers

    environment = asked.result()
    refused = _not_writable(environment)
    if refused is not None:
        interaction.listener.note(
            f"warning: {refused.message}: whatever is planned for {environment.prefix} cannot be carried out by this user"
        )
    if request.dry_run:
        return _dry(request, interaction, environment)
    with held(environment, request, interaction) as work:
        repaired = repair(work)
        if repaired is not None and repaired.status == "broken":
            return ApplyResult(execution=repaired)
        if work.journals.marked() is None:  # what was put back took it along
            _mark(work.journals, environment, request.words)
        if repaired is not None or refused is not None:
            settled.give_up()  # it was changed, or a warning goes with whatever is said
        settled.hold_to(environment)
        plan, task = _plan(request, interaction)
        if task is None:
            return ApplyResult(plan=recast(PlanResult, plan))
        notes: tuple[str, ...] = ()
        if is_done(task, work):
            spoiled, notes = _damaged(plan, work)
            if spoiled:
                plan, task = _plan(replace(request, reinstall_package=(*request.reinstall_package, *spoiled)), interaction)
        done = carry_through(plan, task, work, request, interaction, settled) if task is not None else None
        if done is not None:
            done = replace(done, notes=(*notes, *done.notes))
            settled.remember(done, plan)
        return ApplyResult(execution=done, plan=recast(PlanResult, plan))


def _damaged(plan: Plan, work: Work) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Packages of the plan that must be laid down again though their versions are right, and what is told of them and of others.

    Empty files are what a power failure leaves. What is missing is laid down again only where an `apply` had installed it: the makers of
    images take files away on purpose. What was changed may have been meant so, and is told.
    """
    from cudnn_resolve.host.installed_files import verify_files

    damages = verify_files(work.host, work.environment.packages, {one.name for one in plan.pip if one.action == "keep"}).damages
    if not damages:
        return (), ()
    ours = {name for past in work.journals.all() if past.state == "committed" for one in past.installed for name in one.records}
    spoiled: dict[str, None] = {}
    notes = []
    for one in damages:
        again = one.is_code and (one.kind == "empty" or (one.kind == "missing" and one.package in ours))
        said = f"{len(one.paths)} of {one.of} files of {one.package} {one.version} are {one.kind}, such as {one.paths[0]}"
        if again or one.is_hollow:
            spoiled[one.package] = None
            notes.append(f"{said}: it was laid down again")
        elif one.is_code:
            notes.append(f"{said}: `apply --reinstall-package {one.package}` lays them down again")
    return tuple(spoiled), tuple(notes)


def _not_writable(environment: Environment) -> WorldError | None:
    """Why this user cannot change the environment; None where that is possible."""
    try:
        require_writable(environment)
    except WorldError as error:
        return error
    return None


def _dry(request: ApplyRequest, interaction: Interaction, environment: Environment) -> ApplyResult:
    plan, task = _plan(request, interaction)
    if task is None:
        return ApplyResult(plan=recast(PlanResult, plan))
    if interaction.confirm is not None:
        interaction.confirm(plan)
    if plan.changes:
        refuse_broken(plan, force=request.force)
    from cudnn_resolve.execution.fetch import check_known
    from cudnn_resolve.execution.recover import interrupted, mark_path

    notes: list[str] = []
    try:
        check_known(task.install, task.unpinned, trusted=request.no_hashes)
    except WorldError as error:
        notes.append(error.message)
    torn = interrupted(Journals(environment))
    if torn is not None:
        notes.append(f"apply number {torn.id} was stopped in the middle: it would be put back first, and the plan made anew")
    elif disk.kind(mark_path(environment)) is not None:
        notes.append(
            f"an apply that this user's journals do not know left the environment half changed: {mark_path(environment)} says more"
        )
    done = Execution(status="dry-run" if plan.changes or torn is not None else "nothing", notes=tuple(notes))
    return ApplyResult(execution=done, plan=recast(PlanResult, plan))


def _plan(request: ApplyRequest, interaction: Interaction) -> tuple[Plan, Task | None]:
    path = lock_path(request)
    if path is not None:
        plan = plan_of_lock_file(path, request)
    else:
        answer = answered(request, interaction.listener, "plan" if request.dry_run else "apply")
        plan = recast(PlanResult, answer.plan, ranges=ranges_of(answer.question, answer.outcome)) if request.ranges else answer.plan
    return _planned(plan, request)


def _planned(plan: Plan, request: ApplyRequest) -> tuple[Plan, Task | None]:
    from cudnn_resolve.execution.task import task_of

    return plan, task_of(plan, gather_book(request).framework_of) if plan.is_satisfiable else None


def lock_path(request: ApplyRequest | PlanRequest) -> str | None:
    """The lock to install: the one that was named, or where nothing was, the one that lies here; None for targets.

    A lock that lies here wins over frameworks of the project's settings, which it was made from.
    """
    if request.lock is not None or not isinstance(request, ApplyRequest) or request.has_targets:
        return request.lock
    if disk.is_regular(LOCK):
        return LOCK
    if request.names_targets:
        return None
    raise UsageError(
        f"nothing is asked for, and there is no {LOCK} here",
        code="no-target",
        hint="name a framework, `apply -f tensorflow==2.15`, or a lock, `apply path/to/pylock.toml`",
    )


def carry_through(plan: Plan, task: Task, work: Work, request: ApplyRequest, interaction: Interaction, settled: Settled) -> Execution:
    """What became of a plan: asked about, carried out, looked at, and remembered."""
    asked = (work.environment.prefix, *request.words)
    if is_done(task, work):
        if request.restart:
            from cudnn_resolve.operations.notebook_kernel import forget_restart

            forget_restart(asked)
        return _nothing(plan)
    refuse_broken(plan, force=request.force)
    if plan.facts.python.externally_managed and not request.break_system_packages:
        raise WorldError(
            f"{work.environment.python} belongs to the system, which manages its packages itself (PEP 668)",
            code="externally-managed",
            hint=f"make an environment of your own, `{work.environment.python} -m venv .venv`, and add `--python .venv`; "
            "or say --break-system-packages",
        )
    refused = _not_writable(work.environment)
    if refused is not None and (task.install or task.remove or task.preload or task.folder_frameworks):
        raise refused
    if interaction.confirm is not None and not interaction.confirm(plan):
        return Execution(status="declined")

    stated = request.given is not None or request.facts is not None or request.assumptions != Assumptions()
    known = None if stated or task.apt or task.repositories else plan.facts
    seen: list[Facts] = []

    def verify() -> tuple[str, ...]:
        settled.look()
        facts = detect_facts(request, known)
        seen.append(facts)
        return differences(task, facts) or (seen_at_work(task, facts, interaction.listener) if not request.no_validate else ())

    from cudnn_resolve.operations.notebook_kernel import imported, kernel_is_near, restart, restart_note

    changed = (*(one.name for one in task.install if one.installed), *task.remove)
    names = dict.fromkeys((*task.frameworks, *(package_folder(name) for name in changed)))
    modules = imported(work.host, names, work.environment.packages)
    from cudnn_resolve.execution.run import carry_out
    from cudnn_resolve.operations.package_source import fetching

    addresses = [
        *(one.file.url for one in (*task.install, *task.folder_wheels) if one.file is not None),
        *(one.key_url for one in task.repositories),
    ]
    shared: tuple[AptRepository, ...] = ()
    if request.bundle_dir is not None and task.apt:
        from cudnn_resolve.operations.bundled_debs import known_repositories

        shared = known_repositories({one.repository for one in task.apt}, plan.facts.platform.arch, gather_book(request))
    with fetching(request, plan.facts, [*addresses, *(one.key_url for one in shared)]) as download:
        if request.bundle_dir is not None:
            from cudnn_resolve.operations.bundle import supplied
            from cudnn_resolve.operations.bundled_debs import with_shared_debs

            task = supplied(task, request.bundle_dir, download, work.reporter, trusted=request.no_hashes)
            task = with_shared_debs(task, request.bundle_dir, shared, plan.facts.platform.arch or "", download, work.reporter)
        done = carry_out(task, replace(work, verify=verify, download=download, members=download.members, online=download.is_online))
    if done.status != "done":
        return done
    _remember(settled, plan, replace(request, given=seen[-1]), work)
    done = replace(done, restart=restart_note(modules, notebook=kernel_is_near(work.host)))
    return restart(done, work.host, asked) if request.restart else done


def _nothing(plan: Plan) -> Execution:
    return Execution(status="nothing", notes=tuple(one.message for one in plan.warnings if one.code in ("lock-settings", "overlay")))


def _remember(settled: Settled, before: Plan, request: ApplyRequest, work: Work) -> None:
    """Keep what the next `apply` will say of the environment that was just changed and looked at, if that is "nothing to do"."""
    from cudnn_resolve.host.installed_files import verify_files

    path = lock_path(request)
    same = request.given is not None and before.facts.problems == request.given.problems  # those of a driver were not asked for again
    if path is None or not (settled.is_kept and same):
        return
    with suppress(CudnnResolveError):
        plan, task = _planned(plan_of_lock_file(path, request), request)
        kept = {one.name for one in before.pip if one.action == "keep"}  # whose files nobody has looked at
        sound = not kept or not verify_files(work.host, work.environment.packages, kept).damages
        if task is not None and is_done(task, work) and sound:
            settled.remember(_nothing(plan), plan)


def seen_at_work(task: Task, facts: Facts, listener: Listener = SILENT) -> tuple[str, ...]:
    """What fails of the stack at work on the GPUs of this machine, in words; nothing is tested where there is none."""
    if not or_none(facts.gpus) or not or_none(facts.driver) or not task.cudnn:
        return ()
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.operations.validate import validation_of
    from cudnn_resolve.validation.run import ValidationOptions

    book = open_book(())
    names = dict.fromkeys(book.framework_of(name) or name for name in task.cudnn)
    found = validation_of(ValidationOptions(frameworks=tuple(names), companions=False), facts, listener)
    return tuple(f"validation: {one.id}: {one.detail}" for one in found.checks if one.status == "failed")


class Stopped(Struct, frozen=True, kw_only=True):
    """An `apply` that was stopped in the middle."""

    words: tuple[str, ...]
    """The words of a command line that asks for the same."""
    folder: str
    """Where it was given: paths in it are relative to that."""
    python: str
    """The interpreter of the environment."""


def stopped(python: str | None = None) -> Stopped | None:
    """The `apply` that was stopped last; None where the last one came to its end."""
    return stopped_of(Journals(_environment(python)))


def stopped_of(journals: Journals) -> Stopped | None:
    """The same of an environment's journals; WorldError where the environment is half changed and none of them says by what."""
    from cudnn_resolve.execution.recover import interrupted, unfinished_of_others

    applies, mark, environment = journals.all(), read_mark(journals), journals.environment
    if mark is not None and mark.words and not (applies and mark.owns(applies[-1])):  # stopped before it had a journal
        return Stopped(words=mark.words, folder=mark.folder, python=environment.python)
    if not applies or not was_stopped(applies[-1]):
        if environment.scheme and interrupted(journals) is None and (unknown := unfinished_of_others(environment)) is not None:
            raise unknown
        return None
    begin = applies[-1].begin
    return Stopped(words=tuple(begin.get("words", ())), folder=begin.get("folder", "."), python=environment.python)


def undo(request: ApplyRequest, number: int | None, interaction: Interaction = DEFAULT) -> ApplyResult:
    """What became of the undo, or where nothing is to be changed, what it would put back."""
    from cudnn_resolve.execution.recover import undo as put_back

    with held(_environment(request.python), request, interaction, mark=False) as work:
        return ApplyResult(execution=put_back(work, number, dry_run=request.dry_run))


def history(python: str | None = None) -> HistoryResult:
    """Every `apply` of the environment, the newest first."""
    from cudnn_resolve.report.document import history as documents

    environment = _environment(python)
    journals = Journals(environment)
    applies = journals.all()
    found = hold(environment.scheme["purelib"])
    if found is not None:
        found.release()
    return HistoryResult(applies=documents(applies, [one.id for one in applies if journals.can_undo(one)], is_running=found is None))


def _environment(python: str | None) -> Environment:
    host = LinuxHost()
    path, _ = choose_python(host, python)
    return ask_environment(host, path)


@contextmanager
def held(environment: Environment, request: ApplyRequest, interaction: Interaction, *, mark: bool = True) -> Iterator[Work]:
    """With what to work, while nobody else does; WorldError where somebody is at work."""
    from cudnn_resolve.execution.task import Work

    journals = Journals(environment)
    folder = environment.scheme["purelib"]
    told = read_mark(journals)
    orphaned = told is not None and not alive(told.pid)
    found = hold(folder, wait_seconds=_ORPHAN_SECONDS if orphaned else _RACE_SECONDS)
    if found is None:
        told = read_mark(journals)
        who = f" (process {told.pid}, since {told.at})" if told is not None else ""
        raise WorldError(
            f"another apply is at work on {environment.prefix}{who}",
            code="busy",
            context=folder,
            hint="wait until it has ended",
        )
    if not found.is_locked:
        interaction.listener.note(
            f"note: the file system of {folder} has no locks: nothing keeps another apply away, so see that none runs in the meantime"
        )
    try:
        if mark:
            _mark(journals, environment, request.words)
        yield Work(
            host=LinuxHost(),
            environment=environment,
            journals=journals,
            hold=found,
            reporter=interaction.reporter,
            watch=interaction.watch,
            words=request.words,
            installer=request.installer,
            managed=request.break_system_packages,
            trusted=request.no_hashes,
            force=request.force,
        )
    finally:
        if mark:  # whoever is killed leaves it
            with suppress(WorldError):
                journals.unmark()
        found.release()


def _mark(journals: Journals, environment: Environment, words: tuple[str, ...]) -> None:
    """Write down who is at work, unless nothing can be changed there."""
    if disk.writable(environment.scheme["purelib"]):
        write_mark(journals, words)
