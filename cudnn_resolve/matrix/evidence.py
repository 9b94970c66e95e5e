"""Questions about evidence/*.toml: what the files inside a wheel ask for."""

from __future__ import annotations

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.book import Book


def evidence_of(book: Book, package: str, version: str, arch: str) -> row.WheelEvidence | None:
    """What the files of a release's wheel ask for; None where no wheel of it was read."""
    if not holds_evidence(book, package):
        return None
    rows = book.remember("evidence", package, lambda: _by_release(book, package))
    return rows.get((version, arch)) or rows.get((version, ""))


def holds_evidence(book: Book, package: str) -> bool:
    """True for a package of which wheels were read: one whose code decides what it can be put beside."""
    return f"evidence/{package}" in book.remember("evidence tables", None, lambda: frozenset(book.names()))


def cuda_majors(book: Book, soname: str) -> frozenset[int]:
    """CUDA majors whose library has that name; empty for one that is no library of CUDA."""
    return book.remember("majors", None, lambda: _majors(book)).get(soname, frozenset())


def companion_of(book: Book, distribution: str) -> str | None:
    """The framework that a distribution must move with: `torchvision` with torch; None for any other package."""

    def read() -> dict[str, str]:
        heads = {framework: book.head(f"framework/{framework}") for framework in book.frameworks()}
        return {name: framework for framework, head in heads.items() for name in head.get("companions", ())}

    return book.remember("companions", None, read).get(distribution)


def _by_release(book: Book, package: str) -> dict[tuple[str, str], row.WheelEvidence]:
    rows: list[row.WheelEvidence] = [one.row for one in book.placed(f"evidence/{package}", "wheel")]
    return {(one.version, arch): one for one in rows for arch in one.arch or ("",)}


def _majors(book: Book) -> dict[str, frozenset[int]]:
    newest = max(one.cuda.major for one in book.cuda_releases())
    found: dict[str, set[int]] = {}
    rows: list[row.Soname] = [one.row for one in book.placed("cuda/soname", "soname")]
    for one in rows:
        found.setdefault(one.soname, set()).update(range(one.first.major, (one.last.major if one.last else newest) + 1))
    return {soname: frozenset(majors) for soname, majors in found.items()}
