"""Which versions of the driver, Python, CUDA and cuDNN each party allows: what a picture of an answer shows as bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.attempt import PYTHONS
from cudnn_resolve.resolution.build import described
from cudnn_resolve.resolution.candidate import (
    BuildCandidate,
    Candidate,
    CudaCandidate,
    CudnnCandidate,
    Fact,
    LibrariesCandidate,
    Need,
    PipCandidate,
    WheelCandidate,
)
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import CUDA, CUDNN, DRIVER, PYTHON, FrameworkKey, Key, PipKey, pip_key
from cudnn_resolve.resolution.model import Bar, Range, Resolution
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Target
    from cudnn_resolve.requirement.source import Source
    from cudnn_resolve.resolution.model import Conflict

NAMES = {DRIVER: "driver", PYTHON: "Python", CUDA: "CUDA", CUDNN: "cuDNN"}
_BEFORE = 3
"""Versions that are shown before the first that somebody wants."""


def ranges(book: Book, outcome: Resolution | Conflict, source: Source | None = None) -> tuple[Range, ...]:
    """The ranges behind a resolution; of a conflict what each target allows through any of its builds."""
    universe = Universe(Context(book, outcome.machine, opened(outcome.request, source)))
    if isinstance(outcome, Resolution):
        pins = {key: pin.candidate for key, pin in outcome.pins.items()}
        return _ranges(universe, _of_resolution(universe, outcome), {key: one.version for key, one in pins.items()}, pins)
    return _ranges(universe, _of_targets(universe), {})


def ranges_of_builds(book: Book, machine: Machine, builds: Iterable[Build], chosen: Mapping[Key, str]) -> tuple[Range, ...]:
    """The ranges of builds that somebody has, with the versions that stand beside them: these may lie outside of every bar."""
    universe = Universe(Context(book, machine, opened(Request(targets=()))))
    return _ranges(universe, ((f"{one.package} {one.version}", [_build_needs(universe, one)]) for one in builds), chosen)


def _ranges(
    universe: Universe, parties: Iterable[Party], chosen: Mapping[Key, str], pins: Mapping[Key, Any] = MappingProxyType({})
) -> tuple[Range, ...]:
    every = [(who, [list(needs) for needs in alternatives]) for who, alternatives in parties]
    found = (_range(universe, key, every, chosen.get(key), pins) for key in NAMES)
    return tuple(one for one in found if one.bars)


Party = tuple[str, Iterable[Iterable[Need]]]
"""A name, and for each of its alternatives what that needs: one alternative has to hold."""


def _of_resolution(universe: Universe, found: Resolution) -> Iterator[Party]:
    yield "you", [list(universe.root_needs(found.dropped))]
    of: dict[str, list[Need]] = {}
    for pin in found.pins.values():
        if not _is_carrier(pin.candidate):
            of.setdefault(_who(pin.candidate), []).extend(_own_needs(universe, pin.candidate))
    yield from ((who, [needs]) for who, needs in of.items())


def _own_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What a candidate needs; of a cuDNN without the wheel that carries it."""
    for need in universe.needs(candidate):
        if not (isinstance(candidate, CudnnCandidate) and isinstance(need.key, PipKey)):
            yield need


def _who(candidate: Candidate) -> str:
    if isinstance(candidate, (BuildCandidate, WheelCandidate, LibrariesCandidate)):
        return f"{candidate.build.package} {candidate.build.version}"
    return str(candidate).removesuffix(" (pip)")


def _is_carrier(candidate: Candidate) -> bool:
    """True for a wheel of CUDA or cuDNN, which says only which release it is."""
    return isinstance(candidate, PipCandidate) and candidate.key.name.startswith(("nvidia-cudnn-", "nvidia-cuda-"))


def _of_targets(universe: Universe) -> Iterator[Party]:
    """Each target with its builds that the machine allows; with all of them where it allows none."""
    for target in universe.request.targets:
        every = [list(_build_needs(universe, build)) for build in _builds(universe, target)]
        yield target.text, [needs for needs in every if all(_is_met(universe, need) for need in needs)] or every


def _is_met(universe: Universe, need: Need) -> bool:
    fact = universe.fact(need.key)
    return fact is None or need.test(fact)


def _builds(universe: Universe, target: Target) -> Iterator[Build]:
    candidates = universe.unordered(FrameworkKey(target.framework))
    yield from (one.build for one in candidates if accepts(target, one.build, universe.book))


def _build_needs(universe: Universe, build: Build) -> Iterator[Need]:
    """What a build needs of the machine, and of CUDA and cuDNN wherever they come from."""
    release = universe.context.release_of(build)
    who = described(release, build) if release is not None else f"{build.package} {build.version}"
    if release is not None:
        yield from file_needs(universe.context, release, who)
    if build.cuda is None:
        return
    yield from universe.builds.machine_needs(build, who)
    if build.delivery != "bundled":
        yield from universe.builds.library_needs(build, who, ("pip", "apt", "system"))
    else:
        cuda, cudnn = build.cuda, build.cudnn
        yield Need(CUDA, lambda one: one.cuda.line == cuda.line, f"CUDA {cuda.line}", f"{who} has it inside its wheel")
        if cudnn is not None:
            parts = cudnn.parts
            yield Need(
                CUDNN,
                lambda one: one.build.version.parts[: len(parts)] == parts and one.build.cuda_major == cuda.major,
                f"cuDNN {cudnn}",
                f"{who} has it inside its wheel",
            )


class _Row(NamedTuple):
    """A bar before the versions that are not shown are left out."""

    who: str
    wants: str
    because: str
    allowed: list[bool]


def _range(
    universe: Universe, key: Key, parties: Sequence[tuple[str, list[list[Need]]]], chosen: str | None, pins: Mapping[Key, Any]
) -> Range:
    fact = universe.fact(key)
    if chosen is None and isinstance(fact, Fact) and fact.value is not None:
        chosen = fact.version
    versions = _versions(universe, key, parties, pins)
    rows = list(_facts(universe, versions)) if key in (CUDA, CUDNN) else []
    rows += [row for who, each in parties if (row := _row(who, versions, _tests(universe, key, each))) is not None]
    rows = [row for row in rows if not all(row.allowed)]
    names = list(versions)
    shown = _shown(names, rows, chosen)
    bars = (Bar(who=row.who, wants=row.wants, because=row.because, spans=_spans(names, row.allowed, shown)) for row in rows)
    return Range(name=NAMES[key], versions=tuple(names[place] for place in shown), chosen=chosen, bars=tuple(bars))


def _shown(versions: list[str], rows: Sequence[_Row], chosen: str | None) -> list[int]:
    """The places of the versions worth showing: from a few before the first that somebody begins with.

    Left out are those that nobody takes between others that somebody does, as a cuDNN for another CUDA.
    """
    begun = [row.allowed.index(True) for row in rows if True in row.allowed and not row.allowed[0]]
    begun += [versions.index(chosen)] if chosen in versions else []
    first = max(min(begun, default=0) - _BEFORE, 0)
    taken = [place for place, version in enumerate(versions) if version == chosen or any(row.allowed[place] for row in rows)]
    inside = range(taken[0], taken[-1]) if taken else range(0)
    return [place for place in range(first, len(versions)) if place in taken or place not in inside]


def _versions(
    universe: Universe, key: Key, parties: Iterable[tuple[str, list[list[Need]]]], pins: Mapping[Key, Any]
) -> dict[str, list[Any]]:
    """The versions there are, oldest first, with the candidates of each."""
    if key == PYTHON:
        return {f"{one[0]}.{one[1]}": [Fact(key=PYTHON, version="", value=one)] for one in sorted(PYTHONS)}
    if key == DRIVER:
        floors = {need.floor for _, each in parties for needs in each for need in needs if need.key == DRIVER}
        known = {one for one in (*floors, universe.machine.user_driver) if isinstance(one, DriverVersion)}
        known |= {DriverVersion(str(one.number)) for one in universe.book.branches()}
        return {str(one): [Fact(key=DRIVER, version=str(one), value=one)] for one in sorted(known)}
    out: dict[str, list[Any]] = {}
    channel = pins[key].channel if key in pins else None
    cuda = pins[CUDA] if key == CUDNN and CUDA in pins else None
    for one in universe.unordered(key):
        if channel in (None, one.channel) and not (isinstance(cuda, CudaCandidate) and one.build.cuda_major != cuda.cuda.major):
            out.setdefault(one.version, []).append(one)
    return {version: out[version] for version in sorted(out, key=lambda one: [int(part) for part in one.split(".")])}


Test = tuple[Callable[[Any], bool], Need]


def _tests(universe: Universe, key: Key, alternatives: Iterable[Iterable[Need]]) -> list[list[Test]]:
    """What each alternative asks of the candidates; of cuDNN also through the wheel that carries it."""
    out = []
    for needs in alternatives:
        found = [(need.test, need) for need in needs if need.key == key]
        if key == CUDNN:
            wheels = {pip_key(one.build.wheel) for one in universe.unordered(CUDNN) if one.build.wheel}
            found += [(_through_wheel(universe, need), need) for need in needs if need.key in wheels]
        out.append(found)
    return out


def _through_wheel(universe: Universe, need: Need) -> Callable[[CudnnCandidate], bool]:
    of = {one.release.text: one for one in universe.unordered(need.key) if one.release is not None}

    def test(candidate: CudnnCandidate) -> bool:
        wheel = of.get(candidate.version)
        return candidate.build.wheel is None or pip_key(candidate.build.wheel) != need.key or (wheel is not None and need.test(wheel))

    return test


def _row(who: str, versions: dict[str, list[Any]], alternatives: Sequence[Sequence[Test]]) -> _Row | None:
    if not any(alternatives):
        return None

    def allowed(each: Sequence[Sequence[Test]]) -> list[bool]:
        return [any(all(test(one) for test, _ in tests) for tests in each for one in found) for found in versions.values()]

    strictest = min((one for tests in alternatives for one in tests), key=lambda one: sum(allowed([[one]])))[1]
    several = len({need.text for tests in alternatives for _, need in tests}) > 1 and len(alternatives) > 1
    wants = f"what one of its {len(alternatives)} builds takes" if several else strictest.text
    return _Row(who, wants, "" if several else strictest.because, allowed(alternatives))


def _facts(universe: Universe, versions: dict[str, list[Any]]) -> Iterator[_Row]:
    """What facts of the machine, and the user's limits, leave of CUDA and cuDNN."""
    needs = {id(one): list(universe.needs(one)) for found in versions.values() for one in found}
    for key in dict.fromkeys(need.key for each in needs.values() for need in each):
        fact = universe.fact(key)
        if not isinstance(fact, Fact) or fact.value is None:
            continue
        met = {number: [need for need in each if need.key == key and not need.test(fact)] for number, each in needs.items()}
        told = next((need for each in met.values() for need in each), None)
        if told is not None:
            yield _Row(
                str(fact),
                f"leaves out versions that need {told.text}",
                told.because,
                [any(not met[id(one)] for one in found) for found in versions.values()],
            )


def _spans(versions: Sequence[str], allowed: Sequence[bool], shown: Iterable[int]) -> tuple[tuple[str, str], ...]:
    """First and last version of each run of allowed ones among those that are shown."""
    runs = ([versions[place] for place in run] for is_in, run in groupby(shown, key=allowed.__getitem__) if is_in)
    return tuple((run[0], run[-1]) for run in runs)
