"""`apply`: lock the environment, repair it, plan, and execute the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.execution.conditions import differences, package_folder, require_writable
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.journal_store import Journals, was_stopped
from cudnn_resolve.execution.loader_settings import is_done
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.environment_mutex import alive, hold
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.operations.apply_cache import ApplyCache
from cudnn_resolve.operations.machine_facts import detect_facts
from cudnn_resolve.operations.options import LOCK, ApplyRequest, PlanRequest
from cudnn_resolve.operations.plan import PlanResult, plan_of_lock_file, plan_targets, ranges_of, refuse_broken
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.model import AptRepository, Plan
from cudnn_resolve.probe.python import choose_python

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.report.document import PastDocument

_ORPHAN_SECONDS = 20.0
"""How long to wait for an installer whose `apply` was killed."""
_RACE_SECONDS = 0.3


class Interaction(Struct, frozen=True, kw_only=True):
    """Live callbacks used while a plan runs: progress and confirmation."""

    confirm: Callable[[Plan], bool] | None = None
    """Shows a plan with changes, and returns whether to execute it; None = always."""
    listener: Listener = SILENT


class ApplyResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `apply`: the outcome and the plan."""

    execution: Execution | None = None
    """None if no executable plan exists."""
    plan: PlanResult | None = None

    @property
    def status(self) -> str:
        """`done`, `nothing`, `reverted`, `broken`, `undone`, `interrupted`, `declined`, `dry-run` or `unsatisfiable`."""
        return self.execution.status if self.execution is not None else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `apply --format json`."""
        from cudnn_resolve.report.document import encode_apply

        return encode_apply(self.execution, self.plan.to_json() if self.plan is not None else None)


class HistoryResult(Struct, Result, frozen=True, kw_only=True):
    """Every `apply` of an environment, newest first."""

    applies: tuple[PastDocument, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `apply --history --format json`."""
        from cudnn_resolve.report.document import HistoryDocument, document

        return document(HistoryDocument, self)


def apply(request: ApplyRequest, interaction: Interaction) -> ApplyResult:
    """Plan and execute; no execution in the result if there is no plan."""
    cache = ApplyCache(request, lock_path(request))
    cached = cache.load()
    if cached is not None:
        return ApplyResult(execution=cached.execution, plan=recast(PlanResult, cached.plan))
    return _apply_uncached(request, interaction, cache)


def _apply_uncached(request: ApplyRequest, interaction: Interaction, cache: ApplyCache) -> ApplyResult:
    future = Later(lambda: _environment(request.python))
    from cudnn_resolve.execution.recover import repair  # while the interpreter answers

    environment = future.result()
    is_writable = True
    try:
        require_writable(environment)
    except WorldError as error:
        is_writable = False
        interaction.listener.note(f"warning: {error.message}, so a plan for {environment.prefix} cannot be executed by this user")
    if request.dry_run:
        return _dry_run(request, interaction, environment)
    with locked(environment, request, interaction) as work:
        repaired = repair(work)
        if repaired is not None and repaired.status == "broken":
            return ApplyResult(execution=repaired)
        if work.journals.marked() is None:  # the repair removed the mark
            _mark(work.journals, environment, request.words)
        if repaired is not None or not is_writable:
            cache.disable()  # the environment was changed, or a warning belongs to every result
        cache.check_environment(environment)
        plan, task = _plan(request, interaction)
        notes: tuple[str, ...] = ()
        if task is not None and is_done(task, work):
            damaged, notes = _damaged(plan, work)
            if damaged:
                reinstall = (*request.reinstall_package, *damaged)
                plan, task = _plan(replace(request, reinstall_package=reinstall), interaction)
        if task is None:
            return ApplyResult(plan=plan)
        execution = execute(plan, task, work, request, interaction, cache)
        execution = replace(execution, notes=(*notes, *execution.notes))
        cache.store(execution, plan)
        return ApplyResult(execution=execution, plan=plan)


def _damaged(plan: Plan, work: Work) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Kept packages whose files are damaged and must be reinstalled, and notes about these and others.

    Empty files are what a power failure leaves. Missing files are restored only where an `apply` had installed them: makers of images
    remove files on purpose. Changed files may be intentional, and are only mentioned.
    """
    from cudnn_resolve.host.installed_files import verify_files

    kept = {action.name for action in plan.pip if action.action == "keep"}
    damages = verify_files(work.host, work.environment.packages, kept).damages
    if not damages:
        return (), ()
    committed = (past for past in work.journals.all() if past.state == "committed")
    ours = {name for past in committed for installed in past.installed for name in installed.records}
    reinstall: dict[str, None] = {}
    notes = []
    for damage in damages:
        is_lost = damage.is_code and (damage.kind == "empty" or (damage.kind == "missing" and damage.package in ours))
        files = f"{len(damage.paths)} of {damage.of} files of {damage.package} {damage.version}"
        message = f"{files} are {damage.kind}, such as {damage.paths[0]}"
        if is_lost or damage.is_hollow:
            reinstall[damage.package] = None
            notes.append(f"{message}: the package was reinstalled")
        elif damage.is_code:
            notes.append(f"{message}: `apply --reinstall-package {damage.package}` restores them")
    return tuple(reinstall), tuple(notes)


def _dry_run(request: ApplyRequest, interaction: Interaction, environment: Environment) -> ApplyResult:
    plan, task = _plan(request, interaction)
    if task is None:
        return ApplyResult(plan=plan)
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
    unfinished = interrupted(Journals(environment))
    if unfinished is not None:
        notes.append(f"apply number {unfinished.id} was interrupted: it would be undone first, and the plan made again")
    elif disk.kind(mark_path(environment)) is not None:
        notes.append(f"an apply of another user left the environment half changed: see {mark_path(environment)}")
    execution = Execution(status="dry-run" if plan.changes or unfinished is not None else "nothing", notes=tuple(notes))
    return ApplyResult(execution=execution, plan=plan)


def _plan(request: ApplyRequest, interaction: Interaction) -> tuple[PlanResult, Task | None]:
    path = lock_path(request)
    if path is not None:
        plan = recast(PlanResult, plan_of_lock_file(path, request))
    else:
        answer = plan_targets(request, interaction.listener, "plan" if request.dry_run else "apply")
        plan = recast(PlanResult, answer.plan, ranges=ranges_of(answer.question, answer.outcome))
    return plan, _task(plan, request)


def _task(plan: Plan, request: ApplyRequest) -> Task | None:
    """The task of a plan; None for a conflict."""
    from cudnn_resolve.execution.task import task_of

    return task_of(plan, gather_book(request).framework_of) if plan.is_satisfiable else None


def lock_path(request: ApplyRequest | PlanRequest) -> str | None:
    """The lock to install: the named one, or the one in this folder if nothing is named; None for targets.

    A lock in this folder wins over frameworks in the project's settings, from which it was made.
    """
    if request.lock is not None or not isinstance(request, ApplyRequest) or request.has_targets:
        return request.lock
    if disk.is_regular(LOCK):
        return LOCK
    if request.names_targets:
        return None
    raise UsageError(
        f"nothing to install: no target is named, and there is no {LOCK} here",
        code="no-target",
        hint="name a framework, `apply -f tensorflow==2.15`, or a lock, `apply path/to/pylock.toml`",
    )


def execute(plan: Plan, task: Task, work: Work, request: ApplyRequest, interaction: Interaction, cache: ApplyCache) -> Execution:
    """Confirm, execute and verify a plan, and cache its result."""
    if is_done(task, work):
        if request.restart:
            from cudnn_resolve.operations.notebook_kernel import forget_restart

            forget_restart((work.environment.prefix, *request.words))
        return _nothing(plan)
    _refuse(plan, task, work, request)
    if interaction.confirm is not None and not interaction.confirm(plan):
        return Execution(status="declined")

    from cudnn_resolve.operations.notebook_kernel import imported, kernel_is_near, restart, restart_note

    known = None if request.states_facts or task.apt or task.repositories else plan.facts
    after: Facts | None = None

    def verify() -> tuple[str, ...]:
        nonlocal after
        cache.refresh()
        after = detect_facts(request, known)
        failures = differences(task, after)
        return failures if failures or request.no_validate else validation_failures(task, after, interaction.listener)

    changed = (*(action.name for action in task.install if action.installed), *task.remove)
    names = dict.fromkeys((*task.frameworks, *(package_folder(name) for name in changed)))
    modules = imported(work.host, names, work.environment.packages)
    execution = _carry_out(plan, task, replace(work, verify=verify), request)
    if execution.status != "done":
        return execution
    _cache_next_result(cache, plan, replace(request, given=after), work)
    execution = replace(execution, restart=restart_note(modules, notebook=kernel_is_near(work.host)))
    return restart(execution, work.host, (work.environment.prefix, *request.words)) if request.restart else execution


def _refuse(plan: Plan, task: Task, work: Work, request: ApplyRequest) -> None:
    """Reject a plan that breaks a framework, or an environment that must not or cannot be changed."""
    refuse_broken(plan, force=request.force)
    if plan.facts.python.externally_managed and not request.break_system_packages:
        raise WorldError(
            f"{work.environment.python} is managed by the system (PEP 668)",
            code="externally-managed",
            hint=f"create a virtual environment with `{work.environment.python} -m venv .venv`, and add `--python .venv`; "
            "or say --break-system-packages",
        )
    if task.install or task.remove or task.preload or task.folder_frameworks:
        require_writable(work.environment)


def _carry_out(plan: Plan, task: Task, work: Work, request: ApplyRequest) -> Execution:
    """Execute a task with files from the indexes, and from the bundle folder if there is one."""
    from cudnn_resolve.execution.run import carry_out
    from cudnn_resolve.operations.package_source import fetching

    arch = plan.facts.platform.arch
    shared: Sequence[AptRepository] = ()
    if request.bundle_dir is not None and task.apt:
        from cudnn_resolve.operations.bundled_debs import known_repositories

        shared = known_repositories({package.repository for package in task.apt}, arch, gather_book(request))
    addresses = [action.file.url for action in (*task.install, *task.folder_wheels) if action.file is not None]
    addresses += [repository.key_url for repository in (*task.repositories, *shared)]
    with fetching(request, plan.facts, addresses) as download:
        if request.bundle_dir is not None:
            from cudnn_resolve.operations.bundle import supplied
            from cudnn_resolve.operations.bundled_debs import with_shared_debs

            task = supplied(task, request.bundle_dir, download, work.listener, trusted=request.no_hashes)
            task = with_shared_debs(task, request.bundle_dir, shared, arch or "", download, work.listener)
        return carry_out(task, replace(work, download=download, members=download.members, online=download.is_online))


def _nothing(plan: Plan) -> Execution:
    notes = tuple(warning.message for warning in plan.warnings if warning.code in ("lock-settings", "overlay"))
    return Execution(status="nothing", notes=notes)


def _cache_next_result(cache: ApplyCache, before: Plan, request: ApplyRequest, work: Work) -> None:
    """Cache the result of the next `apply` if it has nothing to do in the environment that was just changed and detected."""
    from cudnn_resolve.host.installed_files import verify_files

    path = lock_path(request)
    has_same_problems = request.given is not None and before.facts.problems == request.given.problems  # the driver was not asked again
    if path is None or not (cache.is_enabled and has_same_problems):
        return
    with suppress(CudnnResolveError):
        plan = plan_of_lock_file(path, request)
        task = _task(plan, request)
        kept = {action.name for action in before.pip if action.action == "keep"}  # their files have not been verified
        is_sound = not kept or not verify_files(work.host, work.environment.packages, kept).damages
        if task is not None and is_done(task, work) and is_sound:
            cache.store(_nothing(plan), plan)


def validation_failures(task: Task, facts: Facts, listener: Listener = SILENT) -> tuple[str, ...]:
    """Failed GPU checks of the installed stack; without a GPU nothing is tested."""
    if not or_none(facts.gpus) or not or_none(facts.driver) or not task.cudnn:
        return ()
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.operations.validate import validation_of
    from cudnn_resolve.validation.run import ValidationOptions

    book = open_book()
    names = dict.fromkeys(book.framework_of(name) or name for name in task.cudnn)
    validation = validation_of(ValidationOptions(frameworks=tuple(names), companions=False), facts, book, listener)
    return tuple(f"validation: {check.id}: {check.detail}" for check in validation.checks if check.status == "failed")


class Stopped(Struct, frozen=True, kw_only=True):
    """An interrupted `apply`."""

    words: tuple[str, ...]
    """Command line that repeats the request."""
    folder: str
    """Working folder of the command, for relative paths."""
    python: str
    """Interpreter of the environment."""


def stopped(python: str | None = None) -> Stopped | None:
    """The interrupted `apply` of an environment; None if the last one finished."""
    return stopped_in(Journals(_environment(python)))


def stopped_in(journals: Journals) -> Stopped | None:
    """Like `stopped`, from an environment's journals; WorldError if the environment is half changed and no journal says by what."""
    from cudnn_resolve.execution.recover import interrupted, unfinished_of_others

    applies, mark, environment = journals.all(), journals.marked(), journals.environment
    if mark is not None and mark.words and not (applies and mark.owns(applies[-1])):  # interrupted before it had a journal
        return Stopped(words=mark.words, folder=mark.folder, python=environment.python)
    if not applies or not was_stopped(applies[-1]):
        if environment.scheme and interrupted(journals) is None and (unknown := unfinished_of_others(environment)) is not None:
            raise unknown
        return None
    begin = applies[-1].begin
    return Stopped(words=begin.words, folder=begin.folder, python=environment.python)


def undo(request: ApplyRequest, number: int | None, interaction: Interaction) -> ApplyResult:
    """Undo an `apply`; with `dry_run`, say what would be put back."""
    from cudnn_resolve.execution.recover import undo as put_back

    with locked(_environment(request.python), request, interaction, mark=False) as work:
        return ApplyResult(execution=put_back(work, number, dry_run=request.dry_run))


def history(python: str | None = None) -> HistoryResult:
    """Every `apply` of the environment, newest first."""
    from cudnn_resolve.report.document import history as documents

    environment = _environment(python)
    journals = Journals(environment)
    applies = journals.all()
    handle = hold(environment.scheme["purelib"])
    if handle is not None:
        handle.release()
    undoable = [past.id for past in applies if journals.can_undo(past)]
    return HistoryResult(applies=documents(applies, undoable, is_running=handle is None))


def _environment(python: str | None) -> Environment:
    host = LinuxHost()
    path, _ = choose_python(host, python)
    return ask_environment(host, path)


@contextmanager
def locked(environment: Environment, request: ApplyRequest, interaction: Interaction, *, mark: bool = True) -> Iterator[Work]:
    """Execution context, while no other `apply` can change the environment; WorldError if one is running."""
    from cudnn_resolve.execution.task import Work

    journals = Journals(environment)
    folder = environment.scheme["purelib"]
    running = journals.marked()
    is_orphaned = running is not None and bool(running.at) and not alive(running.pid)
    handle = hold(folder, wait_seconds=_ORPHAN_SECONDS if is_orphaned else _RACE_SECONDS)
    if handle is None:
        running = journals.marked()
        process = f" (process {running.pid}, since {running.at})" if running is not None and running.at else ""
        raise WorldError(
            f"another apply is running in {environment.prefix}{process}",
            code="busy",
            context=folder,
            hint="wait until it has ended",
        )
    if not handle.is_locked:
        interaction.listener.note(
            f"note: the file system of {folder} does not support locks: make sure that no other apply runs in the meantime"
        )
    try:
        if mark:
            _mark(journals, environment, request.words)
        yield Work(
            host=LinuxHost(),
            journals=journals,
            hold=handle,
            listener=interaction.listener,
            words=request.words,
            installer=request.installer,
            managed=request.break_system_packages,
            trusted=request.no_hashes,
            force=request.force,
        )
    finally:
        if mark:  # a killed process leaves its mark
            with suppress(WorldError):
                journals.unmark()
        handle.release()


def _mark(journals: Journals, environment: Environment, words: tuple[str, ...]) -> None:
    """Record the running `apply` in the environment, if that is writable."""
    if disk.writable(environment.scheme["purelib"]):
        journals.mark(words)
