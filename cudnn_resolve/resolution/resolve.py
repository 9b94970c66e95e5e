"""A request on a machine to its resolution, or to the conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.resolution.bound import with_bounds
from cudnn_resolve.resolution.family import search
from cudnn_resolve.resolution.model import (
    AptPin,
    Candidate,
    Channel,
    Conflict,
    Failure,
    Override,
    Pin,
    Relaxation,
    Resolution,
)
from cudnn_resolve.resolution.opened import OpenRequest, closed, opened
from cudnn_resolve.resolution.pin import pip_pins
from cudnn_resolve.resolution.release import Release
from cudnn_resolve.resolution.rule import LIBRARIES
from cudnn_resolve.resolution.runtime import Runtime, repositories
from cudnn_resolve.resolution.settle import settle
from cudnn_resolve.resolution.solve import ROUNDS, Solved
from cudnn_resolve.resolution.universe import Budget, Universe
from cudnn_resolve.resolution.unknown import refuse_unknown_extras
from cudnn_resolve.resolution.wish import with_wishes
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import AptPattern, Build, CudnnBuild
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import Source

PYTHONS = ((3, 12), (3, 11), (3, 13), (3, 10), (3, 14), (3, 9), (3, 8), (3, 7), (3, 6))
"""Pythons to try where nobody says which one is meant: those with most wheels first."""


CLOSED_ROUNDS = 2000
"""Steps of the first search offline, which takes only what the cache knows whole; one that finds an answer takes a few hundred."""


def resolve(
    book: Book, machine: Machine, request: Request, source: Source | None = None, *, tell: Callable[[str], None] | None = None
) -> Resolution | Conflict:
    """The resolution, or the conflict with what would work instead.

    Packages come from `source`, or without one from what the matrix knows; `tell` hears from a search that takes long.
    """
    request = _for_its_device(opened(request, source, tell))
    refuse_unknown_extras(book, request)
    found = attempt(book, machine, request)
    if isinstance(found, Resolution):
        return with_what_remains(book, machine, request, found)
    from cudnn_resolve.resolution.conflict import explain

    return explain(book, machine, request)


def _for_its_device(request: OpenRequest) -> OpenRequest:
    """The request, for CPU builds where the extras of all its targets ask for those."""
    targets = (*request.targets, *request.conditional)
    return replace(request, device="cpu") if targets and all(CPU in target.extras for target in targets) else request


def with_what_remains(book: Book, machine: Machine, request: Request, found: Resolution) -> Resolution:
    """A resolution, and where its files could not all be listed, what the configured indexes would give instead."""
    request = opened(request)
    if not found.unreached or not request.variant_indexes:
        return found
    other = attempt(book, machine, replace(request, variant_indexes=False))
    if not isinstance(other, Resolution):
        return found
    from cudnn_resolve.resolution.relaxation import command, result

    line = command(request, change={"--no-variant-indexes": ""})
    change = "--no-variant-indexes: what the configured index has"
    return replace(found, remains=Relaxation(change=change, result=result(other), command=line))


def attempt(
    book: Book,
    machine: Machine,
    request: Request,
    near: dict[str, str] | None = None,
    rounds: int = ROUNDS,
    *,
    budget: Budget | None = None,
) -> Resolution | Failure:
    """The resolution, or the failure without its explanation.

    Installed packages that are built for one version of a framework move along; one for which no release fits is left behind
    and named. Where the Python is unknown, each one is tried. `rounds` bounds each search for it, `budget` all of them together.

    An answer that leaves every installed framework as it is comes first; then one that leaves pins of theirs which they can do without;
    and only then one that breaks those which the user gives up.
    """
    request = opened(request)
    *first, last = _by_care(book, machine, request)
    for one in first:
        found = _attempt_once(book, machine, one, near, min(rounds, CLOSED_ROUNDS), budget)
        if isinstance(found, Resolution):
            return found
    return _attempt_once(book, machine, last, near, rounds, budget)


def _by_care(book: Book, machine: Machine, request: OpenRequest) -> Iterator[OpenRequest]:
    """The request as it is to be tried, the most careful form first."""
    packages = {name for one in book.frameworks() for name in book.head(f"framework/{one}").get("packages", ())}
    asked = {name for target in request.targets for name in book.framework(target.framework).packages}
    if any(name in machine.pip for name in packages - asked):
        for allowed in dict.fromkeys((frozenset[str](), request.allow_break)):
            yield replace(request, allow_break=allowed, careful=True)
            yield replace(request, allow_break=allowed)
    else:
        yield request


def _attempt_once(
    book: Book, machine: Machine, request: OpenRequest, near: dict[str, str] | None, rounds: int, budget: Budget | None
) -> Resolution | Failure:
    offline = request.source is not None and request.source.offline
    first = min(rounds, CLOSED_ROUNDS) if offline else rounds
    make = partial(_universe, book, near, budget)
    found = _on_some_python(machine, request, first, partial(make, closed=offline))
    return _on_some_python(machine, request, rounds, partial(make, closed=False)) if offline and isinstance(found, Failure) else found


def _universe(
    book: Book, near: dict[str, str] | None, budget: Budget | None, machine: Machine, request: OpenRequest, *, closed: bool
) -> Universe:
    made = Universe(book, machine, request, near=near, closed=closed)
    made.budget = budget
    return made


def _on_some_python(
    machine: Machine, request: OpenRequest, rounds: int, make: Callable[[Machine, OpenRequest], Universe]
) -> Resolution | Failure:
    """The answer on the machine's Python, or on the first that has one where that is unknown."""
    if machine.python is not None:
        return _attempt(make(machine, settle(request, machine)), rounds)
    failure: Failure | None = None
    refusal: UsageError | None = None
    for python in PYTHONS:
        one = replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")
        try:
            settled = settle(request, one)
        except UsageError as error:
            refusal = refusal or error
            continue
        found = _attempt(make(one, settled), rounds)
        if isinstance(found, Resolution):
            return found
        failure = failure or found
    if failure is None:
        assert refusal is not None
        raise refusal
    return failure


def _attempt(universe: Universe, rounds: int) -> Resolution | Failure:
    book, machine, request = universe.book, universe.machine, universe.request
    companions = installed_companions(book, machine, request)
    found = search(universe, universe.root_needs(companions), rounds)
    if isinstance(found, Solved):
        return assemble(*with_wishes(universe, found, companions, rounds), ())
    if not companions:
        return found
    alone = search(universe, universe.root_needs(()), rounds)
    if isinstance(alone, Failure):
        return alone
    kept: list[str] = []
    best = alone
    for name in companions:
        with_ = search(universe, universe.root_needs([*kept, name]), rounds)
        if isinstance(with_, Solved):
            kept.append(name)
            best = with_
    return assemble(*with_wishes(universe, best, kept, rounds), tuple(name for name in companions if name not in kept))


def installed_companions(book: Book, machine: Machine, request: Request) -> tuple[str, ...]:
    """Installed packages that must move with one of the targets."""
    out: list[str] = []
    for target in request.targets:
        for name in book.framework(target.framework).companions:
            if name in machine.pip and name not in out and book.package(name) is not None:
                out.append(name)
    return tuple(out)


def assemble(universe: Universe, solved: Solved, dropped: Sequence[str]) -> Resolution:
    """The resolution behind a solve."""
    pins = with_bounds(universe, solved.pins)
    builds = tuple(pins[f"framework:{target.framework}"].candidate.payload for target in universe.request.targets)
    runtime: Runtime | None = _shared(pins, "cuda")
    cudnn: CudnnBuild | None = _shared(pins, "cudnn")
    cudnn_text, soname = _cudnn(cudnn, builds)
    minimum, why = driver_minimum(pins)
    pip = pip_pins(pins, universe)
    return Resolution(
        request=closed(universe.request),
        machine=universe.machine,
        pins=pins,
        builds=builds,
        pip=pip.pins,
        apt=_apt_pins(universe, pins),
        overrides=tuple(_overrides(universe, pins)),
        cuda=_cuda_line(universe, pins, runtime, builds),
        cudnn=cudnn_text,
        cudnn_soname=soname,
        cudnn_build=cudnn,
        channels=_channels(pins, builds),
        driver_min=minimum,
        driver_because=why,
        unasked=universe.unasked,
        dropped=tuple(dropped),
        rounds=solved.rounds,
        unreached=pip.unreached,
        guessed=pip.guessed,
    )


def _shared(pins: dict[str, Pin], name: str) -> Any:
    """What the frameworks share, else what an installed one lives on."""
    pin = pins.get(name) or pins.get(f"{name}:system")
    return pin.candidate.payload if pin is not None else None


def loaded_cudnn(resolution: Resolution, build: Build) -> str | None:
    """The cuDNN that a build of the resolution loads."""
    if build.cudnn is None:
        return None
    channel = resolution.channels.get(build.framework)
    if channel == "bundled":
        return str(build.cudnn)
    own = resolution.pins.get("cudnn:system") if channel in ("system", "apt") else None
    return own.candidate.version if own is not None else resolution.cudnn


def _cudnn(chosen: CudnnBuild | None, builds: tuple[Build, ...]) -> tuple[str | None, int | None]:
    """The cuDNN of the stack: the shared one, else the newest that a wheel bundles."""
    if chosen is not None:
        return str(chosen.version), chosen.soname
    bundled = [build.cudnn for build in builds if build.delivery == "bundled" and build.cudnn is not None]
    if not bundled:
        return None, None
    newest = max(bundled)
    return str(newest), newest.major


def _cuda_line(universe: Universe, pins: dict[str, Pin], runtime: Runtime | None, builds: tuple[Build, ...]) -> str | None:
    """The CUDA of the stack: that of the runtime library itself where it is a wheel, else the chosen line, else what is bundled."""
    for pin in pins.values():
        release = pin.candidate.payload
        if isinstance(release, Release) and not pin.candidate.extras:
            component = universe.book.component(release.package)
            if component is not None and component.library == "cudart":
                cuda = universe.book.cuda_of(release.package, release.text)
                if cuda is not None:
                    return cuda.line
    if runtime is not None:
        return runtime.line
    bundled = [build.cuda for build in builds if build.cuda is not None]
    return max(bundled).line if bundled else None


def driver_minimum(pins: dict[str, Pin]) -> tuple[str | None, str | None]:
    """The oldest driver that every need accepts, and the need that decides it."""
    best: DriverVersion | None = None
    why: str | None = None
    for reason in pins["driver"].reasons if "driver" in pins else ():
        if not reason.text.startswith("driver >= "):
            continue
        version = DriverVersion(reason.text.removeprefix("driver >= "))
        if best is None or version > best:
            best, why = version, reason.because
    return (str(best) if best else None), why


def _channels(pins: dict[str, Pin], builds: tuple[Build, ...]) -> dict[str, Channel]:
    out: dict[str, Channel] = {}
    for build in builds:
        chosen = pins.get(f"libraries:{build.framework}")
        if build.delivery == "bundled":
            out[build.framework] = "bundled"
        elif chosen is not None and chosen.candidate.payload is build and chosen.candidate.channel:
            out[build.framework] = chosen.candidate.channel
        elif build.cuda is not None:
            out[build.framework] = "pip"
    return out


def _overrides(universe: Universe, pins: dict[str, Pin]) -> list[Override]:
    out: dict[tuple[str, str, str], Override] = {}
    for pin in pins.values():
        candidate: Candidate = pin.candidate
        if candidate.kind != "pip":
            continue
        why = [reason for reason in pin.reasons if reason.obeyed]
        for reason in pin.reasons:
            if reason.obeyed or not reason.binding or reason.declared is None:
                continue
            package, by = candidate.payload.package, reason.requested_by or reason.parent or "?"
            others = [one for one in why if one.text != reason.text]
            others.sort(key=lambda one: one.parent_name == reason.parent_name)
            wanted = next((one.because for one in others), None)
            text = f"read as {reason.text.removeprefix(package)}, which is what the ABI promises"
            if universe.book.component(package) is None:
                text = f"nobody asks for {by}, and no answer keeps this pin of it"
            one = Override(
                package=package,
                requested_by=by,
                declared=reason.declared,
                chosen=candidate.version,
                reason=f"{text}; {wanted}" if wanted else text,
            )
            out.setdefault((package, by, reason.declared), one)
    return list(out.values())


def _is_pinned(pattern: AptPattern) -> bool:
    """True for the package of all runtime libraries, and for one whose name several CUDA lines share, so that apt would take the newest."""
    shared = "{major}" not in pattern.name and "*" not in pattern.version
    return pattern.library == "libraries" or (shared and pattern.library in LIBRARIES)


def _apt_pins(universe: Universe, pins: dict[str, Pin]) -> tuple[AptPin, ...]:
    out: list[AptPin] = []
    for apart in ("", ":system"):
        cuda, cudnn = pins.get(f"cuda{apart}"), pins.get(f"cudnn{apart}")
        if cuda is not None and cuda.candidate.channel == "apt":
            out += _apt_cuda(universe, cuda)
        if cudnn is not None and cuda is not None and cudnn.candidate.channel == "apt":
            build: CudnnBuild = cudnn.candidate.payload
            repository = cuda.candidate.payload.repository or next(iter(repositories(universe)), "")
            because = _because(cudnn)
            out.append(AptPin(name=build.apt_package or "", version=build.apt_version or "", repository=repository, because=because))
    return tuple(out)


def _apt_cuda(universe: Universe, pin: Pin) -> Iterator[AptPin]:
    runtime: Runtime = pin.candidate.payload
    for pattern in universe.book.apt_patterns():
        last = pattern.last
        if not pattern.first <= runtime.cuda or (last is not None and runtime.cuda > last) or not _is_pinned(pattern):
            continue
        fields = {"major": runtime.cuda.major, "minor": runtime.cuda.minor, "release": runtime.releases[-1]}
        yield AptPin(
            name=pattern.name.format(**fields),
            version=pattern.version.format(**fields),
            repository=runtime.repository or "",
            because=_because(pin),
        )


def _because(pin: Pin) -> tuple[str, ...]:
    return tuple(f"{reason.text}: {reason.because}" for reason in pin.reasons)
