"""Names that a resolution will probably ask the indexes for, before it knows: so that all pages are on their way at once.

They are guessed from what the matrix knows that wheels require. A wrong guess costs a request, a missing one a wait; neither changes
an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.derive import accepts
from cudnn_resolve.resolution.release import extras_of

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_ELSEWHERE = re.compile(r"[wW]in(?:32|dows)|[dD]arwin|PyPy|python_version *< *['\"]3\.[0-9]['\"]")
"""What markers say of systems and Pythons that are not meant; a few that are meant may be lost."""


def likely_packages(book: Book, machine: Machine, request: Request) -> Iterator[str]:
    """Packages that the targets and the further requirements lead to, by the newest release of each that the matrix knows."""
    seen: set[str] = set()
    waiting: list[str] = []
    for target in (*request.targets, *request.conditional):
        build = _likely(book, machine, target)
        if build is None:
            continue
        yield build.package
        seen.add(build.package)
        lines = _lines_of(book, machine, build.package, build.version)
        waiting += [name for line in lines if (name := _name(line, extras_of(build))) is not None]
    waiting += [name for extra in request.extras if not extra.constraint and (name := _name(extra.text, ())) is not None]
    while waiting:
        name = waiting.pop()
        if name in seen or name in request.direct:
            continue
        seen.add(name)
        yield name
        lines = _lines_of(book, machine, name, None)
        waiting += [other for line in lines if (other := _name(line, ("with-cuda",))) is not None]


def _likely(book: Book, machine: Machine, target: Target) -> Build | None:
    """The build of a target that is tried first, roughly: the newest on the configured index for a CUDA that the driver knows."""
    best: Build | None = None
    for build in book.framework(target.framework).builds:
        if build.index == "default" and build.cuda is not None and accepts(target, build, book):
            beyond = machine.native_cuda is not None and build.cuda > machine.native_cuda
            if best is None or not beyond:
                best = build
    return best


def _lines_of(book: Book, machine: Machine, package: str, version: str | None) -> tuple[str, ...]:
    table = book.package(package)
    rows = table.releases if table else ()
    for row in reversed(rows):
        if row.requires is not None and not row.yanked and (version is None or row.version == version):
            return row.requires.get(machine.arch) or row.requires.get("x86_64") or ()
    return ()


def _name(line: str, extras: tuple[str, ...]) -> str | None:
    """The package that a line requires here, None where its marker speaks of other places or of an extra that nobody asks for."""
    head, _, marker = line.partition(";")
    if marker and (_ELSEWHERE.search(marker) or ("extra" in marker and not any(one in marker for one in _quoted(extras)))):
        return None
    found = _NAME.match(head)
    return canonicalize_name(found[1]) if found else None


def _quoted(extras: tuple[str, ...]) -> Iterator[str]:
    for extra in extras:
        yield from (f"'{extra}'", f'"{extra}"')
