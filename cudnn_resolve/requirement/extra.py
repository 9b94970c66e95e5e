"""What the extras of a framework mean: which of its builds they fix, and which packages they bring besides.

`jax[cuda12]` fixes the builds that the extra makes of the wheel, and so does any extra of that release with the same requirements
(`jax[cuda]`); `jax[cpu]` fixes the builds without GPU; `torch[opt-einsum]` fixes nothing and brings a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, WheelRelease
    from cudnn_resolve.requirement.model import Target

CPU = "cpu"
"""The extra of builds without GPU."""
_NAMED = re.compile(r"""extra\s*==\s*["']([^"']{1,200})["']|["']([^"']{1,200})["']\s*==\s*extra""")


def fits(book: Book, target: Target, build: Build) -> bool:
    """True for a build that has every extra of the target, and is the one that they fix."""
    return all(_fits(book, build, extra) for extra in target.extras)


def added(book: Book, target: Target) -> tuple[str, ...]:
    """The extras of a target that fix no build: they only bring packages."""
    return tuple(extra for extra in target.extras if extra != CPU and not fixes_build(book, target.framework, extra))


def fixes_build(book: Book, framework: str, extra: str) -> bool:
    """True for an extra that makes a GPU build of a wheel of the framework."""

    def answer() -> bool:
        return any(build.cuda is not None and _makes(book, build, extra) for build in book.framework(framework).builds)

    return book.remember("extra fixes a build", (framework, extra), answer)


@lru_cache(maxsize=16384)
def named_extras(line: str) -> frozenset[str]:
    """The extras, normalized, that the marker of a Requires-Dist line names."""
    _, _, marker = line.partition(";")
    return frozenset(canonicalize_name(one or other) for one, other in _NAMED.findall(marker))


def _fits(book: Book, build: Build, extra: str) -> bool:
    if extra == CPU:
        return build.cuda is None
    if fixes_build(book, build.framework, extra):
        return build.cuda is not None and _makes(book, build, extra)
    if not any(extra in book.extras(package) for package in book.framework(build.framework).packages):
        return True  # only an index knows it
    lines = _lines(book, build.package, build.version)
    return lines is None or any(extra in named_extras(line) for line in lines)


def _makes(book: Book, build: Build, extra: str) -> bool:
    """True where the wheel with this extra is that build: the extra is its own, or brings exactly what it has."""
    own = {canonicalize_name(one.strip()) for one in (build.extra or "").split(",")}
    if extra in own or extra == canonicalize_name(build.variant):
        return True
    lines = _lines(book, build.package, build.version) or ()
    brought = _bare(line for line in lines if extra in named_extras(line))
    if not brought:
        return False
    return brought == _bare(build.requires if build.requires is not None else (line for line in lines if own & named_extras(line)))


def _bare(lines: Iterable[str]) -> frozenset[str]:
    """Requirements without their markers."""
    out = set()
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        inside = ",".join(sorted(map(canonicalize_name, requirement.extras)))
        out.add(f"{canonicalize_name(requirement.name)}[{inside}]{requirement.specifier}")
    return frozenset(out)


def _lines(book: Book, package: str, version: str) -> tuple[str, ...] | None:
    """The Requires-Dist lines of a release on any architecture; None where nobody harvested them."""
    release = _releases(book, package).get(version)
    if release is None or release.requires is None:
        return None
    return tuple(dict.fromkeys(line for lines in release.requires.values() for line in lines))


def _releases(book: Book, package: str) -> dict[str, WheelRelease]:
    return book.remember("releases by version", package, lambda: {one.version: one for one in book.releases(package)})
