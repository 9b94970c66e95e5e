"""What operations need before they can work: the matrix, the facts, and the question that a resolution is asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, Gpu, Packages, Platform, Python, or_none
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.files import STDIN, read_bounded
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.options import MachineOptions, Options, StatedOptions
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.index.client import IndexClient
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.named_machine import Place
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request

    _T = TypeVar("_T")

_GENERATIONS, _BRANCHES = 8, 100
"""How much newer than the tables a GPU's capability and a driver's branch may be."""


class Question(Struct, frozen=True, kw_only=True):
    """What a resolution is asked, and what it is asked of."""

    book: Book
    facts: Facts
    machine: Machine
    request: Request
    source: IndexClient


_COMMON: ContextVar[dict[Any, Any] | None] = ContextVar("common", default=None)


def share() -> None:
    """Let all further questions of this process have their tables and indexes in common: each reads what those before it have not."""
    _COMMON.set({})


def _common(key: object, make: Callable[[], _T]) -> _T:
    """What `make` gives, or gave for the key to an earlier question."""
    found = _COMMON.get()
    if found is None:
        return make()
    if key not in found:
        found[key] = make()
    known: _T = found[key]
    return known


def gather_question(
    options: Options, *, fresh: bool = False, verb: str = "plan", listener: Listener = SILENT, facts: Facts | None = None
) -> Question:
    """The question behind the options, asked by a command; `fresh`: for a new environment, whatever is installed in this one.

    `facts` stand for those that the options describe.

    UsageError, InputError or WorldError where a part of it cannot be had.
    """
    from cudnn_resolve.operations.package_source import direct_of, open_packages, settings_of
    from cudnn_resolve.operations.request import request_of, wishes_of
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.requirement.model import Extra

    book = gather_book(options)
    wishes = wishes_of(options)
    request_of(options, book, wishes)  # a wrong word is said at once, not after the seconds that a machine takes
    if facts is None:
        told = facts_meanwhile(options, book)
        from cudnn_resolve.index import client  # noqa: F401 - while the machine answers
        from cudnn_resolve.resolution import resolve  # noqa: F401 - the same

        facts = told.result()
    refuse_other_systems(facts)
    settings = settings_of(options, wishes, facts)
    source = _common(("source", repr(settings), options.offline), lambda: open_packages(settings, listener, offline=options.offline))
    direct, extras = direct_of(wishes, source)
    if verb != "lock" and options.given is None and not options.is_elsewhere:
        from cudnn_resolve.operations.constraint import configured

        extras = (*extras, *configured(source.settings.constraints, source.notes))
    anew = _reinstalled(options, facts)
    there = or_none(facts.packages.pip) or {}
    extras = (*extras, *(Extra(text=f"{name}=={there[name]}", origin="--reinstall-package") for name in anew))
    request = request_of(options, book, replace(wishes, extras=(*wishes.extras, *extras)), direct)
    request = replace(request, verb=verb, anew=frozenset(anew))
    if not request.targets:  # packages laid anew are no stack: nothing is asked of a GPU
        request = replace(request, device="cpu")
    machine = machine_of(facts, book)
    if fresh:
        machine = replace(machine, pip={}, requires={})
    if not options.offline:
        from cudnn_resolve.resolution.marker import settle
        from cudnn_resolve.resolution.open_request import opened
        from cudnn_resolve.resolution.prefetch import likely_packages

        source.expect(likely_packages(book, machine, settle(opened(request), machine) if machine.python is not None else request))
    if request.targets:
        from cudnn_resolve.resolution.provisional import with_new_releases

        found = with_new_releases(book, request, machine, source)
        if found is not book:
            books: list[Book] = _common(("new releases", id(book)), list)
            book = next((one for one in books if one.layers[-1] == found.layers[-1]), found)
            if book is found:
                books.append(found)
    return Question(book=book, facts=facts, machine=machine, request=request, source=source)


def refuse_other_systems(facts: Facts) -> None:
    """Reject facts of Windows or macOS: the tables are of Linux."""
    if facts.platform.system not in (None, "linux"):
        raise InputError(
            f"the facts are of a machine with {facts.platform.system}: only Linux is planned for",
            code="platform-unsupported",
            hint="for WSL or a container on it, add --platform linux_x86_64",
        )


def _reinstalled(options: Options, facts: Facts) -> tuple[str, ...]:
    """The packages to be laid anew, by their normalized names; UsageError for one that is not installed."""
    if not options.reinstall_package:
        return ()
    from packaging.utils import canonicalize_name

    if facts.python.externally_managed:
        raise UsageError(
            f"the environment {facts.python.prefix or 'of that Python'} is managed by the system: no package of it is laid anew",
            code="externally-managed",
            context="--reinstall-package",
            hint="the system's package manager lays its own packages anew; wheels go into a virtual environment",
        )
    names: tuple[str, ...] = tuple(dict.fromkeys(canonicalize_name(one) for one in options.reinstall_package))
    installed = or_none(facts.packages.pip) or {}
    for name in names:
        if name not in installed:
            raise UsageError(
                f"{name!r} is not installed in {facts.python.prefix or 'that environment'}",
                code="not-installed",
                context="--reinstall-package",
                hint="`cudnn-resolve detect` lists what is",
            )
    return names


def gather_book(options: StatedOptions) -> Book:
    """The shipped matrix under the overlays that the options name; MatrixError where one is malformed."""
    from cudnn_resolve.host.tables import open_book

    named = tuple(options.matrix), tuple(options.project_matrix)
    return _common(("book", named), lambda: open_book(*named))


def gather_facts(options: StatedOptions, book: Book) -> Facts:
    """The facts that a plan is for: of `--facts`, of a fresh environment elsewhere, or of this machine; then what the user states.

    Nothing is detected where nothing of this machine counts. InputError, UsageError or WorldError where a source is wrong.
    """
    stated = options.assumptions
    if options.given is not None:
        facts: Facts = options.given
    elif options.facts is not None:
        facts = read_facts(options.facts, book)
    elif stated.machine is not None:
        facts = facts_of_place(stated.machine, book)
    elif stated.elsewhere:
        facts = Facts()
    else:
        assume(Facts(), stated, card_of(book))  # a wrong word is said at once, not after the seconds that a machine takes
        facts = detect_facts(options)
    facts = assume(facts, stated, card_of(book))
    if stated.gpus:
        _refuse_impossible(facts, book)
    if stated.driver is not None:
        _refuse_future(stated.driver, book)
    return facts


def facts_meanwhile(options: StatedOptions, book: Book) -> Future[Facts]:
    """The facts, for which nobody waits yet. Standard input is read here: Python aborts where it ends while a thread waits for that."""
    if options.facts == STDIN and options.given is None:
        options = replace(options, given=read_facts(STDIN, book))
    return Later(lambda: gather_facts(options, book))


def places(book: Book) -> tuple[Place, ...]:
    """Every place that people name."""
    from cudnn_resolve.matrix.named_machine import Place

    return book.rows(Place)


def facts_of_place(name: str, book: Book) -> Facts:
    """What is known of a place that people name; UsageError with the nearest for one that nobody knows."""
    from difflib import get_close_matches

    from cudnn_resolve.matrix.named_machine import find

    place = find(places(book), name)
    if place is None:
        known = {shape.rstrip(".*"): one.name for one in places(book) for shape in (*one.match, one.name.casefold())}
        near = tuple(dict.fromkeys(known[one] for one in get_close_matches(name.casefold().partition(".")[0], known, n=3, cutoff=0.6)))
        raise UsageError(
            f"--machine {name!r} is not a place that the matrix knows",
            code="option-machine",
            hint=(f"did you mean {' or '.join(near)}? " if near else "")
            + "`cudnn-resolve matrix show machine` lists them; else --gpu, --driver",
        )
    card = book.card(place.gpu)
    gpu = Gpu(name=card.name if card else place.gpu, compute_capability=str(card.capability) if card else None)
    facts = Facts(
        platform=Platform(system="linux", arch=place.arch),
        python=Python(version=str(place.python) if place.python else None),
        driver=Driver(version=str(place.driver)) if place.driver else UNKNOWN,
        gpus=(gpu,) * place.count,
        packages=Packages(pip={}),
        frameworks=(),
        sources=dict.fromkeys(("platform.arch", "gpus", *(("driver.version",) if place.driver else ())), f"--machine {name}"),
    )
    return facts if place.os is None else assume(facts, Assumptions(os=place.os), card_of(book))


def read_facts(path: str, book: Book) -> Facts:
    """The facts of a file, `-` for standard input: as `detect` wrote them, or the output of another program that `facts.output` knows.

    InputError where there are none in it.
    """
    from cudnn_resolve.facts.codec import LIMIT_BYTES

    text = read_bounded(path, LIMIT_BYTES, "facts file")
    return facts_of_text(text, "standard input" if path == STDIN else path, book)


def facts_of_text(text: str, where: str, book: Book) -> Facts:
    """The facts in a text, as `read_facts` finds them in a file."""
    from cudnn_resolve.facts.codec import from_mapping, parse_object

    output = None
    if not text.lstrip().startswith("{"):  # a note of a facts file may quote what a program prints
        from cudnn_resolve.facts.output import read_output

        output = read_output(text)
    if output is None:
        found = parse_object(text, where)
        if "schema" not in found:
            from cudnn_resolve.facts.output import read_json_output

            output = read_json_output(found)
        if output is None:
            return from_mapping(found, where)
    return _with_capabilities(from_mapping(output, where), book)


def _with_capabilities(facts: Facts, book: Book) -> Facts:
    """Compute capabilities of the cards that were only named."""
    gpus = []
    for gpu in or_none(facts.gpus) or ():
        card = book.card(gpu.name) if gpu.name and gpu.compute_capability is None else None
        gpus.append(gpu if card is None else replace(gpu, compute_capability=str(card.capability)))
    return replace(facts, gpus=tuple(gpus)) if gpus else facts


def detect_facts(options: MachineOptions, known: Facts | None = None) -> Facts:
    """The facts of this machine and of the environment of `--python`; `known` is what was detected before the environment changed."""
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.probe.probe import detect

    return detect(LinuxHost(), options.python, known)


def card_of(book: Book) -> Callable[[str], Gpu]:
    """A function that answers the GPU behind the name of a card; UsageError with the nearest names for a name that nobody knows."""

    def look_up(name: str) -> Gpu:
        card = book.card(name)
        if card is not None:
            return Gpu(name=card.name, compute_capability=str(card.capability))
        near = book.nearest_cards(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "give its compute capability instead, such as sm_89 or 8.9"
        raise UsageError(f"--gpu {name!r} is not a card that the matrix knows", code="option-gpu", hint=hint)

    return look_up


def _refuse_future(driver: str, book: Book) -> None:
    """UsageError for a driver of a branch far above all known ones."""
    branches = book.branches()
    if branches and DriverVersion(driver).major > branches[-1].number + _BRANCHES:
        raise UsageError(
            f"--driver {driver!r}: no driver has that version; the newest branch that is known is {branches[-1].name}",
            code="option-driver",
            hint="`nvidia-smi` prints the driver's version, such as 550.54.15",
        )


def _refuse_impossible(facts: Facts, book: Book) -> None:
    """UsageError for a compute capability that no GPU has, or for the GPU of a Jetson in a machine that is not aarch64.

    A capability above all known ones may be newer than the tables.
    """
    known = sorted(row.capability for row in book.architectures())
    integrated = {row.capability for row in book.architectures() if row.tegra}
    for gpu in or_none(facts.gpus) or ():
        if not gpu.compute_capability:
            continue
        capability = Capability.parse(gpu.compute_capability)
        above = known and capability.major > known[-1].major + _GENERATIONS
        if known and (above or capability < known[-1]) and capability not in known:
            near = sorted(known, key=lambda one: (abs(one.major - capability.major), abs(one.minor - capability.minor)))[:3]
            raise UsageError(
                f"--gpu: no GPU has the compute capability {capability}",
                code="option-gpu",
                hint=f"did you mean {' or '.join(str(one) for one in sorted(near))}?",
            )
        if capability in integrated and facts.platform.arch not in (None, "aarch64"):
            raise UsageError(
                f"--gpu: {gpu.name or capability} is on boards with Arm processors alone, and the plan would be for {facts.platform.arch}",
                code="option-gpu",
                hint="for another machine say --platform linux_aarch64",
            )
