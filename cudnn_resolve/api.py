"""The functions of the package: a typed request in, a typed result out.

The command line calls them and prints what they return; `import cudnn_resolve` offers them with keyword arguments. Nothing is printed
here: a listener hears what goes on, and an interaction is asked before anything changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from cudnn_resolve.errors import CudnnResolveError, UsageError
from cudnn_resolve.operations.keywords import as_keywords, make, together
from cudnn_resolve.operations.listener import NOBODY, Listener
from cudnn_resolve.operations.options import (
    LOCK,
    ApplyRequest,
    BundleRequest,
    CheckRequest,
    CleanRequest,
    DoctorRequest,
    FleetRequest,
    LockRequest,
    MachineOptions,
    MatrixRequest,
    PlanRequest,
    ValidateRequest,
    WhyRequest,
)
from cudnn_resolve.operations.settings import project_settings, this_machine, with_settings

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.operations.apply import ApplyResult, HistoryResult, Interaction, Stopped
    from cudnn_resolve.operations.bundle import BundleResult
    from cudnn_resolve.operations.check import CheckResult
    from cudnn_resolve.operations.clean import CleanResult
    from cudnn_resolve.operations.doctor import DoctorResult
    from cudnn_resolve.operations.explorer import Site
    from cudnn_resolve.operations.fleet_facts import FleetResult
    from cudnn_resolve.operations.lock import LockCheckResult, LockResult
    from cudnn_resolve.operations.matrix import Answer, MatrixCheckResult, MatrixFrameworkResult, MatrixListResult, MatrixStackResult
    from cudnn_resolve.operations.plan import PlanResult
    from cudnn_resolve.operations.results import FactsResult
    from cudnn_resolve.operations.validate import ValidationResult
    from cudnn_resolve.operations.why import WhyResult

O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options
R = TypeVar("R", bound=Struct)
T = TypeVar("T")


def detect(request: MachineOptions) -> FactsResult:
    """The facts of this machine and of one environment, or those of a facts file, checked and completed."""
    from cudnn_resolve.operations.gather import detect_facts, read_facts
    from cudnn_resolve.operations.results import FactsResult, recast

    request = _here(request)
    if request.given is not None:
        return recast(FactsResult, request.given)
    if request.facts is None:
        return recast(FactsResult, detect_facts(request))
    from cudnn_resolve.host.tables import open_book  # paid where a card must be looked up

    return recast(FactsResult, read_facts(request.facts, open_book()))


def plan(request: PlanRequest, listener: Listener = NOBODY) -> PlanResult:
    """The plan for the targets, or the one that leads to a lock."""
    _refuse_targets(request)
    request = _settled(request)
    if not _is_of_bundle(request.lock):
        return _plan(request, listener)
    from cudnn_resolve.operations.bundle import opened

    with opened(request) as inside:
        return _plan(inside, listener)


def _plan(request: PlanRequest, listener: Listener) -> PlanResult:
    if request.env is not None:
        from cudnn_resolve.operations import environment

        return environment.plan(request, listener)
    from cudnn_resolve.operations.plan import plan as operation

    return operation(request, listener)


def _refuse_targets(request: PlanRequest | ApplyRequest | BundleRequest | WhyRequest) -> None:
    """Reject targets beside a lock; those of the project's settings are no contradiction."""
    if request.lock is not None and (request.framework or request.packages or request.requirement):
        hint = "the lock says what is installed; `cudnn-resolve lock` changes it"
        raise UsageError("a lock and targets contradict each other", code="usage-contradiction", hint=hint)


def why(request: WhyRequest, listener: Listener = NOBODY) -> WhyResult:
    """The chain of reasons behind one pin, or behind its absence."""
    from cudnn_resolve.host import disk
    from cudnn_resolve.operations.why import why as operation

    if not request.package:
        raise UsageError("no package is named", code="usage-argument", hint="name one, such as nvidia-cudnn-cu12")
    _refuse_targets(request)
    if request.lock is None and not request.names_targets and disk.is_regular(LOCK):
        request = replace(request, lock=LOCK)
    return operation(request if request.lock is not None else _settled(request), listener)


def lock(request: LockRequest, listener: Listener = NOBODY) -> LockResult:
    """The lock, which is written to its file."""
    from cudnn_resolve.operations.lock import make_lock

    return make_lock(request, listener)


def check_lock(request: LockRequest, listener: Listener = NOBODY) -> LockCheckResult:
    """Whether the lock that is there is still the right one, and fits the machine."""
    from cudnn_resolve.operations.lock import check_lock as operation

    return operation(request, listener)


def _is_of_bundle(lock: str | None) -> bool:
    if lock is None:
        return False
    from cudnn_resolve.host.bundle import bundle_of

    return bundle_of(lock) is not None


def apply(request: ApplyRequest, interaction: Interaction | None = None) -> ApplyResult:
    """Turn the environment into the planned one, or into that of a lock."""
    from cudnn_resolve.operations import apply as operation

    _refuse_targets(request)
    interaction = interaction or operation.DEFAULT
    request = _here(replace(request, words=request.again(), has_targets=request.names_targets))
    if not _is_of_bundle(request.lock):
        return _apply(request, interaction)
    from cudnn_resolve.operations.bundle import opened

    with opened(request, interaction.reporter) as inside:
        return _apply(inside, interaction)


def _apply(request: ApplyRequest, interaction: Interaction) -> ApplyResult:
    from cudnn_resolve.operations import apply as operation

    if request.env is not None:
        from cudnn_resolve.operations import environment

        return environment.apply(request, interaction)
    return operation.apply(request, interaction)


def bundle(request: BundleRequest, interaction: Interaction | None = None) -> BundleResult:
    """A lock with every file that it names, to install from without a network: made, extended, or verified."""
    from cudnn_resolve.operations.apply import DEFAULT
    from cudnn_resolve.operations.bundle import bundle as operation

    _refuse_targets(request)
    interaction = interaction or DEFAULT
    return operation(request, interaction.listener, interaction.reporter)


def undo(request: ApplyRequest, number: int | None = None, interaction: Interaction | None = None) -> ApplyResult:
    """Put back what an `apply` changed, the last one without a number."""
    from cudnn_resolve.operations import apply as operation

    request = _here(request)
    if request.env is not None:
        from cudnn_resolve.operations import environment

        return environment.undo(request, number, interaction or operation.DEFAULT)
    return operation.undo(request, number, interaction or operation.DEFAULT)


def history(python: str | None = None) -> HistoryResult:
    """Every `apply` of an environment, the newest first."""
    from cudnn_resolve.operations.apply import history as operation

    return operation(python or _python())


def stopped(python: str | None = None, env: str | None = None) -> Stopped | None:
    """The `apply` that was stopped in the middle; None where the last one came to its end."""
    if env is not None:
        from cudnn_resolve.operations import environment

        return environment.stopped(env)
    from cudnn_resolve.operations.apply import stopped as operation

    return operation(python or _python())


def validate(request: ValidateRequest, listener: Listener = NOBODY) -> ValidationResult:
    """The checks of the frameworks and of cuDNN at work."""
    from cudnn_resolve.operations.validate import validate as operation

    return operation(with_settings(request, {"python": request.python or _python()}), listener)


def check(request: CheckRequest) -> CheckResult:
    """The verdict on what somebody already has: an environment, a lock, a list of packages."""
    from cudnn_resolve.operations.check import check as operation

    return operation(with_settings(request))


def clean(request: CleanRequest) -> CleanResult:
    """What undo and caches hold of the disk; what nobody can use any more is freed."""
    from cudnn_resolve.operations.clean import clean as operation

    return operation(request)


def doctor(request: DoctorRequest, listener: Listener = NOBODY) -> DoctorResult:
    """The findings of a log, of the machine, or of both together."""
    from cudnn_resolve.operations.doctor import diagnose

    return diagnose(_here(request), listener)


def fleet(request: FleetRequest, listener: Listener = NOBODY) -> FleetResult:
    """The answer of a verb for many machines, class by class."""
    from cudnn_resolve.operations.fleet import fleet as operation

    return operation(_here(request), listener)


def matrix_list(request: MatrixRequest) -> Answer[MatrixListResult]:
    """What the tables hold, as a text and as a value."""
    from cudnn_resolve.operations.matrix import everything

    return everything(_book(request))


def matrix_show(request: MatrixRequest) -> Answer[MatrixFrameworkResult | MatrixStackResult]:
    """What the tables say of one name, as a text and as a value."""
    from cudnn_resolve.operations.matrix import look_up

    if request.name is None:
        raise UsageError("matrix show needs a name", code="matrix-argument", hint="matrix list shows what there is")
    return look_up(_book(request), request.name, request.which)


def _layers(request: MatrixRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders of rows that are named, and those of the project."""
    settings = project_settings()
    return tuple(request.matrix or settings.get("matrix", ())), tuple(settings.get("project-matrix", ()))


def _book(request: MatrixRequest) -> Book:
    from cudnn_resolve.host.tables import open_book

    return open_book(*_layers(request))


def matrix_site(request: MatrixRequest, folder: str, listener: Listener = NOBODY) -> Site:
    """The pages of the tables, which are written into a folder."""
    from cudnn_resolve.operations.explorer import write_site

    return write_site(_layers(request), folder, listener)


def check_matrix(request: MatrixRequest, listener: Listener = NOBODY) -> MatrixCheckResult:
    """Every fault of the tables, and where it is asked for what a sample of rows says otherwise than the index."""
    from cudnn_resolve.host.clock import today
    from cudnn_resolve.host.tables import check_tables, open_book
    from cudnn_resolve.operations.matrix import MatrixCheckResult

    named, of_project = _layers(request)
    faults, live = check_tables(named, of_project), None
    if request.live and not faults:
        from cudnn_resolve.operations.matrix_live import compare, open_client

        with open_client(request.index_url) as client:
            live = compare(open_book(named, of_project), client, max(1, request.sample), today(), listener)
    return MatrixCheckResult(faults=faults, tables=("matrices", *of_project, *named), live=live)


def call(function: Callable[[R], T], kind: type[R], named: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> T:
    """Call one of these functions with the keyword arguments that a function of the package names, and its further `options`.

    Messages speak of arguments in the place of options. A notebook is shown the picture of the ranges.
    """
    try:
        request = make(kind, together(kind, named, options or {}))
        if "ranges" in kind.__struct_fields__:
            from cudnn_resolve.operations.notebook_kernel import in_notebook

            request = replace(request, ranges=in_notebook())
        return function(request)
    except CudnnResolveError as error:
        names = {"undo", *(field.name for field in fields(kind))}
        error.message = as_keywords(error.message, names)
        error.args = (error.message,)
        error.context = error.context and as_keywords(error.context, names)
        error.hint = error.hint and as_keywords(error.hint, names)
        raise


def undo_number(undo: Any, words: Mapping[str, Any]) -> int | None:
    """The number of the `apply` to undo, None for the last one; UsageError where it is none, or where targets stand beside it."""
    if undo is not True and (not isinstance(undo, int) or undo < 1):
        raise UsageError(f"undo cannot be {undo!r:.80}: expected True or a number of history()", code="usage-argument")
    request = make(ApplyRequest, words)
    nothing = ApplyRequest(python=request.python, env=request.env, dry_run=request.dry_run, force=request.force, restart=request.restart)
    further = [one.name for one in fields(ApplyRequest) if getattr(request, one.name) != getattr(nothing, one.name)]
    if further:
        raise UsageError(f"undo takes no {further[0]}", code="usage-contradiction", hint="leave one of them out")
    return None if undo is True else undo


def _settled(request: O) -> O:
    """The request over the project's settings."""
    return with_settings(request, project_settings())


def _python() -> str | None:
    """The interpreter that the project's settings name."""
    found: str | None = project_settings().get("python")
    return found


def _here(request: O) -> O:
    """The request over those of the project's settings that do not speak of another machine."""
    return with_settings(request, this_machine(project_settings()))
