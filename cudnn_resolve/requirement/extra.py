"""Extras of frameworks: which builds they select, and which packages they add.

`jax[cuda12]` selects the builds that the extra makes of the wheel, and so does every extra of that release with the same requirements
(`jax[cuda]`); `jax[cpu]` selects the CPU builds; `torch[opt-einsum]` selects nothing and adds a package.
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
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Target

CPU = "cpu"
"""The extra of CPU builds."""
_NAMED = re.compile(r"""extra\s*==\s*["']([^"']{1,200})["']|["']([^"']{1,200})["']\s*==\s*extra""")


def has_extras(book: Book, target: Target, build: Build) -> bool:
    """True if a build has every extra of the target and is the build that they select."""
    return all(_has_extra(book, build, extra) for extra in target.extras)


def package_extras(book: Book, target: Target) -> tuple[str, ...]:
    """Extras of a target that select no build and only add packages."""
    return tuple(extra for extra in target.extras if extra != CPU and not selects_build(book, target.framework, extra))


def selects_build(book: Book, framework: str, extra: str) -> bool:
    """True if an extra makes a GPU build of some wheel of the framework."""

    def answer() -> bool:
        return any(build.cuda is not None and _makes_build(book, build, extra) for build in book.framework(framework).builds)

    return book.remember("extra selects a build", (framework, extra), answer)


@lru_cache(maxsize=16384)
def named_extras(line: str) -> frozenset[str]:
    """Normalized extras that the marker of a Requires-Dist line names."""
    _, _, marker = line.partition(";")
    return frozenset(canonicalize_name(right or left) for right, left in _NAMED.findall(marker))


def _has_extra(book: Book, build: Build, extra: str) -> bool:
    if extra == CPU:
        return build.cuda is None
    if selects_build(book, build.framework, extra):
        return build.cuda is not None and _makes_build(book, build, extra)
    if not any(extra in book.extras(package) for package in book.framework(build.framework).packages):
        return True  # unknown to the tables: only an index can tell
    lines = _requires_dist(book, build.package, build.version)
    return lines is None or any(extra in named_extras(line) for line in lines)


def _makes_build(book: Book, build: Build, extra: str) -> bool:
    """True if the wheel with this extra is that build: the extra is the build's own, or requires exactly the same."""
    own = {canonicalize_name(name.strip()) for name in (build.extra or "").split(",")}
    if extra in own or extra == canonicalize_name(build.variant):
        return True
    lines = _requires_dist(book, build.package, build.version) or ()
    added = _without_markers(line for line in lines if extra in named_extras(line))
    if not added:
        return False
    if build.requires is not None:
        return added == _without_markers(build.requires)
    return added == _without_markers(line for line in lines if own & named_extras(line))


def _without_markers(lines: Iterable[str]) -> frozenset[str]:
    requirements = set()
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        extras = ",".join(sorted(map(canonicalize_name, requirement.extras)))
        requirements.add(f"{canonicalize_name(requirement.name)}[{extras}]{requirement.specifier}")
    return frozenset(requirements)


def _requires_dist(book: Book, package: str, version: str) -> tuple[str, ...] | None:
    """Requires-Dist lines of a release on all architectures; None if they were not harvested."""
    release = book.release(package, version)
    if release is None or release.requires is None:
        return None
    return tuple(dict.fromkeys(line for lines in release.requires.values() for line in lines))
