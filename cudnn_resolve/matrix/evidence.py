"""Questions about evidence/*.toml: what the files in a wheel need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.library_name import library_of
from cudnn_resolve.matrix.wheel_content import WheelEvidence

_OPENED_FIRST = frozenset(("cudart", "cublas", "cufft", "cusolver", "cusparse"))
"""Libraries that a framework opens before it uses a GPU at all."""
_JAX_PLUGIN = re.compile(r"jax-cuda\d+-plugin")


def evidence_of(book: Book, package: str, version: str, arch: str) -> WheelEvidence | None:
    """Return the evidence of a release's wheel; None if no wheel of it was read."""
    rows = evidence_rows(book, package)
    return rows.get((version, arch)) or rows.get((version, ""))


def evidence_rows(book: Book, package: str) -> Mapping[tuple[str, str], WheelEvidence]:
    """Return the evidence of all wheels of a package by release and architecture; "" if all architectures are alike."""

    def by_release() -> dict[tuple[str, str], WheelEvidence]:
        return {(found.version, arch): found for found in book.rows(WheelEvidence, package) for arch in found.arch or ("",)}

    return book.remember("evidence", package, by_release)


def cuda_majors(book: Book, soname: str) -> frozenset[int]:
    """Return the CUDA majors with a library of that soname; empty if it is not a CUDA library."""
    return book.remember("majors", None, lambda: _majors(book)).get(soname, frozenset())


def wheel_with(book: Book, soname: str, declared: Collection[str] = (), needed: Collection[str] = ()) -> str | None:
    """Return the pip package that carries a CUDA library; None if there is none, or several might.

    Prefers one that is `declared`, then one of the CUDA major of the other `needed` libraries.
    """
    library = library_of(soname)
    if library is None:
        return None
    stem = "cudnn" if library.family == "cudnn" else {"cublasLt": "cublas"}.get(library.component, library.component)
    majors_of_each = [majors for name in (soname, *needed) if (majors := cuda_majors(book, name))]
    known = frozenset(release.cuda.major for release in book.cuda_releases())
    majors = frozenset.intersection(*majors_of_each) if majors_of_each else known
    found = [
        component.package for major in sorted(majors, reverse=True) for component in book.components(major) if component.library == stem
    ]
    for package in found:
        if package in declared:
            return package
    return found[0] if len(found) == 1 or (found and stem != "cudnn") else None


def opened_names(book: Book, packages: Mapping[str, tuple[str, frozenset[str]]]) -> dict[str, tuple[str, ...]]:
    """Return the CUDA libraries that frameworks open by name at run time, by package.

    `packages` maps each package to its version and the packages that it declares. A framework opens the libraries of the NVIDIA wheels
    that it declares, if any of those is installed; without them TensorFlow and JAX report that there is no GPU. Code compiled at run
    time works without the compiler library.
    """
    found: dict[str, tuple[str, ...]] = {}
    for package, (version, declared) in packages.items():
        framework = "jax" if _JAX_PLUGIN.fullmatch(package) else book.framework_of(package)
        if not framework:
            continue
        components = [component for name in declared if (component := book.component(name)) is not None]
        majors = {component.cuda_major for component in components if component.package in packages}
        missing = {
            component.library: component.cuda_major
            for component in components
            if component.cuda_major in majors and component.package not in packages
        }
        names = {
            soname.soname
            for soname in book.rows(row.Soname)
            if soname.library in _OPENED_FIRST & missing.keys() and _covers(soname, missing[soname.library])
        }
        if any(component.library == "cudnn" and component.cuda_major in majors for component in components):
            names.update(_cudnn_of(book, framework, package, version))
        if names:
            found[package] = tuple(sorted(names))
    return found


def _cudnn_of(book: Book, framework: str, package: str, version: str) -> Iterator[str]:
    """Yield the soname of the cuDNN that a framework was built with, if known; JAX's plugin stands for JAX."""
    for build in book.framework(framework).builds:
        if build.wheel_version != version or build.cuda is None or build.cudnn is None:
            continue
        if build.package == package or _JAX_PLUGIN.fullmatch(package):
            yield f"libcudnn.so.{build.cudnn.major}"
            return


def _covers(soname: row.Soname, major: int) -> bool:
    return soname.first.major <= major and (soname.last is None or soname.last.major >= major)


def _majors(book: Book) -> dict[str, frozenset[int]]:
    newest = max(release.cuda.major for release in book.cuda_releases())
    found: dict[str, set[int]] = {}
    for soname in book.rows(row.Soname):
        last = soname.last.major if soname.last else newest
        found.setdefault(soname.soname, set()).update(range(soname.first.major, last + 1))
    return {name: frozenset(majors) for name, majors in found.items()}
