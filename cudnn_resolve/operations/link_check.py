"""The link check of an installed environment, as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.evidence.link_check import BrokenLink, broken_links, explain, is_of_cuda
from cudnn_resolve.host.libraries import SystemLibraries, installed_site

if TYPE_CHECKING:
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.matrix.book import Book


def link_findings(host: Host, folders: Sequence[str], python: str, book: Book) -> Iterator[tuple[str, Finding]]:
    """What would not load of the packages in these folders, each behind the package that it is of; one for each library that lacks."""
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
                cause=_cause(one, book),
                severity=one.severity,
                summary=text,
                evidence=(Evidence(source=one.path or f"packages.pip.{one.package}", line=None, text=f"needs {one.name}"),),
                remedy=tuple(_remedy(one, wheel, book)),
                confidence=0.9,
            ),
        )


def _cause(one: BrokenLink, book: Book) -> str:
    if one.version is not None:
        if "nvJitLink" in one.version:
            return "nvjitlink_mix"
        return "glibc_too_old" if one.version.startswith(("GLIBC", "CXXABI")) else "framework_pkg_mismatch"
    if one.severity == "warning":
        return "unrecognised"
    if "cudnn" in one.name:
        return "cudnn_major_mismatch" if one.others else "cudnn_missing"
    other_build = one.others and book.framework_of(one.package) is None and not one.package.startswith("nvidia-")
    return "framework_pkg_mismatch" if other_build or not is_of_cuda(one.name) else "cuda_runtime_missing"


def _remedy(one: BrokenLink, wheel: str | None, book: Book) -> Iterator[Remedy]:
    framework = book.framework_of(one.package) or book.companion_of(one.package)
    if framework is not None:
        yield Remedy(text=f"let {framework} and what goes with it be planned again", command=f"cudnn-resolve apply -f {framework}")
    elif wheel is not None and not one.others:
        yield Remedy(text=f"install {wheel}", command=None)
