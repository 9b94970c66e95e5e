"""What `apply` does, for the command line and for the library: hold, repair, plan, carry out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.cli.options import Options
from cudnn_resolve.errors import ExitCode, UsageError, WorldError
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.mark import read_mark, write_mark
from cudnn_resolve.execution.model import Execution, Reporter, Silent
from cudnn_resolve.execution.shelf import Shelf
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.host import disk
from cudnn_resolve.host.hold import alive, hold
from cudnn_resolve.host.linux import LinuxHost

if TYPE_CHECKING:
    from cudnn_resolve.execution.run import Work
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.index.download import Downloads
    from cudnn_resolve.index.session import IndexSession
    from cudnn_resolve.planning.model import Plan
    from cudnn_resolve.requirement.source import Contents, File

_ORPHAN_SECONDS = 20.0
"""How long an installer is awaited whose own `apply` was killed."""
_RACE_SECONDS = 0.3
LOCK_NAME = "pylock.toml"


class Ways(Struct, frozen=True, kw_only=True):
    """How an `apply` is to go about it."""

    lock: str | None = None
    has_targets: bool = False
    """True where the caller himself names what he wants, and not only the project's settings."""
    dry_run: bool = False
    force: bool = False
    """True: put back what a stopped `apply` replaced although others changed the environment meanwhile."""
    installer: str = "auto"
    trusted: bool = False
    managed: bool = False
    validate: bool = True
    """True where the stack is to be seen at work on the GPU that is there."""
    resume: bool = False
    restart: bool = False
    reporter: Reporter = field(default_factory=Silent)
    confirm: Callable[[Plan], bool] | None = None
    """Shows a plan that changes something, and says whether it may; None = it may."""
    watch: Callable[[str], None] | None = None
    words: tuple[str, ...] = ()
    """The words of a command line that asks for the same."""


def apply(options: Options, ways: Ways) -> tuple[Execution | None, Plan | None]:
    """What became of it, and the plan; no execution where there is no plan."""
    environment = _environment(options)
    if ways.dry_run:
        return _dry(options, ways, environment)
    with _held(environment, ways) as work:
        repaired = _repair(work, ways)
        if repaired is not None and repaired.status == "broken":
            return repaired, None
        if work.shelf.marked() is None:  # what was put back took it along
            _mark(work.shelf, environment, ways.words)
        plan, task = _plan(options, ways)
        if task is None:
            return None, plan
        return _carry_out(plan, task, work, options, ways), plan


def _dry(options: Options, ways: Ways, environment: Environment) -> tuple[Execution | None, Plan | None]:
    plan, task = _plan(options, ways)
    if task is None:
        return None, plan
    if ways.confirm is not None:
        ways.confirm(plan)
    from cudnn_resolve.execution.fetch import check_known
    from cudnn_resolve.execution.recover import interrupted

    notes: list[str] = []
    try:
        check_known(task.install, task.unpinned, trusted=ways.trusted)
    except WorldError as error:
        notes.append(error.message)
    torn = interrupted(Shelf(environment))
    if torn is not None:
        notes.append(f"apply number {torn.id} was stopped in the middle: it would be put back first, and the plan made anew")
    return Execution(status="dry-run" if plan.changes or torn is not None else "nothing", notes=tuple(notes)), plan


def _plan(options: Options, ways: Ways) -> tuple[Plan, Task | None]:
    from cudnn_resolve.cli.gather import gather_book
    from cudnn_resolve.execution.task import task_of

    path = _lock_path(options, ways)
    if path is not None:
        from cudnn_resolve.cli.from_lock import plan_of_lock_file

        plan = plan_of_lock_file(path, options)
    else:
        from cudnn_resolve.cli.plan import plan_of

        plan = plan_of(options, "plan" if ways.dry_run else "apply")
    return plan, task_of(plan, gather_book(options).framework_of) if plan.is_satisfiable else None


def _lock_path(options: Options, ways: Ways) -> str | None:
    """The lock to install: the one that was named, or where nothing was, the one that lies here; None for targets.

    A lock that lies here wins over frameworks of the project's settings, which it was made from.
    """
    if ways.lock is not None or ways.has_targets:
        return ways.lock
    if disk.is_regular(LOCK_NAME):
        return LOCK_NAME
    if options.frameworks:
        return None
    raise UsageError(
        f"nothing is asked for, and there is no {LOCK_NAME} here",
        code="no-target",
        hint="name a framework, `apply -f tensorflow==2.15`, or a lock, `apply path/to/pylock.toml`",
    )


def _carry_out(plan: Plan, task: Task, work: Work, options: Options, ways: Ways) -> Execution:
    from cudnn_resolve.execution.run import carry_out, is_done

    if is_done(task, work):
        return Execution(status="nothing", notes=tuple(one.message for one in plan.warnings if one.code == "lock-settings"))
    if plan.facts.python.externally_managed and not ways.managed:
        raise _managed(work.environment)
    if ways.confirm is not None and not ways.confirm(plan):
        return Execution(status="declined", exit_code=ExitCode.NO)

    def verify() -> tuple[str, ...]:
        from cudnn_resolve.cli.gather import detect_facts
        from cudnn_resolve.execution.after import differences

        facts = detect_facts(options)
        return differences(task, facts) or (seen_at_work(task, facts, options) if ways.validate else ())

    from cudnn_resolve.cli.notebook import imported, kernel_is_near, restart_note
    from cudnn_resolve.execution.check import package_folder

    changed = (*(one.name for one in task.install if one.installed), *task.remove)
    modules = imported(work.host, dict.fromkeys((*task.frameworks, *(package_folder(name) for name in changed))))
    with _downloads(options, plan) as download:
        done = carry_out(task, replace(work, verify=verify, download=download, members=download.members))
    if done.status != "done":
        return done
    return replace(done, restart=restart_note(modules, notebook=kernel_is_near(work.host)))


def seen_at_work(task: Task, facts: Facts, options: Options) -> tuple[str, ...]:
    """What fails of the stack at work on the GPUs of this machine, in words; nothing is tested where there is none."""
    if not or_none(facts.gpus) or not or_none(facts.driver) or not task.cudnn:
        return ()
    from cudnn_resolve.cli.gather import gather_book
    from cudnn_resolve.cli.validate import validation_of
    from cudnn_resolve.validation.run import Wish

    book = gather_book(options)
    names = dict.fromkeys(book.framework_of(name) or name for name in task.cudnn)
    found = validation_of(options, Wish(frameworks=tuple(names)), facts)
    return tuple(f"validation: {one.id}: {one.detail}" for one in found.checks if one.status == "failed")


@contextmanager
def _downloads(options: Options, plan: Plan) -> Iterator[_Fetching]:
    from cudnn_resolve.cli.packages import settings_of
    from cudnn_resolve.cli.request import wishes_of
    from cudnn_resolve.index.download import Downloads
    from cudnn_resolve.index.session import IndexSession

    settings = settings_of(options, wishes_of(options), plan.facts)
    session = IndexSession(settings)
    try:
        yield _Fetching(Downloads(session), session, offline=options.offline)
    finally:
        session.close()


class _Fetching:
    """Files of indexes, and of folders on this disk, which need not be copied."""

    def __init__(self, downloads: Downloads, session: IndexSession, *, offline: bool) -> None:
        self._downloads = downloads
        self._session = session
        self._offline = offline

    def members(self, file: File) -> Contents | None:
        """What is in a wheel; None where they cannot be had without the wheel."""
        from cudnn_resolve.execution.fetch import local_members
        from cudnn_resolve.index.address import is_local
        from cudnn_resolve.index.wheel import members_of

        if is_local(file.url):
            return local_members(file)
        return None if self._offline else members_of(self._session, file)

    def __call__(self, file: File, folder: str, progress: Callable[[int], None]) -> str:
        """The path of the file in the folder."""
        from cudnn_resolve.execution.fetch import download_local
        from cudnn_resolve.index.address import is_local

        if is_local(file.url):
            return download_local(file, folder, progress)
        if self._offline:
            raise WorldError(f"{file.filename} is not on this disk", code="offline", hint="leave --offline out")
        before = 0

        def told(name: str, there: int, total: int | None) -> None:
            nonlocal before
            del name, total
            progress(there - before)
            before = there

        return self._downloads.fetch(file, folder, told)


def _managed(environment: Environment) -> WorldError:
    return WorldError(
        f"{environment.python} belongs to the system, which manages its packages itself (PEP 668)",
        code="externally-managed",
        hint=f"make an environment of your own, `{environment.python} -m venv .venv`, and add `--python .venv`; "
        "or say --break-system-packages",
    )


class Stopped(Struct, frozen=True, kw_only=True):
    """An `apply` that was stopped in the middle."""

    words: tuple[str, ...]
    """The words of a command line that asks for the same."""
    folder: str
    """Where it was given: paths in it are relative to that."""
    python: str
    """The interpreter of the environment."""


def stopped(options: Options) -> Stopped | None:
    """The `apply` that was stopped last; None where the last one came to its end."""
    from cudnn_resolve.execution.shelf import was_stopped

    environment = _environment(options)
    shelf = Shelf(environment)
    stories, mark = shelf.stories(), read_mark(shelf)
    if mark is not None and mark.words and not (stories and mark.owns(stories[-1])):  # stopped before it had a journal
        return Stopped(words=mark.words, folder=mark.folder, python=environment.python)
    if not stories or not was_stopped(stories[-1]):
        return None
    begin = stories[-1].begin
    return Stopped(words=tuple(begin.get("words", ())), folder=begin.get("folder", "."), python=environment.python)


def undo(options: Options, ways: Ways, number: int | None) -> Execution:
    """What became of the undo, or where nothing is to be changed, what it would put back."""
    from cudnn_resolve.execution.recover import undo as put_back

    with _held(_environment(options), ways, mark=False) as work:
        return put_back(work, number, dry_run=ways.dry_run)


def history(options: Options, ways: Ways) -> list[dict[str, Any]]:
    """Every `apply` of the environment, the newest first."""
    from cudnn_resolve.report.apply import history as rows

    del ways
    environment = _environment(options)
    shelf = Shelf(environment)
    stories = shelf.stories()
    found = hold(environment.scheme["purelib"])
    if found is not None:
        found.release()
    return rows(stories, [one.id for one in stories if shelf.can_undo(one)], at_work=found is None)


def _repair(work: Work, ways: Ways) -> Execution | None:
    from cudnn_resolve.execution.recover import repair

    del ways
    return repair(work)


def _environment(options: Options) -> Environment:
    from cudnn_resolve.probe.python import choose_python

    host = LinuxHost()
    path, _ = choose_python(host, options.python)
    return ask_environment(host, path)


@contextmanager
def _held(environment: Environment, ways: Ways, *, mark: bool = True) -> Iterator[Work]:
    """With what to work, while nobody else does; WorldError where somebody is at work."""
    from cudnn_resolve.execution.run import Work

    shelf = Shelf(environment)
    folder = environment.scheme["purelib"]
    told = read_mark(shelf)
    orphaned = told is not None and not alive(told.pid)
    found = hold(folder, wait_seconds=_ORPHAN_SECONDS if orphaned else _RACE_SECONDS)
    if found is None:
        told = read_mark(shelf)
        who = f" (process {told.pid}, since {told.at})" if told is not None else ""
        raise WorldError(
            f"another apply is at work on {environment.prefix}{who}",
            code="busy",
            context=folder,
            hint="wait until it has ended",
        )
    try:
        if mark:
            _mark(shelf, environment, ways.words)
        yield Work(
            host=LinuxHost(),
            environment=environment,
            shelf=shelf,
            hold=found,
            reporter=ways.reporter,
            watch=ways.watch,
            words=ways.words,
            installer=ways.installer,
            managed=ways.managed,
            trusted=ways.trusted,
            force=ways.force,
        )
    finally:
        if mark:  # whoever is killed leaves it
            with suppress(WorldError):
                shelf.unmark()
        found.release()


def _mark(shelf: Shelf, environment: Environment, words: tuple[str, ...]) -> None:
    """Nothing; it is written down who is at work, unless nothing can be changed there."""
    if disk.writable(environment.scheme["purelib"]):
        write_mark(shelf, words)
