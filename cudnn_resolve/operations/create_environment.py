"""`--env`: create an environment with a suitable Python; inside it, `apply` works as in any other environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.execution import creation
from cudnn_resolve.execution.environment import find_uv
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.model import Execution, Trouble
from cudnn_resolve.execution.task import task_of
from cudnn_resolve.facts.assume import fresh_environment, python_of
from cudnn_resolve.facts.distribution import OLDEST_OF_UV
from cudnn_resolve.facts.model import Facts, Python
from cudnn_resolve.host import disk
from cudnn_resolve.host.environment_mutex import hold
from cudnn_resolve.host.interrupt import InterruptError, ignored_signals, interruptible
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.listener import Listener, SearchProgress
from cudnn_resolve.operations import apply as apply_operation
from cudnn_resolve.operations.apply import ApplyResult, Interaction, Stopped
from cudnn_resolve.operations.apply_cache import ApplyCache
from cudnn_resolve.operations.machine_facts import gather_facts
from cudnn_resolve.operations.options import ApplyRequest, PlanRequest
from cudnn_resolve.operations.plan import LockMisfitError, PlanResult, command_of, plan_of_lock_file, plan_targets
from cudnn_resolve.operations.plan import plan as plan_operation
from cudnn_resolve.operations.question import gather_book, gather_question
from cudnn_resolve.operations.results import recast
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.step import with_environment
from cudnn_resolve.probe.python import ask_python, interpreters
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.resolution.marker import NO_TARGET
from cudnn_resolve.resolution.resolve import resolved
from cudnn_resolve.resolution.strategies import PYTHONS

_KERNEL = "ipykernel"

R = TypeVar("R", ApplyRequest, PlanRequest)


class Base(Struct, frozen=True, kw_only=True):
    """A Python from which the environment can be created."""

    python: Python
    path: str | None = None
    """The interpreter; None for one that uv downloads."""
    why: str = ""

    @property
    def name(self) -> str:
        """Argument of `uv venv --python`: the path, or the version."""
        return self.path or self.python.minor


class EnvironmentPlan(Struct, frozen=True, kw_only=True):
    """The plan for a new environment, and its Python."""

    plan: Plan
    base: Base
    request: Request | None = None
    """None for a lock."""


def plan(request: PlanRequest, listener: Listener) -> PlanResult:
    """Plan a new environment, or the update of an existing one."""
    journals = _journals(request.env)
    if not request.is_elsewhere and creation.state_of(journals) == "made":
        return plan_operation(_inside(_with_kernel(request), journals), listener)
    answer = _plan_environment(_with_kernel(request), journals.environment.prefix, listener)
    return recast(PlanResult, answer.plan, command=command_of(answer.plan, request, answer.request))


def apply(request: ApplyRequest, interaction: Interaction) -> ApplyResult:
    """Create the environment with its packages, completely or not at all; update an existing one."""
    journals = _journals(request.env)
    prefix = journals.environment.prefix
    folder = creation.kernel_folder(LinuxHost().environ, request.kernel) if request.kernel else None
    if folder is not None:
        creation.refuse_other_kernel(folder, prefix)
    is_made = creation.state_of(journals) == "made"
    if is_made:
        result = apply_operation.apply(_inside(_with_kernel(request), journals), interaction)
    else:
        result = _create(_with_kernel(request), journals, folder, interaction)
    if result.execution is None or result.execution.status not in ("done", "nothing") or result.plan is None:
        return result
    if folder is not None and is_made:
        creation.add_kernel(journals, folder)
        _register(result.plan, folder, prefix)
    return replace(result, execution=replace(result.execution, use=_use(prefix, request.kernel)))


def undo(request: ApplyRequest, number: int | None, interaction: Interaction) -> ApplyResult:
    """Undo an `apply` in the environment; undoing the one that created it removes the environment."""
    journals = _journals(request.env)
    prefix = journals.environment.prefix
    state = creation.state_of(journals)
    if state == "absent":
        return ApplyResult(execution=Execution(status="nothing"))
    foreign: Sequence[str] = ()
    if state == "unfinished":
        if not request.dry_run:
            with _locked(journals):
                foreign = creation.discard(journals)
        return _removed(Execution(status="dry-run" if request.dry_run else "undone"), prefix, foreign)
    record = creation.creation_of(journals)
    committed = [past.id for past in journals.all() if past.state == "committed"]
    creator = record.by if record is not None else None
    removes_all = creator is not None and creator == (number or max(committed, default=0))
    if not removes_all or request.dry_run:
        result = apply_operation.undo(_inside(request, journals), number, interaction)
        return _removed(result.execution, prefix, ()) if removes_all and result.execution is not None else result
    assert creator is not None
    creation.begin_removal(journals)  # from here on the environment is to be removed, even after a kill
    undone: ApplyResult | None = None
    try:
        undone = apply_operation.undo(_inside(request, journals), number, interaction)
    finally:
        if undone is not None and undone.status in ("undone", "broken"):
            with ignored_signals(), _locked(journals):
                foreign = creation.discard(journals)
        else:
            creation.finish(journals, creator)
    return _removed(undone.execution, prefix, foreign) if undone.execution is not None else undone


def _removed(execution: Execution, prefix: str, foreign: Sequence[str]) -> ApplyResult:
    """Add a note that the environment is removed, except for `foreign` files."""
    note = f"{prefix}, which it created, {'would be' if execution.status == 'dry-run' else 'was'} removed"
    if foreign:
        note += f", except files of others: {', '.join(foreign[:5])}{' and more' if len(foreign) > 5 else ''}"
    return ApplyResult(execution=replace(execution, notes=(*execution.notes, note)))


def stopped(env: str) -> Stopped | None:
    """The interrupted `apply` that was creating or changing the environment; None if the last one finished."""
    journals = _journals(env)
    if creation.state_of(journals) == "made":
        return apply_operation.stopped(journals.environment.prefix)
    record = creation.creation_of(journals)
    if record is not None:
        return Stopped(words=record.words, folder=record.folder, python="")
    return apply_operation.stopped_in(journals)


def _journals(env: str | None) -> Journals:
    assert env is not None
    return creation.journals_at(disk.real(env))


def _create(request: ApplyRequest, journals: Journals, kernel: str | None, interaction: Interaction) -> ApplyResult:
    prefix = journals.environment.prefix
    answer = _plan_environment(request, prefix, interaction.listener, "plan" if request.dry_run else "apply")
    result = recast(PlanResult, answer.plan)
    if not answer.plan.is_satisfiable:
        return ApplyResult(plan=result)
    if answer.base.path is None and find_uv(LinuxHost()) is None and not request.dry_run:
        raise _no_python(answer)
    interaction.listener.note(f"note: {answer.base.why}")
    if interaction.confirm is not None and not interaction.confirm(answer.plan):
        return ApplyResult(execution=Execution(status="declined"), plan=result)
    if request.dry_run:
        return ApplyResult(execution=Execution(status="dry-run"), plan=result)
    folders = disk.missing_folders(prefix)
    disk.make_folder(prefix)
    try:
        with _locked(journals) as handle:
            folders = (*folders, *_cleared(journals))
            creation.begin(journals, request.words, kernel, folders)
            execution = _create_whole(answer, request, journals, kernel, interaction, handle)
    except CudnnResolveError:
        for folder in folders:
            disk.remove_empty(folder)
        raise
    return ApplyResult(execution=execution, plan=result)


def _cleared(journals: Journals) -> tuple[str, ...]:
    """Remove an interrupted creation, which starts over; return the folders that were made for it.

    WorldError if another process has created an environment meanwhile, UsageError if something else lies there now.
    """
    before = creation.creation_of(journals)
    if creation.state_of(journals) == "unfinished" and before is not None:
        creation.discard(journals, keep_folder=True)
    if creation.state_of(journals) == "made":
        raise WorldError(
            f"another apply has created {journals.environment.prefix} meanwhile", code="busy", hint="run the command again to update it"
        )
    return before.folders if before is not None else ()


def _create_whole(
    answer: EnvironmentPlan, request: ApplyRequest, journals: Journals, kernel: str | None, interaction: Interaction, handle: int
) -> Execution:
    """Create the environment, and discard it on any failure."""
    prefix = journals.environment.prefix
    try:
        with interruptible():
            execution = _fill(answer, request, journals, interaction, handle)
            if execution.status == "done":
                if kernel is not None:
                    _register(answer.plan, kernel, prefix)
                creation.write_guide(journals, _guide(answer.plan, prefix, request.kernel))
    except InterruptError as error:
        execution = Execution(status="interrupted", trouble=Trouble(message=f"interrupted ({error})", code="interrupted"))
    except BaseException:
        with ignored_signals():
            creation.discard(journals)
        raise
    with ignored_signals():
        if execution.status == "done":
            assert execution.id is not None
            creation.finish(journals, execution.id)
        else:
            creation.discard(journals)
    return execution


def _fill(answer: EnvironmentPlan, request: ApplyRequest, journals: Journals, interaction: Interaction, handle: int) -> Execution:
    """Create an empty environment, and execute the plan in it as in any other."""
    base = answer.base
    interaction.listener.begin(f"creating an environment with {base.name}")
    host = LinuxHost()
    uv = None if request.installer == "pip" and base.path else find_uv(host)  # uv creates an environment without pip
    environment = creation.make_environment(journals, base.name, uv, host, (handle,))
    interaction.listener.end()
    expected = base.python.minor
    if not f"{environment.version}.".startswith(f"{expected}."):
        raise WorldError(f"{base.name} created an environment of Python {environment.version}, not {expected}", code="env-failed")
    inside = _inside(request, journals)
    with apply_operation.locked(environment, inside, interaction) as work:
        task = task_of(answer.plan, gather_book(request).framework_of)
        cache = ApplyCache(inside, apply_operation.lock_path(inside))
        return apply_operation.execute(answer.plan, task, work, inside, replace(interaction, confirm=None), cache)


@contextmanager
def _locked(journals: Journals) -> Iterator[int]:
    """Keep other processes from creating or removing the environment."""
    prefix = journals.environment.prefix
    handle = hold(prefix)
    if handle is None:
        raise WorldError(f"another apply is running in {prefix}", code="busy", hint="wait until it has ended")
    try:
        yield handle.handle
    finally:
        handle.release()


def _with_kernel(request: R) -> R:
    """Add the package that a Jupyter kernel needs, unless a lock is installed."""
    if request.kernel is None or request.lock is not None:
        return request
    return replace(request, packages=(*request.packages, _KERNEL))


def _inside(request: R, journals: Journals) -> R:
    """The request for the existing environment."""
    return replace(request, env=None, kernel=None, python=journals.environment.prefix, python_version=None)


# ---- choice of Python


def _plan_environment(options: ApplyRequest | PlanRequest, prefix: str, listener: Listener, verb: str = "plan") -> EnvironmentPlan:
    """Plan for the first Python for which there is an answer; without any, the conflict of the first one."""
    detected = gather_facts(replace(options, env=None, python_version=None), gather_book(options))
    first: tuple[Base, Facts, LockMisfitError | None] | None = None
    for base in _bases(options, detected):
        facts = _facts_in(prefix, base.python, detected)
        listener.tell(f"Python {base.python.version}")
        misfit: LockMisfitError | None = None
        try:
            answer = _plan_with(facts, options, listener, verb)
        except LockMisfitError as error:
            answer, misfit = None, error
        except UsageError as error:
            if error.code != NO_TARGET:
                raise
            answer = None
        if answer is None:
            first = first or (base, facts, misfit)
            continue
        plan, request = answer
        why = _why(base, first[0] if first is not None else None, plan)
        plan = with_environment(plan, base.path or base.name, prefix, why, kernel=options.kernel)
        return EnvironmentPlan(plan=replace(plan, notes=(*plan.notes, why)), base=replace(base, why=why), request=request)
    if first is None:
        hint = "such as --python-version 3.11"
        raise UsageError(f"there is no Python {options.python_version}", code="option-python-version", hint=hint)
    base, facts, misfit = first
    if misfit is not None:
        raise misfit
    conflict = plan_targets(options, listener, verb, facts)
    return EnvironmentPlan(plan=conflict.plan, base=base, request=conflict.outcome.request)


def _facts_in(prefix: str, python: Python, detected: Facts) -> Facts:
    """Facts of the machine with the new, empty environment."""
    facts = fresh_environment(detected)
    inside = replace(python, path=f"{prefix}/bin/python", prefix=prefix, externally_managed=False)
    return replace(facts, python=inside, sources={**facts.sources, "python": "--env"})


def _plan_with(facts: Facts, options: ApplyRequest | PlanRequest, listener: Listener, verb: str) -> tuple[Plan, Request | None] | None:
    """Plan for an environment with these facts, and the resolved request (None for a lock); None for a conflict."""
    path = apply_operation.lock_path(options)
    if path is not None:
        return plan_of_lock_file(path, replace(options, given=facts, env=None, python=None, python_version=None)), None
    question = gather_question(options, verb=verb, listener=listener, facts=facts)
    resolution = resolved(question.book, question.machine, question.request, question.source, progress=SearchProgress(listener))
    if resolution is None:
        return None
    return make_plan(facts, resolution, question.book, question.source), resolution.request


def _bases(options: ApplyRequest | PlanRequest, facts: Facts) -> Iterator[Base]:
    """Possible Pythons in order of preference: the default one, others on this machine, then those that uv downloads; newest first."""
    default = facts.python
    if options.python is not None or (options.python_version is None and default.version is not None):
        yield Base(python=default, path=None if options.is_elsewhere else default.path)
    if options.python is not None:
        return
    minors = sorted(PYTHONS, reverse=True)
    if options.python_version is not None:
        minors = [_minor(python_of(options.python_version))]
    offered: set[tuple[int, int]] = {_minor(default)} if options.python_version is None else set()
    if not options.is_elsewhere:
        host = LinuxHost()
        for minor, paths in sorted(interpreters(host).items(), reverse=True):
            base = _first_usable(host, paths, options.python_version or "") if minor in minors and minor not in offered else None
            if base is not None:
                offered.add(minor)
                yield base
    for minor in minors:
        if minor not in offered and minor >= OLDEST_OF_UV:
            yield Base(python=Python(version=options.python_version or f"{minor[0]}.{minor[1]}"))


def _first_usable(host: Host, paths: Sequence[str], wanted: str) -> Base | None:
    """The first interpreter of the wanted version that works and can create an environment."""
    has_uv = find_uv(host) is not None
    for path in paths:
        try:
            python = ask_python(host, path, "").python
        except CudnnResolveError:
            continue
        is_wanted = not wanted or f"{python.version}.".startswith(f"{wanted}.")
        if not is_wanted or python.free_threaded:
            continue
        if has_uv or host.run([path, "-I", "-c", "import ensurepip, venv"], timeout_seconds=20.0).ok:
            return Base(python=python, path=path)
    return None


def _minor(python: Python) -> tuple[int, int]:
    major, _, rest = (python.version or "0.0").partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _why(base: Base, first: Base | None, plan: Plan) -> str:
    """The chosen Python, and why it is not the `first` one."""
    python = f"Python {base.python.version}, {base.path or 'which uv downloads'}"
    return python if first is None else f"{python}: {', '.join(plan.targets)} cannot be installed with Python {first.python.version}"


def _no_python(answer: EnvironmentPlan) -> WorldError:
    version = answer.base.name
    return WorldError(
        f"{', '.join(answer.plan.targets)} needs Python {version}, which is not installed here",
        code="python-missing",
        hint=f"`pip install uv` to download it; or `apt-get install python{version}-venv`, `conda create -n py python={version}`",
    )


# ---- how to use it


def _register(plan: Plan, folder: str, prefix: str) -> None:
    loader = ":".join(setting.value for setting in plan.environment if setting.kind in ("ldconfig", "env"))
    creation.register_kernel(folder, prefix, ", ".join(plan.targets), loader)


def _use(prefix: str, kernel: str | None) -> tuple[str, ...]:
    """Instructions for the user."""
    lines = (f"use it: `source {quote(f'{prefix}/bin/activate')}`, or start programs with {prefix}/bin/python",)
    return (*lines, f"in Jupyter, choose the kernel {kernel}") if kernel else lines


def _guide(plan: Plan, prefix: str, kernel: str | None) -> str:
    """Text of the file with instructions in the environment."""
    lines = [f"{', '.join(plan.targets)}: an environment created by cudnn-resolve", "", *_use(prefix, kernel)]
    lines += ["", "What the frameworks load is built in: LD_LIBRARY_PATH need not be set.", ""]
    return "\n".join([*lines, f"Remove it: `cudnn-resolve apply --undo --env={quote(prefix)}`", ""])
