"""Facts of a machine for a command: detected, read from a file, of a well-known machine, or stated by options."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, did_you_mean
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, Gpu, Packages, Platform, Python, or_none
from cudnn_resolve.host import disk
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.files import STDIN, read_bounded
from cudnn_resolve.operations.options import MachineOptions, StatedOptions
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.named_machine import Place

_NEWER_MAJORS, _NEWER_BRANCHES = 8, 100
"""Largest plausible distance above the tables: of a compute capability's major, and of a driver branch."""


def gather_facts(options: StatedOptions, book: Book) -> Facts:
    """Facts for a plan: from `--facts`, of a fresh environment elsewhere, or of this machine; then the stated facts replace them.

    Detects nothing if nothing of this machine counts. InputError, UsageError or WorldError for an invalid source.
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
        assume(Facts(), stated, card_of(book))  # reports a wrong word now, not after the seconds that detection takes
        facts = detect_facts(options)
    facts = assume(facts, stated, card_of(book))
    if stated.gpus:
        _refuse_impossible_gpu(facts, book)
    if stated.driver is not None:
        _refuse_impossible_driver(stated.driver, book)
    return facts


def facts_meanwhile(options: StatedOptions, book: Book) -> Future[Facts]:
    """Gather the facts in the background. Standard input is read at once: Python aborts if it exits while a thread waits for it."""
    if options.facts == STDIN and options.given is None:
        options = replace(options, given=read_facts(STDIN, book))
    return Later(lambda: gather_facts(options, book))


def refuse_other_systems(facts: Facts) -> None:
    """Reject facts of Windows or macOS: the tables cover Linux only."""
    if facts.platform.system not in (None, "linux"):
        raise InputError(
            f"the facts describe a machine with {facts.platform.system}; only Linux is supported",
            code="platform-unsupported",
            hint="for WSL or a container on it, add --platform linux_x86_64",
        )


def places(book: Book) -> tuple[Place, ...]:
    """Every well-known machine in the tables."""
    from cudnn_resolve.matrix.named_machine import Place

    return book.rows(Place)


def facts_of_place(name: str, book: Book) -> Facts:
    """Facts of a well-known machine; UsageError with the nearest names for an unknown one."""
    from difflib import get_close_matches

    from cudnn_resolve.matrix.named_machine import find

    place = find(places(book), name)
    if place is None:
        known = {pattern.rstrip(".*"): place.name for place in places(book) for pattern in (*place.match, place.name.casefold())}
        near = get_close_matches(name.casefold().partition(".")[0], known, n=3, cutoff=0.6)
        suggestion = did_you_mean(dict.fromkeys(known[word] for word in near))
        raise UsageError(
            f"--machine {name!r} is not in the tables",
            code="option-machine",
            hint=f"{suggestion} `cudnn-resolve matrix show machine` lists them; for others say --gpu, --driver".strip(),
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


def facts_files(place: str) -> list[str]:
    """The facts files in a folder, one for each machine, or the named file itself; InputError for an empty folder."""
    if not disk.is_folder(place):
        return [place]
    names = sorted(name for name in disk.names_in(place) if not name.startswith("."))
    if not names:
        raise InputError(f"the folder {place} holds no facts", code="facts-empty", hint="a file for each machine")
    return [os.path.join(place, name) for name in names]


def read_facts(path: str, book: Book) -> Facts:
    """Facts in a file, `-` for standard input: written by `detect`, or output of another program that `facts.output` recognizes.

    InputError if it holds none.
    """
    from cudnn_resolve.facts.codec import LIMIT_BYTES

    text = read_bounded(path, LIMIT_BYTES, "facts file")
    return facts_of_text(text, "standard input" if path == STDIN else path, book)


def facts_of_text(text: str, where: str, book: Book) -> Facts:
    """Facts in a text, as `read_facts` finds them in a file."""
    from cudnn_resolve.facts.codec import from_mapping, parse_object

    output = None
    if not text.lstrip().startswith("{"):  # a note in a facts file may quote the output of a program
        from cudnn_resolve.facts.output import read_output

        output = read_output(text)
    if output is None:
        json_object = parse_object(text, where)
        if "schema" not in json_object:
            from cudnn_resolve.facts.output import read_json_output

            output = read_json_output(json_object)
        if output is None:
            return from_mapping(json_object, where)
    return _with_capabilities(from_mapping(output, where), book)


def _with_capabilities(facts: Facts, book: Book) -> Facts:
    """Look up missing compute capabilities by the names of the cards."""
    gpus = []
    for gpu in or_none(facts.gpus) or ():
        card = book.card(gpu.name) if gpu.name and gpu.compute_capability is None else None
        gpus.append(gpu if card is None else replace(gpu, compute_capability=str(card.capability)))
    return replace(facts, gpus=tuple(gpus)) if gpus else facts


def detect_facts(options: MachineOptions, known: Facts | None = None) -> Facts:
    """Detect this machine and the environment of `--python`; `known` are facts from before the environment changed, to reuse."""
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.probe.probe import detect

    return detect(LinuxHost(), options.python, known)


def card_of(book: Book) -> Callable[[str], Gpu]:
    """A lookup of GPUs by name; it raises UsageError with the nearest names for an unknown card."""

    def look_up(name: str) -> Gpu:
        card = book.card(name)
        if card is not None:
            return Gpu(name=card.name, compute_capability=str(card.capability))
        hint = did_you_mean(book.nearest_cards(name)) or "give its compute capability instead, such as sm_89 or 8.9"
        raise UsageError(f"--gpu {name!r} is not in the tables", code="option-gpu", hint=hint)

    return look_up


def _refuse_impossible_driver(driver: str, book: Book) -> None:
    """Reject a driver of a branch far above all known ones."""
    branches = book.branches()
    if branches and DriverVersion(driver).major > branches[-1].number + _NEWER_BRANCHES:
        raise UsageError(
            f"--driver {driver!r}: no such driver exists; the newest known branch is {branches[-1].name}",
            code="option-driver",
            hint="`nvidia-smi` prints the driver version, such as 550.54.15",
        )


def _refuse_impossible_gpu(facts: Facts, book: Book) -> None:
    """Reject a compute capability that no GPU has, and a Jetson GPU in a machine that is not aarch64.

    A capability above all known ones may be newer than the tables.
    """
    known = sorted(row.capability for row in book.architectures())
    integrated = {row.capability for row in book.architectures() if row.tegra}
    for gpu in or_none(facts.gpus) or ():
        if not gpu.compute_capability:
            continue
        capability = Capability.parse(gpu.compute_capability)
        is_too_new = known and capability.major > known[-1].major + _NEWER_MAJORS
        if known and (is_too_new or capability < known[-1]) and capability not in known:
            by_distance = sorted(known, key=lambda other: (abs(other.major - capability.major), abs(other.minor - capability.minor)))
            raise UsageError(
                f"--gpu: no GPU has the compute capability {capability}",
                code="option-gpu",
                hint=did_you_mean(sorted(by_distance[:3])),
            )
        if capability in integrated and facts.platform.arch not in (None, "aarch64"):
            raise UsageError(
                f"--gpu: {gpu.name or capability} exists only on Arm boards, but the plan is for {facts.platform.arch}",
                code="option-gpu",
                hint="for another machine say --platform linux_aarch64",
            )
