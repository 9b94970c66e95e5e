"""Targets and limits: parsed from the user's text, merged, and matched against builds of the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from cudnn_resolve.errors import UsageError
from cudnn_resolve.masking import without_logins
from cudnn_resolve.requirement.extra import has_extras
from cudnn_resolve.requirement.model import Limit, Target

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build


VENDOR = "vendor"
"""Variant of an installed build that an image's maker built; it counts as the release that it is based on."""


def parse_target(text: str, book: Book) -> Target:
    """Parse a framework requirement; UsageError for an invalid one, an unknown framework or a direct reference."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"`{without_logins(text)[:200]}` is not a framework requirement: {without_logins(reason)[:200]}",
            code="bad-requirement",
            context="--framework",
            hint="write it as `tensorflow==2.15`, `torch>=2.4` or `jax`",
        ) from error
    if requirement.url:
        raise UsageError(
            f"`{without_logins(text)}` names a file; a framework is requested by version",
            code="bad-requirement",
            context="--framework",
        )
    name = canonicalize_name(requirement.name)
    try:
        framework = book.framework(name)
    except KeyError:
        raise UsageError(
            f"no framework is called `{requirement.name}`",
            code="unknown-framework",
            context="--framework",
            hint=_unknown_framework_hint(name, requirement.specifier, book),
        ) from None
    return Target(
        text=text.strip(),
        framework=framework.name,
        specifier=requirement.specifier,
        package=name if name in framework.packages and name != framework.name else None,
        extras=tuple(sorted({canonicalize_name(extra) for extra in requirement.extras})),
    )


def _unknown_framework_hint(name: str, specifier: SpecifierSet, book: Book) -> str:
    for framework in book.frameworks():
        if name in book.distributions(framework):
            if name.endswith("-cpu"):
                return f"`{name}` holds the CPU builds of {framework}: ask for `{framework}{specifier}` with --device cpu"
            return f"the tables have no builds of `{name}`: ask for `{framework}{specifier}`"
    near = " or ".join(f"`{other}`" for other in book.nearest(name))
    suggestion = f"did you mean {near}? " if near else ""
    return f"{suggestion}known: {', '.join(book.frameworks())}; list other packages in a file for --requirement"


def version_filter(text: str) -> SpecifierSet:
    """Parse a version filter: a specifier such as `>=2.4,<3`, or a version prefix such as `2.15`; InvalidSpecifier for other text."""
    stripped = text.strip()
    if re.fullmatch(r"v?\d+(?:\.\d+)*", stripped):
        return SpecifierSet(f"=={stripped}.*")
    specifier = SpecifierSet(f"=={stripped}" if stripped[:1].isdigit() else stripped)
    if not specifier:
        raise InvalidSpecifier(text)
    return specifier


_LIMIT_EXAMPLES = {"--cudnn": ("9.3", ">=9,<10")}


def parse_limit(text: str, option: str) -> Limit:
    """Parse a limit on CUDA or cuDNN: a specifier or a version prefix; UsageError for other text."""
    stripped, specifier = text.strip(), None
    if not stripped[:1].isdigit() or stripped.replace(".", "").isdigit():  # a bare 12.4.1.post1 is no prefix of another version
        with suppress(InvalidSpecifier):
            specifier = version_filter(stripped)
    if specifier is None:
        prefix, bounds = _LIMIT_EXAMPLES.get(option, ("12.4", ">=12,<13"))
        raise UsageError(
            f"{option} {text!r} is not a version specifier",
            code="option-specifier",
            hint=f"such as {option} {prefix} or {option} '{bounds}'",
        )
    return Limit(text=stripped, specifier=specifier)


def merge_targets(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Merge targets of the same framework: all their specifiers and extras apply."""
    merged: dict[str, Target] = {}
    for target in targets:
        earlier = merged.get(target.framework)
        merged[target.framework] = target if earlier is None else _merge(earlier, target)
    return tuple(merged.values())


def _merge(first: Target, second: Target) -> Target:
    if first.package and second.package and first.package != second.package:
        raise UsageError(
            f"`{first.text}` and `{second.text}` are two packages of one framework", code="two-packages", context="--framework"
        )
    return replace(
        first,
        text=_merge_text(first.text, second),
        specifier=first.specifier & second.specifier,
        package=first.package or second.package,
        extras=tuple(sorted({*first.extras, *second.extras})),
        origin=first.origin if second.origin is not None else None,
        hashes=(*first.hashes, *second.hashes),
        parts=(*(first.parts or (first,)), *(second.parts or (second,))),
    )


def _merge_text(text: str, target: Target) -> str:
    """Append the specifier of a target: `torch>=2` and `torch<3` give `torch>=2,<3`."""
    added = target.text.removeprefix(target.package or target.framework)
    if not added or target.text == text:
        return text
    return f"{text},{added}" if re.search(r"[<>=!~]", text) else f"{text}{added}"


def target_reason(target: Target) -> str:
    """Who requests a target: `asked for in requirements.txt:3`."""
    return f"asked for in {target.origin}" if target.origin is not None else "asked for"


def packages_of(target: Target, book: Book) -> tuple[str, ...]:
    """Distributions that can satisfy a target: the one it names, otherwise every one of its framework."""
    return (target.package,) if target.package is not None else book.framework(target.framework).packages


def accepted_builds(target: Target, book: Book) -> list[Build]:
    """Builds in the tables that satisfy the target, in their order there."""
    return [build for build in book.framework(target.framework).builds if accepts(target, build, book)]


def accepts(target: Target, build: Build, book: Book) -> bool:
    """True if a build satisfies the target: its PEP 440 specifier, package and extras; a yanked build only if one version is pinned."""
    # The specifier as text: packaging 23 takes ===2.0 and ===2.0.0 for equal.
    key = target.framework, target.package, target.extras, target.pre, str(target.specifier)
    answers: dict[int, tuple[Build, bool]] = book.remember("accepted builds", key, dict)
    known = answers.get(id(build))
    if known is None:  # the many searches that explain a conflict ask for the same builds
        known = answers[id(build)] = build, _accepts(target, build, book)
    return known[1]


def _accepts(target: Target, build: Build, book: Book) -> bool:
    if not has_extras(book, target, build):
        return False
    if target.package is not None and build.package != target.package:
        return False
    if build.yanked and not is_exact(target.specifier):
        return False
    names_local = any("+" in part.version for part in target.specifier)
    version = build.wheel_version if "+" in build.wheel_version or not names_local else f"{build.version}+{build.variant}"
    if build.variant == VENDOR and not names_local:  # matches by its base release or by its full version
        return any(target.specifier.contains(text, prereleases=True) for text in (build.version, version))
    return target.specifier.contains(version, prereleases=target.pre or names_prerelease(target.specifier))


def is_exact(specifier: SpecifierSet) -> bool:
    """True if a specifier pins one version."""
    return any(part.operator in ("==", "===") and not part.version.endswith(".*") for part in specifier)


def names_prerelease(specifier: SpecifierSet) -> bool:
    """True if a specifier names a pre-release; False for an arbitrary `===` text, for which packaging 23 raises."""
    try:
        return bool(specifier.prereleases)
    except InvalidVersion:
        return False
