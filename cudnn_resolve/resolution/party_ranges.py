"""Ranges of the driver, Python, CUDA and cuDNN that each party allows: the bars in the picture of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.source import Source
from cudnn_resolve.resolution.build import describe_wheel
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
from cudnn_resolve.resolution.key import CUDA, CUDNN, DRIVER, PYTHON, Key, PipKey, pip_key
from cudnn_resolve.resolution.model import Bar, Conflict, Range, Resolution
from cudnn_resolve.resolution.open_request import OpenRequest, open_request
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.strategies import PYTHONS
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import DriverVersion

NAMES = {DRIVER: "driver", PYTHON: "Python", CUDA: "CUDA", CUDNN: "cuDNN"}
_CONTEXT_VERSIONS = 3
"""Versions shown before the first one that a party starts at."""

Party = tuple[str, Iterable[Iterable[Need]]]
"""A name and its alternatives, each with its needs; one alternative has to hold."""
Test = tuple[Callable[[Any], bool], Need]


def ranges(book: Book, outcome: Resolution | Conflict, source: Source | None = None) -> tuple[Range, ...]:
    """Ranges behind a resolution; for a conflict, what each target allows through any of its builds."""
    universe = Universe(Context(book, outcome.machine, open_request(outcome.request, source)))
    if isinstance(outcome, Resolution):
        pins = {key: pin.candidate for key, pin in outcome.pins.items()}
        chosen = {key: candidate.version for key, candidate in pins.items()}
        return _ranges(universe, _resolution_parties(universe, outcome), chosen, pins)
    return _ranges(universe, _target_parties(universe), {})


def ranges_of_builds(book: Book, machine: Machine, builds: Iterable[Build], chosen: Mapping[Key, str]) -> tuple[Range, ...]:
    """Ranges of existing builds, with the installed versions, which may be outside of every bar."""
    universe = Universe(Context(book, machine, OpenRequest(targets=())))
    parties = ((f"{build.package} {build.version}", [_build_needs(universe, build)]) for build in builds)
    return _ranges(universe, parties, chosen)


def _ranges(
    universe: Universe, parties: Iterable[Party], chosen: Mapping[Key, str], pins: Mapping[Key, Any] = MappingProxyType({})
) -> tuple[Range, ...]:
    evaluated = [(who, [list(needs) for needs in alternatives]) for who, alternatives in parties]
    found = (_range(universe, key, evaluated, chosen.get(key), pins) for key in NAMES)
    return tuple(range_ for range_ in found if range_.bars)


def _resolution_parties(universe: Universe, found: Resolution) -> Iterator[Party]:
    yield "you", [list(universe.root_needs(found.dropped))]
    needs: dict[str, list[Need]] = {}
    for candidate in (pin.candidate for pin in found.pins.values()):
        if not _is_library_wheel(candidate):
            own = needs.setdefault(_party_name(candidate), [])
            is_cudnn = isinstance(candidate, CudnnCandidate)  # counts without its wheel
            own += [need for need in universe.needs(candidate) if not (is_cudnn and isinstance(need.key, PipKey))]
    yield from ((who, [of_party]) for who, of_party in needs.items())


def _party_name(candidate: Candidate) -> str:
    if isinstance(candidate, (BuildCandidate, WheelCandidate, LibrariesCandidate)):
        return f"{candidate.build.package} {candidate.build.version}"
    return str(candidate).removesuffix(" (pip)")


def _is_library_wheel(candidate: Candidate) -> bool:
    """True for a wheel of CUDA or cuDNN, which only names its release."""
    return isinstance(candidate, PipCandidate) and candidate.key.name.startswith(("nvidia-cudnn-", "nvidia-cuda-"))


def _target_parties(universe: Universe) -> Iterator[Party]:
    """Each target with its builds that the machine allows; with all of them if it allows none."""
    for target in universe.request.targets:
        every = [list(_build_needs(universe, candidate.build)) for candidate in universe.accepted(target)]
        yield target.text, [needs for needs in every if all(map(universe.allows, needs))] or every


def _build_needs(universe: Universe, build: Build) -> Iterator[Need]:
    """What a build needs of the machine, and of CUDA and cuDNN from any channel."""
    release = universe.context.releases.of_build(build)
    who = describe_wheel(release, build) if release is not None else f"{build.package} {build.version}"
    if release is not None:
        yield from file_needs(universe.context, release, who)
    if build.cuda is None:
        return
    yield from universe.builds.machine_needs(build, who)
    if build.delivery != "bundled":
        yield from universe.builds.library_needs(build, who, ("pip", "apt", "system"))
        return
    cuda, cudnn = build.cuda, build.cudnn
    because = f"{who} bundles it"
    yield Need(CUDA, lambda candidate: candidate.cuda.line == cuda.line, f"CUDA {cuda.line}", because)
    if cudnn is not None:
        parts = cudnn.parts

        def is_bundled(candidate: CudnnCandidate) -> bool:
            return candidate.build.version.parts[: len(parts)] == parts and candidate.build.cuda_major == cuda.major

        yield Need(CUDNN, is_bundled, f"cuDNN {cudnn}", because)


class _Row(NamedTuple):
    """A bar before versions are hidden."""

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
    rows = list(_fact_rows(universe, versions)) if key in (CUDA, CUDNN) else []
    rows += [row for who, alternatives in parties if (row := _row(who, versions, _tests(universe, key, alternatives))) is not None]
    rows = [row for row in rows if not all(row.allowed)]
    names = list(versions)
    shown = _shown(names, rows, chosen)
    bars = (Bar(who=row.who, wants=row.wants, because=row.because, spans=_spans(names, row.allowed, shown)) for row in rows)
    return Range(name=NAMES[key], versions=tuple(names[place] for place in shown), chosen=chosen, bars=tuple(bars))


def _shown(versions: list[str], rows: Sequence[_Row], chosen: str | None) -> list[int]:
    """Places of the versions worth showing: from a few before the first that a party starts at.

    Versions between others that no party allows, such as a cuDNN for another CUDA, are hidden.
    """
    starts = [row.allowed.index(True) for row in rows if True in row.allowed and not row.allowed[0]]
    starts += [versions.index(chosen)] if chosen in versions else []
    first = max(min(starts, default=0) - _CONTEXT_VERSIONS, 0)
    used = [place for place, version in enumerate(versions) if version == chosen or any(row.allowed[place] for row in rows)]
    between = range(used[0], used[-1]) if used else range(0)
    return [place for place in range(first, len(versions)) if place in used or place not in between]


def _versions(
    universe: Universe, key: Key, parties: Iterable[tuple[str, list[list[Need]]]], pins: Mapping[Key, Any]
) -> dict[str, list[Any]]:
    """Known versions, oldest first, with the candidates of each."""
    if key == PYTHON:
        return {f"{python[0]}.{python[1]}": [Fact(key=PYTHON, version="", value=python)] for python in sorted(PYTHONS)}
    if key == DRIVER:
        floors = {need.floor for _, alternatives in parties for needs in alternatives for need in needs if need.key == DRIVER}
        known = {driver for driver in (*floors, universe.machine.user_driver) if isinstance(driver, DriverVersion)}
        known |= {DriverVersion(str(branch.number)) for branch in universe.book.branches()}
        return {str(driver): [Fact(key=DRIVER, version=str(driver), value=driver)] for driver in sorted(known)}
    found: dict[str, list[Any]] = {}
    channel = pins[key].channel if key in pins else None
    cuda = pins[CUDA] if key == CUDNN and CUDA in pins else None
    for candidate in universe.unordered(key):
        is_other_cuda = isinstance(cuda, CudaCandidate) and candidate.build.cuda_major != cuda.cuda.major
        if channel in (None, candidate.channel) and not is_other_cuda:
            found.setdefault(candidate.version, []).append(candidate)
    return {version: found[version] for version in sorted(found, key=lambda text: [int(part) for part in text.split(".")])}


def _tests(universe: Universe, key: Key, alternatives: Iterable[Iterable[Need]]) -> list[list[Test]]:
    """Tests of each alternative on the candidates; for cuDNN also those on its wheel."""
    tests = []
    for needs in alternatives:
        found = [(need.test, need) for need in needs if need.key == key]
        if key == CUDNN:
            wheels = {pip_key(candidate.build.wheel) for candidate in universe.unordered(CUDNN) if candidate.build.wheel}
            found += [(_wheel_test(universe, need), need) for need in needs if need.key in wheels]
        tests.append(found)
    return tests


def _wheel_test(universe: Universe, need: Need) -> Callable[[CudnnCandidate], bool]:
    """A need on a cuDNN wheel as a test of cuDNN candidates."""
    wheels = {wheel.release.text: wheel for wheel in universe.unordered(need.key) if wheel.release is not None}

    def test(candidate: CudnnCandidate) -> bool:
        if candidate.build.wheel is None or pip_key(candidate.build.wheel) != need.key:
            return True
        wheel = wheels.get(candidate.version)
        return wheel is not None and need.test(wheel)

    return test


def _row(who: str, versions: dict[str, list[Any]], alternatives: Sequence[Sequence[Test]]) -> _Row | None:
    if not any(alternatives):
        return None

    def allowed(of_alternatives: Sequence[Sequence[Test]]) -> list[bool]:
        return [
            any(all(test(candidate) for test, _ in tests) for tests in of_alternatives for candidate in candidates)
            for candidates in versions.values()
        ]

    each = [test for tests in alternatives for test in tests]
    strictest = min(each, key=lambda test: sum(allowed([[test]])))[1]
    has_several = len({need.text for _, need in each}) > 1 and len(alternatives) > 1
    wants = f"any of what its {len(alternatives)} builds accept" if has_several else strictest.text
    return _Row(who, wants, "" if has_several else strictest.because, allowed(alternatives))


def _fact_rows(universe: Universe, versions: dict[str, list[Any]]) -> Iterator[_Row]:
    """What facts of the machine and limits of the user allow of CUDA and cuDNN."""
    needs = {id(candidate): list(universe.needs(candidate)) for candidates in versions.values() for candidate in candidates}
    for key in dict.fromkeys(need.key for of_candidate in needs.values() for need in of_candidate):
        fact = universe.fact(key)
        if not isinstance(fact, Fact) or fact.value is None:
            continue
        unmet = {number: [need for need in found if need.key == key and not need.test(fact)] for number, found in needs.items()}
        first = next((need for found in unmet.values() for need in found), None)
        if first is not None:
            yield _Row(
                str(fact),
                f"excludes versions that need {first.text}",
                first.because,
                [any(not unmet[id(candidate)] for candidate in candidates) for candidates in versions.values()],
            )


def _spans(versions: Sequence[str], allowed: Sequence[bool], shown: Iterable[int]) -> tuple[tuple[str, str], ...]:
    """First and last version of each run of allowed ones among the shown ones."""
    runs = ([versions[place] for place in run] for is_allowed, run in groupby(shown, key=allowed.__getitem__) if is_allowed)
    return tuple((run[0], run[-1]) for run in runs)
