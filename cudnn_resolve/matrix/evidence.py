"""Questions about evidence/*.toml: what the files inside a wheel ask for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.library import library_of
from cudnn_resolve.matrix.wheel_content import WheelEvidence

_ASKED_FIRST = frozenset(("cudart", "cublas", "cufft", "cusolver", "cusparse"))
"""Libraries that a framework opens before it uses a GPU at all."""
_PLUGIN = re.compile(r"jax-cuda\d+-plugin")


def evidence_of(book: Book, package: str, version: str, arch: str) -> WheelEvidence | None:
    """What the files of a release's wheel ask for; None where no wheel of it was read."""
    rows = evidence_rows(book, package)
    return rows.get((version, arch)) or rows.get((version, ""))


def evidence_rows(book: Book, package: str) -> Mapping[tuple[str, str], WheelEvidence]:
    """What is known of every wheel of a package that was read, by release and architecture; that is empty where all are alike."""
    return book.remember("evidence", package, lambda: _by_release(book, package)) if holds_evidence(book, package) else {}


def holds_evidence(book: Book, package: str) -> bool:
    """True for a package of which wheels were read: one whose code decides what it can be put beside."""
    return f"evidence/{package}" in book.remember("evidence tables", None, lambda: frozenset(book.names()))


def cuda_majors(book: Book, soname: str) -> frozenset[int]:
    """CUDA majors whose library has that name; empty for one that is no library of CUDA."""
    return book.remember("majors", None, lambda: _majors(book)).get(soname, frozenset())


def wheel_with(book: Book, soname: str, declared: Collection[str] = (), needed: Collection[str] = ()) -> str | None:
    """The pip package that carries a library of CUDA by that name; None where none does, or several might.

    One that is `declared` comes first, then one of the CUDA major whose libraries are `needed` beside it.
    """
    library = library_of(soname)
    if library is None:
        return None
    stem = "cudnn" if library.family == "cudnn" else {"cublasLt": "cublas"}.get(library.component, library.component)
    fitting = [majors for name in (soname, *needed) if (majors := cuda_majors(book, name))]
    shared = frozenset.intersection(*fitting) if fitting else {one.cuda.major for one in book.cuda_releases()}
    found = [one.package for major in sorted(shared, reverse=True) for one in book.components(major) if one.library == stem]
    return next((name for name in found if name in declared), found[0] if len(found) == 1 or (found and stem != "cudnn") else None)


def opened_names(book: Book, packages: Mapping[str, tuple[str, frozenset[str]]]) -> dict[str, tuple[str, ...]]:
    """CUDA libraries that frameworks open by name at run time; `packages` has the version of each, and the names that it declares.

    They are those of the NVIDIA wheels that a framework declares, where any of these is there, and without which TensorFlow and JAX say
    that there is no GPU; what is compiled at run time only can do without its compiler.
    """
    found: dict[str, tuple[str, ...]] = {}
    for package, (version, declared) in packages.items():
        framework = "jax" if _PLUGIN.fullmatch(package) else book.framework_of(package)
        components = [one for name in declared if (one := book.component(name)) is not None] if framework else []
        majors = {one.cuda_major for one in components if one.package in packages}
        wanted = {one.library: one.cuda_major for one in components if one.cuda_major in majors and one.package not in packages}
        names = {one.soname for one in _sonames(book) if one.library in _ASKED_FIRST & wanted.keys() and _holds(one, wanted[one.library])}
        if framework and any(one.library == "cudnn" and one.cuda_major in majors for one in components):
            names.update(_cudnn_of(book, framework, package, version))
        if names:
            found[package] = tuple(sorted(names))
    return found


def _cudnn_of(book: Book, framework: str, package: str, version: str) -> Iterator[str]:
    """The cuDNN that a framework was built with, by the name that it opens; JAX's plugin stands for JAX."""
    for one in book.framework(framework).builds:
        if one.wheel_version != version or one.cuda is None or one.cudnn is None:
            continue
        if one.package == package or _PLUGIN.fullmatch(package):
            yield f"libcudnn.so.{one.cudnn.major}"
            return


def _sonames(book: Book) -> list[row.Soname]:
    return [one.row for one in book.placed("cuda/soname", "soname")]


def _holds(soname: row.Soname, major: int) -> bool:
    return soname.first.major <= major and (soname.last is None or soname.last.major >= major)


def _by_release(book: Book, package: str) -> dict[tuple[str, str], WheelEvidence]:
    rows: list[WheelEvidence] = [one.row for one in book.placed(f"evidence/{package}", "wheel")]
    return {(one.version, arch): one for one in rows for arch in one.arch or ("",)}


def _majors(book: Book) -> dict[str, frozenset[int]]:
    newest = max(one.cuda.major for one in book.cuda_releases())
    found: dict[str, set[int]] = {}
    for one in _sonames(book):
        found.setdefault(one.soname, set()).update(range(one.first.major, (one.last.major if one.last else newest) + 1))
    return {soname: frozenset(majors) for soname, majors in found.items()}
