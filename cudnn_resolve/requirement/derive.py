"""Request and matrix to the needs at the root of a resolution."""

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
from cudnn_resolve.requirement.extra import fits
from cudnn_resolve.requirement.model import Limit, Target

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build


VENDOR = "vendor"
"""Variant of an installed build that is made by an image's maker and counts as the version that it is made from."""


def parse_target(text: str, book: Book) -> Target:
    """The framework requirement in a user's words; UsageError for other text, an unknown framework or an unsupported form."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise UsageError(
            f"`{without_logins(text)[:200]}` is not a framework requirement: "
            f"{without_logins((str(error) or type(error).__name__).splitlines()[0])[:200]}",
            code="bad-requirement",
            context="--framework",
            hint="write it as `tensorflow==2.15`, `torch>=2.4` or `jax`",
        ) from error
    if requirement.url:
        raise UsageError(
            f"`{without_logins(text)}` names a file; a framework is named by its version", code="bad-requirement", context="--framework"
        )
    name = canonicalize_name(requirement.name)
    try:
        framework = book.framework(name)
    except KeyError:
        raise UsageError(
            f"no framework is called `{requirement.name}`",
            code="unknown-framework",
            context="--framework",
            hint=_hint(name, requirement.specifier, book),
        ) from None
    package = name if name in framework.packages and name != framework.name else None
    return Target(
        text=text.strip(),
        framework=framework.name,
        specifier=requirement.specifier,
        package=package,
        extras=tuple(sorted({canonicalize_name(extra) for extra in requirement.extras})),
    )


def _hint(name: str, specifier: SpecifierSet, book: Book) -> str:
    """What to write instead of a name that is no framework's."""
    for framework in book.frameworks():
        if name in book.distributions(framework):
            builds = "builds without GPU" if name.endswith("-cpu") else "builds that the tables do not know"
            device = " --device cpu" if name.endswith("-cpu") else ""
            return f"`{name}` has {builds} of {framework}: ask for `{framework}{specifier}`{device}"
    near = book.nearest(name)
    hint = f"did you mean {_or(near)}? " if near else ""
    return f"{hint}known: {', '.join(book.frameworks())}; other packages go into a file for --requirement"


def version_filter(text: str) -> SpecifierSet:
    """The specifier for what a user wrote: `>=2.4,<3` itself, `2.15` everything that begins with it; InvalidSpecifier otherwise."""
    stripped = text.strip()
    if re.fullmatch(r"v?\d+(?:\.\d+)*", stripped):
        return SpecifierSet(f"=={stripped}.*")
    found = SpecifierSet(stripped if not stripped[:1].isdigit() else f"=={stripped}")
    if not found:
        raise InvalidSpecifier(text)
    return found


def parse_limit(text: str, option: str) -> Limit:
    """The limit in a user's words: a specifier, or the beginning of versions; UsageError for other text."""
    written, found = text.strip(), None
    if not written[:1].isdigit() or written.replace(".", "").isdigit():  # a bare 12.4.1.post1 begins no other version
        with suppress(InvalidSpecifier):
            found = version_filter(written)
    if found is None:
        raise UsageError(
            f"{option} {text!r} is not a version specifier", code="option-specifier", hint=f"such as {option} 12.4 or {option} '>=12,<13'"
        )
    return Limit(text=written, specifier=found)


def merged(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Targets of one framework as one, with all its specifiers and extras."""
    out: dict[str, Target] = {}
    for target in targets:
        old = out.get(target.framework)
        if old is None:
            out[target.framework] = target
            continue
        package = old.package or target.package
        if old.package and target.package and old.package != target.package:
            raise UsageError(
                f"`{old.text}` and `{target.text}` are two packages of one framework", code="two-packages", context="--framework"
            )
        out[target.framework] = replace(
            old,
            text=_both(old.text, target),
            specifier=old.specifier & target.specifier,
            package=package,
            extras=tuple(sorted({*old.extras, *target.extras})),
            origin=old.origin if target.origin is not None else None,
            hashes=(*old.hashes, *target.hashes),
            parts=(*(old.parts or (old,)), *(target.parts or (target,))),
        )
    return tuple(out.values())


def asked(target: Target) -> str:
    """Who asks for a target, in words."""
    return f"asked for in {target.origin}" if target.origin is not None else "asked for"


def _both(text: str, target: Target) -> str:
    """The words of two targets of one framework as one."""
    more = target.text.removeprefix(target.package or target.framework)
    return text if target.text == text or not more else f"{text},{more}" if re.search(_SPECIFIED, text) else f"{text}{more}"


_SPECIFIED = r"[<>=!~]"


def packages_of(target: Target, book: Book) -> tuple[str, ...]:
    """The distributions that a target may mean: the one that it names, else all of its framework."""
    return (target.package,) if target.package is not None else book.framework(target.framework).packages


def accepts(target: Target, build: Build, book: Book) -> bool:
    """True where a build is what the target asks for: PEP 440, its extras, withdrawn builds only where one version is named."""
    asked = target.framework, target.package, target.extras, target.pre, str(target.specifier)  # packaging 23: ===2.0 equals ===2.0.0
    known: dict[int, tuple[Build, bool]] = book.remember("accepted builds", asked, dict)
    found = known.get(id(build))
    if found is None:  # searches come back to it: many, where a conflict is explained
        found = known[id(build)] = build, _accepts(target, build, book)
    return found[1]


def _accepts(target: Target, build: Build, book: Book) -> bool:
    if not fits(book, target, build):
        return False
    if target.package is not None and build.package != target.package:
        return False
    if build.yanked and not is_exact(target.specifier):
        return False
    local = any("+" in one.version for one in target.specifier)
    text = build.wheel_version if "+" in build.wheel_version or not local else f"{build.version}+{build.variant}"
    if build.variant == VENDOR and not local:  # by the version that it is made from, or by its own as a whole
        return any(target.specifier.contains(one, prereleases=True) for one in (build.version, text))
    return target.specifier.contains(text, prereleases=target.pre or names_prerelease(target.specifier))


def is_exact(specifier: SpecifierSet) -> bool:
    """True where a specifier pins one version."""
    return any(one.operator in ("==", "===") and not one.version.endswith(".*") for one in specifier)


def names_prerelease(specifier: SpecifierSet) -> bool:
    """True where a specifier names a pre-release; False of text behind `===` that is no version, over which packaging 23 stumbles."""
    try:
        return bool(specifier.prereleases)
    except InvalidVersion:
        return False


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)
