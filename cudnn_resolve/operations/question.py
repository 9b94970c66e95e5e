"""The inputs of a resolution: tables, facts, request and package source, gathered from the options of a command."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.operations.machine_facts import facts_meanwhile, refuse_other_systems
from cudnn_resolve.operations.options import Options, StatedOptions

if TYPE_CHECKING:
    from cudnn_resolve.index.client import IndexClient
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request

    _T = TypeVar("_T")


class Question(Struct, frozen=True, kw_only=True):
    """The inputs of a resolution."""

    book: Book
    facts: Facts
    machine: Machine
    request: Request
    source: IndexClient
    wants_ranges: bool = False
    """Also compute the versions that each party allows, for a picture."""


_SHARED: ContextVar[dict[Any, Any] | None] = ContextVar("shared", default=None)


def share() -> None:
    """Share tables and index clients among all further questions of this process, so that each is read once."""
    _SHARED.set({})


def _shared(key: object, make: Callable[[], _T]) -> _T:
    """The shared object under a key, made on first use; a new one each time without `share`."""
    cache = _SHARED.get()
    if cache is None:
        return make()
    if key not in cache:
        cache[key] = make()
    cached: _T = cache[key]
    return cached


def gather_book(options: StatedOptions) -> Book:
    """The shipped tables with the overlays that the options name; MatrixError for a malformed one."""
    from cudnn_resolve.host.tables import open_book

    folders = tuple(options.matrix), tuple(options.project_matrix)
    return _shared(("book", folders), lambda: open_book(*folders))


def gather_question(
    options: Options, *, fresh: bool = False, verb: str = "plan", listener: Listener = SILENT, facts: Facts | None = None
) -> Question:
    """Gather the inputs of a resolution for the command `verb`.

    With `fresh` the environment counts as empty. `facts` replace those that the options describe. UsageError, InputError or WorldError
    if an input is invalid or unavailable.
    """
    from cudnn_resolve.operations.package_source import direct_of, open_packages, settings_of
    from cudnn_resolve.operations.request import configured_constraints, request_of, requirements_of
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.requirement.model import RequirementLine

    book = gather_book(options)
    requirements = requirements_of(options)
    request_of(options, book, requirements)  # reports a wrong word now, not after the seconds that detection takes
    if facts is None:
        future = facts_meanwhile(options, book)
        from cudnn_resolve.index import client  # noqa: F401 - during detection
        from cudnn_resolve.resolution import resolve  # noqa: F401 - likewise

        facts = future.result()
    refuse_other_systems(facts)
    settings = settings_of(options, requirements, facts)
    source = _shared(("source", repr(settings), options.offline), lambda: open_packages(settings, listener, offline=options.offline))
    direct, extras = direct_of(requirements, source)
    if verb != "lock" and options.given is None and not options.is_elsewhere:
        extras = (*extras, *configured_constraints(source.settings.constraints, source.notes))
    reinstalled = _reinstalled(options, facts)
    installed = or_none(facts.packages.pip) or {}
    extras = (*extras, *(RequirementLine(text=f"{name}=={installed[name]}", origin="--reinstall-package") for name in reinstalled))
    request = request_of(options, book, replace(requirements, extras=(*requirements.extras, *extras)), direct)
    request = replace(request, verb=verb, reinstall=frozenset(reinstalled))
    if not request.targets:  # without a framework, a reinstall needs no GPU
        request = replace(request, device="cpu")
    machine = machine_of(facts, book)
    if fresh:
        machine = replace(machine, pip={}, requires={})
    if not options.offline:
        _prefetch(source, book, machine, request)
    if request.targets:
        book = _with_new_releases(book, request, machine, source)
    return Question(book=book, facts=facts, machine=machine, request=request, source=source, wants_ranges=options.ranges)


def _prefetch(source: IndexClient, book: Book, machine: Machine, request: Request) -> None:
    """Let the client request the packages that the resolution is likely to need."""
    from cudnn_resolve.resolution.marker import apply_markers
    from cudnn_resolve.resolution.open_request import open_request
    from cudnn_resolve.resolution.prefetch import likely_packages

    source.prefetch(
        likely_packages(book, machine, apply_markers(open_request(request), machine) if machine.python is not None else request)
    )


def _with_new_releases(book: Book, request: Request, machine: Machine, source: IndexClient) -> Book:
    """Tables with provisional rows for releases that only the index knows; equal tables are shared."""
    from cudnn_resolve.resolution.provisional import with_new_releases

    extended = with_new_releases(book, request, machine, source)
    if extended is book:
        return book
    books: list[Book] = _shared(("new releases", id(book)), list)
    known = next((other for other in books if other.layers[-1] == extended.layers[-1]), None)
    if known is not None:
        return known
    books.append(extended)
    return extended


def _reinstalled(options: Options, facts: Facts) -> tuple[str, ...]:
    """Normalized names of the packages to reinstall; UsageError for one that is not installed."""
    if not options.reinstall_package:
        return ()
    from packaging.utils import canonicalize_name

    if facts.python.externally_managed:
        raise UsageError(
            f"cannot reinstall packages of {facts.python.prefix or 'that Python'}: the system manages this environment",
            code="externally-managed",
            context="--reinstall-package",
            hint="use the system's package manager for its own packages, and a virtual environment for wheels",
        )
    names: tuple[str, ...] = tuple(dict.fromkeys(canonicalize_name(name) for name in options.reinstall_package))
    installed = or_none(facts.packages.pip) or {}
    for name in names:
        if name not in installed:
            raise UsageError(
                f"{name!r} is not installed in {facts.python.prefix or 'that environment'}",
                code="not-installed",
                context="--reinstall-package",
                hint="`cudnn-resolve detect` lists installed packages",
            )
    return names
