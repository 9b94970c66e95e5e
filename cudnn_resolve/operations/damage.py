"""What is wrong with the files of an installed environment, as findings: not as installed, or without a library that they need."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host.installed_files import Damage
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.matrix.book import Book

if TYPE_CHECKING:
    from cudnn_resolve.evidence.link_check import BrokenLink

_SHOWN = 3
"""Files that are named of each kind of damage."""


def stack_packages(facts: Facts, book: Book) -> tuple[str, ...]:
    """Installed packages that decide whether a framework runs: frameworks, what they need at once, and libraries of NVIDIA's."""
    requires = facts.packages.requires
    needed = {name for one in or_none(facts.frameworks) or () for name in _required_names(requires.get(one.name, ()))}
    return tuple(
        name
        for name in or_none(facts.packages.pip) or {}
        if name in needed or book.framework_of(name) or book.component(name) is not None or book.slot(name) is not None
    )


def _required_names(requires: Iterable[str]) -> Iterator[str]:
    """Names of the packages that requirements are for; what cannot be read is left out."""
    from packaging.requirements import InvalidRequirement, Requirement  # paid where there is a framework

    for text in requires:
        with suppress(InvalidRequirement):
            yield canonicalize_name(Requirement(text).name)


def damage_findings(damages: Iterable[Damage], book: Book, lacking: Collection[str] = ()) -> Iterator[Finding]:
    """What is wrong with installed files, by package; foreign files are told and harm nothing.

    `lacking`: libraries that others need and do not find: where it is a file that was changed, it cannot be loaded.
    """
    for one in damages:
        shown = ", ".join(one.paths[:_SHOWN]) + (f" and {len(one.paths) - _SHOWN} more" if len(one.paths) > _SHOWN else "")
        if one.kind == "foreign":
            said = f"{len(one.paths)} files among those of {one.package} belong to no package"
            yield Finding(cause="harmless", severity="info", summary=f"{said}: {shown}", evidence=(_evidence(one, shown),), confidence=0.9)
            continue
        what = {"missing": "missing", "empty": "empty", "changed": "not as it installed them"}[one.kind]
        by = f"; they are those of {one.by}" if one.by else ""
        hit = sorted({os.path.basename(path) for path in one.paths} & set(lacking))
        by += f"; {', '.join(hit[:_SHOWN])} cannot be loaded, and others need it" if hit else ""
        yield Finding(
            cause=_damage_cause(one, book),
            severity="error" if hit or one.is_hollow or (one.is_code and (one.kind != "changed" or one.by)) else "warning",
            summary=f"{len(one.paths)} of {one.of} files of {one.package} {one.version} are {what}{by}: {shown}",
            evidence=(_evidence(one, shown),),
            remedy=(
                Remedy(text=f"lay the files of {one.package} again", command=f"cudnn-resolve apply --reinstall-package {one.package}"),
            ),
            confidence=0.95,
        )


def _evidence(one: Damage, shown: str) -> Evidence:
    return Evidence(source=f"packages.pip.{one.package}", line=None, text=f"{one.kind}: {shown}")


def _damage_cause(one: Damage, book: Book) -> str:
    if "cudnn" in one.package:
        return "cudnn_sublibrary_mix" if one.kind == "changed" else "cudnn_missing"
    return "cuda_runtime_missing" if one.kind != "changed" and book.component(one.package) is not None else "framework_pkg_mismatch"


def link_findings(host: Host, folders: Sequence[str], python: str, book: Book) -> Iterator[tuple[str, Finding]]:
    """What would not load of the packages in these folders, each behind the package that it is of; one for each library that lacks."""
    from cudnn_resolve.evidence.link_check import broken_links, explain
    from cudnn_resolve.host.libraries import SystemLibraries, installed_site

    site = installed_site(host, folders, SystemLibraries(host, python), book)
    told: set[tuple[str, str]] = set()
    for one in broken_links(site):
        if (one.package, one.name) in told:
            continue
        told.add((one.package, one.name))
        text, wheel = explain(site, one, book)
        yield (
            one.package,
            Finding(
                cause=_link_cause(one, book),
                severity=one.severity,
                summary=text,
                evidence=(Evidence(source=one.path or f"packages.pip.{one.package}", line=None, text=f"needs {one.name}"),),
                remedy=tuple(_remedy(one, wheel, book)),
                confidence=0.9,
            ),
        )


def _link_cause(one: BrokenLink, book: Book) -> str:
    if one.version is not None:
        if "nvJitLink" in one.version:
            return "nvjitlink_mix"
        return "glibc_too_old" if one.version.startswith(("GLIBC", "CXXABI")) else "framework_pkg_mismatch"
    if one.severity == "warning":
        return "unrecognised"
    if "cudnn" in one.name:
        return "cudnn_major_mismatch" if one.others else "cudnn_missing"
    from cudnn_resolve.evidence.link_check import is_of_cuda

    other_build = one.others and book.framework_of(one.package) is None and not one.package.startswith("nvidia-")
    return "framework_pkg_mismatch" if other_build or not is_of_cuda(one.name) else "cuda_runtime_missing"


def _remedy(one: BrokenLink, wheel: str | None, book: Book) -> Iterator[Remedy]:
    framework = book.framework_of(one.package) or book.companion_of(one.package)
    if framework is not None:
        yield Remedy(text=f"let {framework} and what goes with it be planned again", command=f"cudnn-resolve apply -f {framework}")
    elif wheel is not None and not one.others:
        yield Remedy(text=f"install {wheel}", command=None)
