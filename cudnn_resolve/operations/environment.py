"""`--env`: a new environment with a Python that has an answer, planned and made; `apply` then does in it what it does in any other."""

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
from cudnn_resolve.execution.journals import Journals
from cudnn_resolve.execution.model import Execution, Trouble
from cudnn_resolve.execution.task import task_of
from cudnn_resolve.facts.assume import fresh_environment, python_of
from cudnn_resolve.facts.model import Facts, Python
from cudnn_resolve.host import disk
from cudnn_resolve.host.environment_lock import hold
from cudnn_resolve.host.interrupt import InterruptError, ignored_signals, interruptible
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.operations import apply as changing
from cudnn_resolve.operations.apply import DEFAULT, ApplyResult, Interaction, Stopped
from cudnn_resolve.operations.apply_memory import settled_of
from cudnn_resolve.operations.gather import gather_book, gather_facts, gather_question
from cudnn_resolve.operations.listener import SILENT, Listener, SearchProgress
from cudnn_resolve.operations.options import ApplyRequest, PlanRequest
from cudnn_resolve.operations.plan import LockMisfitError, PlanResult, answered, command_of, plan_of_lock_file
from cudnn_resolve.operations.plan import plan as operation
from cudnn_resolve.operations.results import recast
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.step import with_environment
from cudnn_resolve.probe.python import ask_python, interpreters
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.resolution.attempt import PYTHONS
from cudnn_resolve.resolution.marker import NO_TARGET
from cudnn_resolve.resolution.resolve import resolved

_KERNEL = "ipykernel"
_FETCHED = (3, 8)
"""The oldest Python that uv fetches."""


class Base(Struct, frozen=True, kw_only=True):
    """A Python that the environment could have."""

    python: Python
    path: str | None = None
    """The interpreter; None for one that is not here, which uv fetches."""
    why: str = ""

    @property
    def name(self) -> str:
        """What `uv venv` and people call it."""
        return self.path or ".".join((self.python.version or "").split(".")[:2])


class Answer(Struct, frozen=True, kw_only=True):
    """The plan for a new environment, and the Python that it has."""

    plan: Plan
    base: Base
    asked: Request | None = None
    """None for a lock."""


def plan(request: PlanRequest, listener: Listener = SILENT) -> PlanResult:
    """The plan for a new environment, or of what brings one up to date that is there."""
    journals = _journals(request.env)
    if not request.is_elsewhere and creation.state_of(journals) == "made":
        return operation(_inside(_with_kernel(request), journals), listener)
    found = _answer(_with_kernel(request), journals.environment.prefix, listener)
    return recast(PlanResult, found.plan, command=command_of(found.plan, request, found.asked))


def apply(request: ApplyRequest, interaction: Interaction = DEFAULT) -> ApplyResult:
    """Make the environment and what is planned in it; one that is there is brought up to date. It is there whole, or not at all."""
    journals = _journals(request.env)
    prefix = journals.environment.prefix
    folder = creation.kernel_folder(LinuxHost().environ, request.kernel) if request.kernel else None
    if folder is not None:
        creation.refuse_other_kernel(folder, prefix)
    state = creation.state_of(journals)
    wanted, is_made = _with_kernel(request), state == "made"
    done = changing.apply(_inside(wanted, journals), interaction) if is_made else _create(wanted, journals, folder, interaction)
    if done.execution is None or done.execution.status not in ("done", "nothing") or done.plan is None:
        return done
    if folder is not None and is_made:
        creation.add_kernel(journals, folder)
        _register(done.plan, folder, prefix)
    return replace(done, execution=replace(done.execution, use=_use(prefix, request.kernel)))


def undo(request: ApplyRequest, number: int | None, interaction: Interaction = DEFAULT) -> ApplyResult:
    """Put back what an `apply` changed in the environment; the one that made it takes it away whole."""
    journals = _journals(request.env)
    prefix = journals.environment.prefix
    state = creation.state_of(journals)
    if state == "absent":
        return ApplyResult(execution=Execution(status="nothing"))
    if state == "unfinished":
        left: Sequence[str] = ()
        if not request.dry_run:
            with _held(journals):
                left = creation.discard(journals)
        return _gone(Execution(status="dry-run" if request.dry_run else "undone"), prefix, left)
    found = creation.creation_of(journals)
    committed = [one.id for one in journals.all() if one.state == "committed"]
    whole = found is not None and found.by is not None and found.by == (number or max(committed, default=0))
    if whole and not request.dry_run:
        creation.begin_removal(journals)  # from here on it is to go, also after a kill
    done: ApplyResult | None = None
    left = ()
    try:
        done = changing.undo(_inside(request, journals), number, interaction)
    finally:
        if whole and not request.dry_run:
            assert found is not None
            assert found.by is not None
            if done is not None and done.status in ("undone", "broken"):
                with ignored_signals(), _held(journals):
                    left = creation.discard(journals)
            else:
                creation.finish(journals, found.by)
    if whole and done.execution is not None:
        return _gone(done.execution, prefix, left)
    return done


def _gone(done: Execution, prefix: str, left: Sequence[str]) -> ApplyResult:
    said = f"{prefix}, which it made, {'would be' if done.status == 'dry-run' else 'is'} gone"
    if left:
        said += f", but for what others put there: {', '.join(left[:5])}{' and more' if len(left) > 5 else ''}"
    return ApplyResult(execution=replace(done, notes=(*done.notes, said)))


def stopped(env: str) -> Stopped | None:
    """The `apply` that was stopped while it made the environment, or changed it; None where the last one came to its end."""
    journals = _journals(env)
    if creation.state_of(journals) == "made":
        return changing.stopped(journals.environment.prefix)
    found = creation.creation_of(journals)
    if found is not None:
        return Stopped(words=found.words, folder=found.folder, python="")
    return changing.stopped_of(journals)


def _journals(env: str | None) -> Journals:
    assert env is not None
    return creation.journals_at(disk.real(env))


def _create(request: ApplyRequest, journals: Journals, kernel: str | None, interaction: Interaction) -> ApplyResult:
    prefix = journals.environment.prefix
    found = _answer(request, prefix, interaction.listener, "plan" if request.dry_run else "apply")
    shown = recast(PlanResult, found.plan)
    if not found.plan.is_satisfiable:
        return ApplyResult(plan=shown)
    if found.base.path is None and find_uv(LinuxHost()) is None and not request.dry_run:
        raise _no_python(found)
    interaction.listener.note(f"note: {found.base.why}")
    if interaction.confirm is not None and not interaction.confirm(found.plan):
        return ApplyResult(execution=Execution(status="declined"), plan=shown)
    if request.dry_run:
        return ApplyResult(execution=Execution(status="dry-run"), plan=shown)
    folders = disk.missing_folders(prefix)
    disk.make_folder(prefix)
    try:
        with _held(journals) as handle:
            folders = (*folders, *_cleared(journals))
            creation.begin(journals, request.words, kernel, folders)
            done = _whole(found, request, journals, kernel, interaction, handle)
    except CudnnResolveError:
        for folder in folders:
            disk.remove_empty(folder)
        raise
    return ApplyResult(execution=done, plan=shown)


def _cleared(journals: Journals) -> tuple[str, ...]:
    """Take away what was stopped before: it is made from the beginning. The folders that were made for it then.

    WorldError where others made an environment there meanwhile, UsageError where they put something else there.
    """
    before = creation.creation_of(journals)
    if creation.state_of(journals) == "unfinished" and before is not None:
        creation.discard(journals, keep_folder=True)
    if creation.state_of(journals) == "made":
        raise WorldError(
            f"another apply made {journals.environment.prefix} meanwhile", code="busy", hint="run the command again: it changes that one"
        )
    return before.folders if before is not None else ()


def _whole(
    found: Answer, request: ApplyRequest, journals: Journals, kernel: str | None, interaction: Interaction, handle: int
) -> Execution:
    """What became of making the environment, which is there whole then, or not at all."""
    prefix = journals.environment.prefix
    try:
        with interruptible():
            done = _fill(found, request, journals, interaction, handle)
            if done.status == "done":
                if kernel is not None:
                    _register(found.plan, kernel, prefix)
                creation.write_guide(journals, _guide(found.plan, prefix, request.kernel))
    except InterruptError as error:
        done = Execution(status="interrupted", trouble=Trouble(message=f"interrupted ({error})", code="interrupted"))
    except BaseException:
        with ignored_signals():
            creation.discard(journals)
        raise
    with ignored_signals():
        if done.status == "done":
            assert done.id is not None
            creation.finish(journals, done.id)
        else:
            creation.discard(journals)
    return done


def _fill(found: Answer, request: ApplyRequest, journals: Journals, interaction: Interaction, handle: int) -> Execution:
    """Make the environment, and carry the plan out in it as in any other."""
    interaction.reporter.begin(f"making an environment of {found.base.name}")
    host = LinuxHost()
    uv = None if request.installer == "pip" and found.base.path else find_uv(host)  # uv lays out no pip
    environment = creation.make_environment(journals, found.base.name, uv, host, (handle,))
    interaction.reporter.end()
    wanted = ".".join((found.base.python.version or "").split(".")[:2])
    if not f"{environment.version}.".startswith(f"{wanted}."):
        raise WorldError(f"{found.base.name} made an environment of Python {environment.version}, not {wanted}", code="env-failed")
    inside = _inside(request, journals)
    with changing.held(environment, inside, interaction) as work:
        task = task_of(found.plan, gather_book(request).framework_of)
        settled = settled_of(inside, changing.lock_path(inside))
        return changing.carry_through(found.plan, task, work, inside, replace(interaction, confirm=None), settled)


@contextmanager
def _held(journals: Journals) -> Iterator[int]:
    """While nobody else makes or removes the environment."""
    prefix = journals.environment.prefix
    found = hold(prefix)
    if found is None:
        raise WorldError(f"another apply is at work on {prefix}", code="busy", hint="wait until it has ended")
    try:
        yield found.handle
    finally:
        found.release()


Asked = TypeVar("Asked", "ApplyRequest", "PlanRequest")


def _with_kernel(request: Asked) -> Asked:
    """The request with what a kernel of Jupyter needs; a lock has it or not."""
    if request.kernel is None or request.lock is not None:
        return request
    return replace(request, packages=(*request.packages, _KERNEL))


def _inside(request: Asked, journals: Journals) -> Asked:
    """The same for the environment as it is."""
    return replace(request, env=None, kernel=None, python=journals.environment.prefix, python_version=None)


# ---- its Python


def _answer(options: ApplyRequest | PlanRequest, prefix: str, listener: Listener, verb: str = "plan") -> Answer:
    """The plan for the first Python that has one; for the first of all, with what stands in the way, where none has."""
    book = gather_book(options)
    detected = gather_facts(replace(options, env=None, python_version=None), book)
    refused: list[tuple[Base, Facts, LockMisfitError | None]] = []
    for base in _bases(options, detected):
        facts = _facts_in(prefix, base.python, detected)
        listener.tell(f"Python {base.python.version}")
        misfit: LockMisfitError | None = None
        try:
            found = _plan_on(facts, options, listener, verb)
        except LockMisfitError as error:
            found, misfit = None, error
        except UsageError as error:
            if error.code != NO_TARGET:
                raise
            found = None
        if found is None:
            refused.append((base, facts, misfit))
            continue
        why = _why(base, refused[0][0] if refused else None, found[0])
        made = with_environment(found[0], base.path or base.name, prefix, why, kernel=options.kernel)
        return Answer(plan=replace(made, notes=(*made.notes, why)), base=replace(base, why=why), asked=found[1])
    if not refused:
        hint = "such as --python-version 3.11"
        raise UsageError(f"there is no Python {options.python_version}", code="option-python-version", hint=hint)
    base, facts, misfit = refused[0]
    if misfit is not None:
        raise misfit
    answer = answered(options, listener, verb, facts)
    return Answer(plan=answer.plan, base=base, asked=answer.outcome.request)


def _facts_in(prefix: str, python: Python, detected: Facts) -> Facts:
    """The facts of the machine with the new environment in it, which has nothing yet."""
    facts = fresh_environment(detected)
    made = replace(python, path=f"{prefix}/bin/python", prefix=prefix, externally_managed=False)
    return replace(facts, python=made, sources={**facts.sources, "python": "--env"})


def _plan_on(facts: Facts, options: ApplyRequest | PlanRequest, listener: Listener, verb: str) -> tuple[Plan, Request | None] | None:
    """The plan for an environment of these facts, and what it answers; None where there is none."""
    path = changing.lock_path(options)
    if path is not None:
        return plan_of_lock_file(path, replace(options, given=facts, env=None, python=None, python_version=None)), None
    asked = gather_question(options, verb=verb, listener=listener, facts=facts)
    outcome = resolved(asked.book, asked.machine, asked.request, asked.source, tell=SearchProgress(listener))
    return None if outcome is None else (make_plan(facts, outcome, asked.book, asked.source), outcome.request)


def _bases(options: ApplyRequest | PlanRequest, facts: Facts) -> Iterator[Base]:
    """The Pythons that it may have: the one that is meant anyway, those that are here, those that uv fetches; the newest first."""
    here = facts.python
    if options.python is not None or (options.python_version is None and here.version is not None):
        yield Base(python=here, path=None if options.is_elsewhere else here.path)
    if options.python is not None:
        return
    minors = sorted(PYTHONS, reverse=True)
    if options.python_version is not None:
        minors = [_minor(python_of(options.python_version))]
    there: set[tuple[int, int]] = {_minor(here)} if options.python_version is None else set()
    if not options.is_elsewhere:
        host = LinuxHost()
        for minor, paths in sorted(interpreters(host).items(), reverse=True):
            base = _first_that_works(host, paths, options.python_version or "") if minor in minors and minor not in there else None
            if base is not None:
                there.add(minor)
                yield base
    for minor in minors:
        if minor not in there and minor >= _FETCHED:
            named = options.python_version or f"{minor[0]}.{minor[1]}"
            yield Base(python=Python(version=named))


def _first_that_works(host: Host, paths: Sequence[str], wanted: str) -> Base | None:
    """The first interpreter of these that answers, can make an environment, and is of the wanted version."""
    has_uv = find_uv(host) is not None
    for path in paths:
        try:
            python = ask_python(host, path, "").python
        except CudnnResolveError:
            continue
        right = not wanted or f"{python.version}.".startswith(f"{wanted}.")
        if (
            right
            and not python.free_threaded
            and (has_uv or host.run([path, "-I", "-c", "import ensurepip, venv"], timeout_seconds=20.0).ok)
        ):
            return Base(python=python, path=path)
    return None


def _minor(python: Python) -> tuple[int, int]:
    major, _, rest = (python.version or "0.0").partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _why(base: Base, first: Base | None, plan: Plan) -> str:
    """Which Python it is, and why."""
    said = f"Python {base.python.version}, {base.path}" if base.path else f"Python {base.python.version}, which uv fetches"
    return said if first is None else f"{said}: {', '.join(plan.targets)} cannot be had with Python {first.python.version}"


def _no_python(found: Answer) -> WorldError:
    version = found.base.name
    return WorldError(
        f"{', '.join(found.plan.targets)} needs Python {version}, and there is none here",
        code="python-missing",
        hint=f"`pip install uv`: then it is fetched; or `apt-get install python{version}-venv`, `conda create -n py python={version}`",
    )


# ---- how to use it


def _register(plan: Plan, folder: str, prefix: str) -> None:
    loader = ":".join(one.value for one in plan.environment if one.kind in ("ldconfig", "env"))
    creation.register_kernel(folder, prefix, ", ".join(plan.targets), loader)


def _use(prefix: str, kernel: str | None) -> tuple[str, ...]:
    """How to use the environment."""
    lines = (f"use it: `source {quote(f'{prefix}/bin/activate')}`, or start programs with {prefix}/bin/python",)
    return (*lines, f"in Jupyter, choose the kernel {kernel}") if kernel else lines


def _guide(plan: Plan, prefix: str, kernel: str | None) -> str:
    """The text of the file in the environment that says how to use it."""
    lines = [f"{', '.join(plan.targets)}: an environment that cudnn-resolve made", "", *_use(prefix, kernel)]
    lines += ["", "What the frameworks load is built in: no LD_LIBRARY_PATH needs to be set.", ""]
    return "\n".join([*lines, f"Remove it whole: `cudnn-resolve apply --undo --env={quote(prefix)}`", ""])
