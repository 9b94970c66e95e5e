"""Packages that are released for one another: a framework with its companions, and JAX with its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.fault import Fault, Severity
from cudnn_resolve.resolution.release import parse_requirement, parse_version

_SAME_MINOR = frozenset({"tf-keras", "tensorflow-text"})
"""Companions of TensorFlow with its version numbers, some of whose releases declare no TensorFlow."""
_CHECKS_PLUGIN = (0, 5, 3)
"""First jaxlib that compares the release of a plugin with its own; older ones load any."""


def pair_faults(context: Context) -> Iterator[Fault]:
    """Faults of packages that do not accept the installed release of their framework, or of another part of it."""
    yield from _jax_faults(context)
    packages = context.machine.pip
    for name, version in packages.items():
        companion_of, part_of = context.book.companion_of(name), _part_of(context, name)
        for requirement in requirements_of_installed(context, name) if companion_of or part_of else ():
            other = canonicalize_name(requirement.name)
            found = parse_version(packages.get(other, ""))
            if found is None or _part_of(context, other) != (companion_of or part_of) or _accepts(requirement, found):
                continue
            because = f"the metadata of {name} {version}"
            found_text = f"but {other} {packages[other]} is installed"
            if part_of:
                text = f"{name} {version} needs {other}{requirement.specifier}, {found_text}"
                yield _fault(other, part_of, "error" if name == part_of else "warning", text, because)
            elif _has_same_minor(requirement, found):
                text = f"{name} {version} is built for {other}{requirement.specifier}, {found_text}, which is of the same minor release"
                yield _fault(name, other, "info", text, because)
            elif _is_for_one_minor(requirement):
                yield _fault(name, other, "error", f"{name} {version} is built for {other}{requirement.specifier}, {found_text}", because)
            else:
                text = f"{name} {version} declares {other}{requirement.specifier}, {found_text}"
                yield replace(_fault(name, other, "warning", text, because), kind="declared")


def _part_of(context: Context, name: str) -> str | None:
    """Framework that a package is or belongs to."""
    return "jax" if re.match(r"jaxlib$|jax-cuda\d{2}-", name) else context.book.framework_of(name)


def _jax_faults(context: Context) -> Iterator[Fault]:
    """Faults of a jaxlib that is newer than jax, and of a CUDA plugin of another release than jaxlib."""
    packages = context.machine.pip
    jax, jaxlib = parse_version(packages.get("jax", "")), parse_version(packages.get("jaxlib", ""))
    if jaxlib is None:
        return
    if jax is not None and jaxlib.release > jax.release:
        text = f"jaxlib {jaxlib} is newer than jax {jax}: importing jax fails"
        yield _fault("jaxlib", "jax", "error", text, "jax refuses a jaxlib that is newer")
    for name in packages:
        version = parse_version(packages[name]) if re.fullmatch(r"jax-cuda\d{2}-plugin", name) else None
        if version is None or version.release == jaxlib.release:
            continue
        is_checked = jaxlib.release >= _CHECKS_PLUGIN
        wanted = requirements_of_installed(context, "jax", with_extras=True) if jax is not None else ()
        if not is_checked and any(requirement.name == name and _accepts(requirement, version) for requirement in wanted):
            continue
        effect = "which ignores it: JAX runs on the CPU" if is_checked else f"and jax {jax or ''} does not take it".replace("  ", " ")
        text = f"{name} {version} does not match jaxlib {jaxlib}, {effect}"
        yield _fault(name, "jax", "error", text, "jaxlib and its plugins are released together")


def requirements_of_installed(context: Context, name: str, *, with_extras: bool = False) -> Iterator[Requirement]:
    """What an installed package requires: by its own metadata, else by the matrix."""
    lines = context.machine.requires.get(name)
    if lines is None:
        lines = context.book.requires(name, context.machine.pip[name].partition("+")[0]).get(context.machine.arch, ())
    version = parse_version(context.machine.pip[name])
    if not lines and version is not None and name in _SAME_MINOR:
        lines = (f"tensorflow=={version.major}.{version.minor}.*",)
    for requirement in filter(None, map(parse_requirement, lines)):
        if with_extras or context.metadata.applies(requirement):
            yield requirement


def _fault(package: str, framework: str, severity: Severity, text: str, because: str) -> Fault:
    return Fault(kind="companion", severity=severity, text=text, because=because, package=package, frameworks=(framework,))


def _accepts(requirement: Requirement, version: Version) -> bool:
    return requirement.specifier.contains(version, prereleases=True) or requirement.specifier.contains(version.public, prereleases=True)


def _is_for_one_minor(requirement: Requirement) -> bool:
    """True for a package that is made for one minor release, or for one release: `==2.6.0`, `>=2.18,<2.19`."""
    bounds = {part.operator: version for part in requirement.specifier if (version := parse_version(part.version.removesuffix(".*")))}
    first, last = bounds.get(">="), bounds.get("<")
    if first is None or last is None:
        return "==" in bounds
    return (first.major, first.minor + 1) == (last.major, last.minor)


def _has_same_minor(requirement: Requirement, version: Version) -> bool:
    """True for another patch release, or nightly build, than the pinned one, which nearly always has the same ABI."""
    pins = (parse_version(part.version) for part in requirement.specifier if part.operator == "==")
    return any(pin is not None and pin.release[:2] == version.release[:2] for pin in pins)
