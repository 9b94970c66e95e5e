"""Names that a resolution will probably ask the indexes for, before it knows: so that all pages are on their way at once.

They are guessed from what the matrix knows that wheels require. A wrong guess costs a request, a missing one a wait; neither changes
an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.target import accepts, packages_of
from cudnn_resolve.resolution.channel import MAJORS, component_package
from cudnn_resolve.resolution.marker import applies, marker_environment
from cudnn_resolve.resolution.release import extras_of, parse_requirement

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target


def likely_packages(book: Book, machine: Machine, request: Request) -> Iterator[str]:
    """Packages that the targets and the further requirements lead to, by the newest release that the matrix knows and each admits."""
    environment = marker_environment(machine)
    seen: set[str] = set()
    waiting: list[Requirement] = []
    for target in (*request.targets, *request.conditional):
        build = _likely(book, machine, target)
        if build is None:
            continue
        for name in dict.fromkeys((build.package, *packages_of(target, book))):
            seen.add(name)
            yield name
        waiting += _required(book, machine, build.package, build.version.__eq__, extras_of(build), environment)
    if waiting and request.device != "cpu":
        yield from _libraries_of_all_majors(book)
    waiting += _parsed((extra.text for extra in request.requirements if not extra.constraint), (), environment)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or name in request.direct:
            continue
        seen.add(name)
        yield name
        waiting += _required(book, machine, name, partial(requirement.specifier.contains, prereleases=True), ("with-cuda",), environment)


def _libraries_of_all_majors(book: Book) -> Iterator[str]:
    """Packages of which every release is a candidate, whatever the targets were built with."""
    components = (component_package(book, "cudart", major) for major in MAJORS)
    yield from dict.fromkeys(name for name in (*components, *(build.wheel for build in book.cudnn_builds())) if name is not None)


def _likely(book: Book, machine: Machine, target: Target) -> Build | None:
    """The build of a target that is tried first, roughly: the newest on the configured index for a CUDA that the driver knows."""
    best: Build | None = None
    for build in book.framework(target.framework).builds:
        if build.index == "default" and build.cuda is not None and accepts(target, build, book):
            beyond = machine.native_cuda is not None and build.cuda > machine.native_cuda
            if best is None or not beyond:
                best = build
    return best


def _required(
    book: Book, machine: Machine, package: str, admits: Callable[[str], bool], extras: tuple[str, ...], environment: Mapping[str, str]
) -> Iterator[Requirement]:
    """What the newest release that is admitted requires, with these extras."""
    for row in reversed(book.releases(package)):
        if row.requires is not None and not row.yanked and admits(row.version):
            return _parsed(row.requires.get(machine.arch) or row.requires.get("x86_64") or (), extras, environment)
    return iter(())


def _parsed(lines: Iterable[str], extras: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Requirement]:
    """The requirements among lines that apply in an environment, with these extras."""
    return (one for one in map(parse_requirement, lines) if one is not None and applies(one, environment, extras))
