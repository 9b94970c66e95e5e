"""Packages that a resolution will probably need, so that all their pages can be requested at once.

The guesses follow the requirements of wheels in the matrix. A wrong guess costs a request, a missing one a delay; neither changes the
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, Target
from cudnn_resolve.requirement.target import accepted_builds, packages_of
from cudnn_resolve.resolution.channel import CUDA_MAJORS, component_package
from cudnn_resolve.resolution.marker import applies, marker_environment
from cudnn_resolve.resolution.release import extras_of, parse_requirement


def likely_packages(book: Book, machine: Machine, request: Request) -> Iterator[str]:
    """Packages that the request leads to, following the newest release in the matrix that each requirement allows."""
    environment = marker_environment(machine)
    seen: set[str] = set()
    waiting: list[Requirement] = []
    for target in (*request.targets, *request.conditional):
        build = _likely_build(book, machine, target)
        if build is None:
            continue
        for name in dict.fromkeys((build.package, *packages_of(target, book))):
            seen.add(name)
            yield name
        waiting += _requirements(book, machine, build.package, build.version.__eq__, extras_of(build), environment)
    if waiting and request.device != "cpu":
        yield from _library_packages(book)
    waiting += _parse_applicable((line.text for line in request.requirements if not line.constraint), (), environment)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or name in request.direct:
            continue
        seen.add(name)
        yield name
        allows = partial(requirement.specifier.contains, prereleases=True)
        waiting += _requirements(book, machine, name, allows, ("with-cuda",), environment)


def _library_packages(book: Book) -> Iterator[str]:
    """CUDA runtime and cuDNN wheels of all majors: every release of theirs is a candidate, whatever the targets were built with."""
    runtimes = (component_package(book, "cudart", major) for major in CUDA_MAJORS)
    yield from dict.fromkeys(name for name in (*runtimes, *(build.wheel for build in book.cudnn_builds())) if name is not None)


def _likely_build(book: Book, machine: Machine, target: Target) -> Build | None:
    """Approximately the first build tried: the newest on the configured index for a CUDA that the driver supports."""
    best: Build | None = None
    for build in accepted_builds(target, book):
        if build.index == "default" and build.cuda is not None:
            is_beyond_driver = machine.native_cuda is not None and build.cuda > machine.native_cuda
            if best is None or not is_beyond_driver:
                best = build
    return best


def _requirements(
    book: Book, machine: Machine, package: str, allows: Callable[[str], bool], extras: tuple[str, ...], environment: Mapping[str, str]
) -> Iterator[Requirement]:
    """Requirements of the newest allowed release, with these extras."""
    for row in reversed(book.releases(package)):
        if row.requires is not None and not row.yanked and allows(row.version):
            lines = row.requires.get(machine.arch) or row.requires.get("x86_64") or ()
            return _parse_applicable(lines, extras, environment)
    return iter(())


def _parse_applicable(lines: Iterable[str], extras: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Requirement]:
    """Parse requirements and keep those that apply."""
    parsed = map(parse_requirement, lines)
    return (requirement for requirement in parsed if requirement is not None and applies(requirement, environment, extras))
