"""Findings about the files of an installed environment: damaged files, and libraries that miss others."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.errors import first_few
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host.installed_files import Damage
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.resolution.release import parse_requirement

if TYPE_CHECKING:
    from cudnn_resolve.evidence.link_check import BrokenLink

_SHOWN = 3
"""Number of files to name per finding."""


def stack_packages(facts: Facts, book: Book) -> tuple[str, ...]:
    """Installed packages that decide whether a framework runs: frameworks, their direct requirements, and NVIDIA's libraries."""
    requires = facts.packages.requires
    frameworks = or_none(facts.frameworks) or ()
    lines = (parse_requirement(line) for framework in frameworks for line in requires.get(framework.name, ()))
    required = {canonicalize_name(requirement.name) for requirement in lines if requirement is not None}
    return tuple(
        name
        for name in or_none(facts.packages.pip) or {}
        if name in required or book.framework_of(name) or book.component(name) is not None or book.slot(name) is not None
    )


def damage_findings(damages: Iterable[Damage], book: Book, missing_libraries: Collection[str] = ()) -> Iterator[Finding]:
    """Findings about damaged files, by package; foreign files are harmless.

    `missing_libraries` are needed by others and not found: a damaged file of that name cannot be loaded.
    """
    for damage in damages:
        count = len(damage.paths)
        shown = first_few(damage.paths, _SHOWN)
        evidence = Evidence(source=f"packages.pip.{damage.package}", line=None, text=f"{damage.kind}: {shown}")
        if damage.kind == "foreign":
            summary = f"{count} files among those of {damage.package} belong to no package: {shown}"
            yield Finding(cause="harmless", severity="info", summary=summary, evidence=(evidence,), confidence=0.9)
            continue
        state = {"missing": "missing", "empty": "empty", "changed": "not as installed"}[damage.kind]
        details = f"; they are those of {damage.by}" if damage.by else ""
        unloadable = sorted({os.path.basename(path) for path in damage.paths} & set(missing_libraries))
        if unloadable:
            details += f"; {', '.join(unloadable[:_SHOWN])} cannot be loaded, and others need it"
        is_broken_code = damage.is_code and (damage.kind != "changed" or damage.by)
        command = f"cudnn-resolve apply --reinstall-package {damage.package}"
        yield Finding(
            cause=_damage_cause(damage, book),
            severity="error" if unloadable or damage.is_hollow or is_broken_code else "warning",
            summary=f"{count} of {damage.of} files of {damage.package} {damage.version} are {state}{details}: {shown}",
            evidence=(evidence,),
            remedy=(Remedy(text=f"reinstall {damage.package}", command=command),),
            confidence=0.95,
        )


def _damage_cause(damage: Damage, book: Book) -> str:
    if "cudnn" in damage.package:
        return "cudnn_sublibrary_mix" if damage.kind == "changed" else "cudnn_missing"
    is_cuda = damage.kind != "changed" and book.component(damage.package) is not None
    return "cuda_runtime_missing" if is_cuda else "framework_pkg_mismatch"


def link_findings(host: Host, folders: Sequence[str], python: str, book: Book) -> Iterator[tuple[str, Finding]]:
    """Findings about libraries in these folders that would not load, with their packages; one for each missing library of a package."""
    from cudnn_resolve.evidence.link_check import broken_links, explain
    from cudnn_resolve.host.link_site import SystemLibraries, installed_site

    site = installed_site(host, folders, SystemLibraries(host, python), book)
    reported: set[tuple[str, str]] = set()
    for link in broken_links(site):
        if (link.package, link.name) in reported:
            continue
        reported.add((link.package, link.name))
        summary, wheel = explain(site, link, book)
        yield (
            link.package,
            Finding(
                cause=_link_cause(link, book),
                severity=link.severity,
                summary=summary,
                evidence=(Evidence(source=link.path or f"packages.pip.{link.package}", line=None, text=f"needs {link.name}"),),
                remedy=tuple(_link_remedies(link, wheel, book)),
                confidence=0.9,
            ),
        )


def _link_cause(link: BrokenLink, book: Book) -> str:
    if link.version is not None:
        if "nvJitLink" in link.version:
            return "nvjitlink_mix"
        return "glibc_too_old" if link.version.startswith(("GLIBC", "CXXABI")) else "framework_pkg_mismatch"
    if link.severity == "warning":
        return "unrecognised"
    if "cudnn" in link.name:
        return "cudnn_major_mismatch" if link.others else "cudnn_missing"
    from cudnn_resolve.evidence.link_check import is_of_cuda

    has_other_build = link.others and book.framework_of(link.package) is None and not link.package.startswith("nvidia-")
    return "framework_pkg_mismatch" if has_other_build or not is_of_cuda(link.name) else "cuda_runtime_missing"


def _link_remedies(link: BrokenLink, wheel: str | None, book: Book) -> Iterator[Remedy]:
    framework = book.framework_of(link.package) or book.companion_of(link.package)
    if framework is not None:
        yield Remedy(text=f"plan {framework} and its companions again", command=f"cudnn-resolve apply -f {framework}")
    elif wheel is not None and not link.others:
        yield Remedy(text=f"install {wheel}", command=None)
