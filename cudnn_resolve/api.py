"""The functions behind every command: a typed request in, a typed result out.

The command line calls them and prints the results; `import cudnn_resolve` offers them with keyword arguments. Nothing is printed here:
a listener gets progress and notes, and an interaction confirms before anything changes. Each function imports its operation when called,
so that a command pays for no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cudnn_resolve.errors import ContradictionError, UsageError
from cudnn_resolve.listener import SILENT, Listener
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
from cudnn_resolve.operations.settings import for_this_machine, project_settings, with_settings

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.operations.apply import ApplyResult, HistoryResult, Interaction, Stopped
    from cudnn_resolve.operations.bundle import BundleResult
    from cudnn_resolve.operations.check import CheckResult
    from cudnn_resolve.operations.clean import CleanResult
    from cudnn_resolve.operations.doctor import DoctorResult
    from cudnn_resolve.operations.explorer import Site
    from cudnn_resolve.operations.fleet_classes import FleetResult
    from cudnn_resolve.operations.lock import LockCheckResult, LockResult
    from cudnn_resolve.operations.matrix import Answer, MatrixCheckResult, MatrixFrameworkResult, MatrixListResult, MatrixStackResult
    from cudnn_resolve.operations.plan import PlanResult
    from cudnn_resolve.operations.results import FactsResult
    from cudnn_resolve.operations.validate import ValidationResult
    from cudnn_resolve.operations.why import WhyResult

O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options
P = TypeVar("P", PlanRequest, ApplyRequest)


def detect(request: MachineOptions) -> FactsResult:
    """Facts of this machine and one environment, or those of a facts file, checked and completed."""
    from cudnn_resolve.operations.machine_facts import detect_facts, read_facts
    from cudnn_resolve.operations.results import FactsResult, recast

    request = _with_settings_of_this_machine(request)
    if request.given is not None:
        return recast(FactsResult, request.given)
    if request.facts is None:
        return recast(FactsResult, detect_facts(request))
    from cudnn_resolve.host.tables import open_book  # only a facts file may name cards to look up

    return recast(FactsResult, read_facts(request.facts, open_book()))


def plan(request: PlanRequest, listener: Listener = SILENT) -> PlanResult:
    """Plan for the targets, or for a lock."""
    _refuse_targets_beside_lock(request)
    with _bundle_opened(with_settings(request, project_settings())) as opened:
        if opened.env is not None:
            from cudnn_resolve.operations import create_environment

            return create_environment.plan(opened, listener)
        from cudnn_resolve.operations.plan import plan as operation

        return operation(opened, listener)


def why(request: WhyRequest, listener: Listener = SILENT) -> WhyResult:
    """Chain of reasons behind one pin, or behind its absence."""
    from cudnn_resolve.host import disk
    from cudnn_resolve.operations.why import why as operation

    if not request.package:
        raise UsageError("no package is named", code="usage-argument", hint="name one, such as nvidia-cudnn-cu12")
    _refuse_targets_beside_lock(request)
    if request.lock is None and not request.names_targets and disk.is_regular(LOCK):
        request = replace(request, lock=LOCK)
    return operation(request if request.lock is not None else with_settings(request, project_settings()), listener)


def lock(request: LockRequest, listener: Listener = SILENT) -> LockResult:
    """Resolve, and write the lock."""
    from cudnn_resolve.operations.lock import make_lock

    return make_lock(request, listener)


def check_lock(request: LockRequest, listener: Listener = SILENT) -> LockCheckResult:
    """Say whether the existing lock is up to date and fits the machine."""
    from cudnn_resolve.operations.lock import check_lock as operation

    return operation(request, listener)


def apply(request: ApplyRequest, interaction: Interaction | None = None) -> ApplyResult:
    """Turn the environment into the planned one, or into that of a lock."""
    from cudnn_resolve.operations import apply as operation

    _refuse_targets_beside_lock(request)
    interaction = interaction or operation.Interaction()
    request = _with_settings_of_this_machine(replace(request, words=request.command_words(), has_targets=request.names_targets))
    with _bundle_opened(request, interaction.listener) as opened:
        if opened.env is not None:
            from cudnn_resolve.operations import create_environment

            return create_environment.apply(opened, interaction)
        return operation.apply(opened, interaction)


def bundle(request: BundleRequest, listener: Listener = SILENT) -> BundleResult:
    """Make, extend or verify a bundle: a lock with every file that it names, to install from without a network."""
    from cudnn_resolve.operations.bundle import bundle as operation

    _refuse_targets_beside_lock(request)
    return operation(request, listener)


def undo(request: ApplyRequest, number: int | None = None, interaction: Interaction | None = None) -> ApplyResult:
    """Put back what an `apply` changed: the one with that number, or the last one."""
    from cudnn_resolve.operations import apply as operation

    request = _with_settings_of_this_machine(request)
    interaction = interaction or operation.Interaction()
    if request.env is not None:
        from cudnn_resolve.operations import create_environment

        return create_environment.undo(request, number, interaction)
    return operation.undo(request, number, interaction)


def history(python: str | None = None) -> HistoryResult:
    """Every `apply` of an environment, newest first."""
    from cudnn_resolve.operations.apply import history as operation

    return operation(python or _project_python())


def stopped(python: str | None = None, env: str | None = None) -> Stopped | None:
    """The interrupted `apply` of an environment; None if the last one finished."""
    if env is not None:
        from cudnn_resolve.operations import create_environment

        return create_environment.stopped(env)
    from cudnn_resolve.operations.apply import stopped as operation

    return operation(python or _project_python())


def validate(request: ValidateRequest, listener: Listener = SILENT) -> ValidationResult:
    """Run the frameworks and cuDNN, and check the results."""
    from cudnn_resolve.operations.validate import validate as operation

    return operation(with_settings(request, {"python": request.python or _project_python()}), listener)


def check(request: CheckRequest) -> CheckResult:
    """Verdict on an environment, a lock or a list of packages."""
    from cudnn_resolve.operations.check import check as operation

    return operation(with_settings(request))


def clean(request: CleanRequest) -> CleanResult:
    """Show the disk space held by undo and caches, and free what cannot be used any more."""
    from cudnn_resolve.operations.clean import clean as operation

    return operation(request)


def doctor(request: DoctorRequest, listener: Listener = SILENT) -> DoctorResult:
    """Findings from a log, from the machine, or from both together."""
    from cudnn_resolve.operations.doctor import diagnose

    return diagnose(_with_settings_of_this_machine(request), listener)


def fleet(request: FleetRequest, listener: Listener = SILENT) -> FleetResult:
    """Run a verb for many machines, class by class."""
    from cudnn_resolve.operations.fleet import fleet as operation

    return operation(_with_settings_of_this_machine(request), listener)


def matrix_list(request: MatrixRequest) -> Answer[MatrixListResult]:
    """Overview of the tables, as a text and as a value."""
    from cudnn_resolve.operations.matrix import everything

    return everything(_book(request))


def matrix_show(request: MatrixRequest) -> Answer[MatrixFrameworkResult | MatrixStackResult]:
    """Table rows about one name, as a text and as a value."""
    from cudnn_resolve.operations.matrix import look_up

    if request.name is None:
        raise UsageError("matrix show needs a name", code="matrix-argument", hint="`matrix list` shows the names")
    return look_up(_book(request), request.name, request.which)


def matrix_site(request: MatrixRequest, folder: str, listener: Listener = SILENT) -> Site:
    """Write the tables as web pages into a folder."""
    from cudnn_resolve.operations.explorer import write_site

    return write_site(_layers(request), folder, listener)


def check_matrix(request: MatrixRequest, listener: Listener = SILENT) -> MatrixCheckResult:
    """Every fault in the tables; with `live`, also how a sample of rows differs from the package index."""
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


def _layers(request: MatrixRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders with additional rows: those that were named, and those of the project."""
    settings = project_settings()
    return tuple(request.matrix or settings.get("matrix", ())), tuple(settings.get("project-matrix", ()))


def _book(request: MatrixRequest) -> Book:
    from cudnn_resolve.host.tables import open_book

    return open_book(*_layers(request))


def _refuse_targets_beside_lock(request: PlanRequest | ApplyRequest | BundleRequest | WhyRequest) -> None:
    """Reject targets named together with a lock; those in the project's settings are ignored instead."""
    if request.lock is not None and (request.framework or request.packages or request.requirement):
        raise ContradictionError("a lock cannot be combined with targets", hint="`cudnn-resolve lock` changes what the lock installs")


@contextmanager
def _bundle_opened(request: P, listener: Listener = SILENT) -> Iterator[P]:
    """Replace a bundle in the request by the lock inside, for as long as the context lasts."""
    if request.lock is not None:
        from cudnn_resolve.host.bundle import bundle_of

        found = bundle_of(request.lock)
        if found is not None:
            from cudnn_resolve.operations.bundle import opened

            with opened(request, *found, listener) as inside:
                yield inside
            return
    yield request


def _project_python() -> str | None:
    """The interpreter in the project's settings."""
    python: str | None = project_settings().get("python")
    return python


def _with_settings_of_this_machine(request: O) -> O:
    """Complete the request by the project's settings, except those about another machine."""
    return with_settings(request, for_this_machine(project_settings()))
