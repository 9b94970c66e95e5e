"""What `matrix --format json` prints, as values: `cudnn-resolve/matrix/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cudnn_resolve.matrix.digest import Digest, Entry
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.report.matrix import span

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.place import Fault

SCHEMA = "cudnn-resolve/matrix/1"


def list_json(book: Book) -> dict[str, Any]:
    """Frameworks and tables."""
    frameworks = [book.framework(name) for name in book.frameworks()]
    return {
        "schema": SCHEMA,
        "version": book.version,
        "frameworks": [
            {"name": one.name, "title": one.title, "packages": list(one.packages), "releases": span(one.builds), "builds": len(one.builds)}
            for one in frameworks
        ],
        "packages": list(book.packages()),
    }


def framework_json(book: Book, found: Digest) -> dict[str, Any]:
    """A framework with the builds that were asked for; each build in the columns of the matrix, and what follows from it."""
    framework = found.framework
    table = f"framework/{framework.name}"
    used = {id_ for one in found.entries for id_ in one.build.source}
    return {
        "schema": SCHEMA,
        "version": book.version,
        "framework": {
            "name": framework.name,
            "title": framework.title,
            "packages": list(framework.packages),
            "companions": list(framework.companions),
        },
        "builds": [_build(one) for one in found.entries],
        "bounds": plain(framework.bounds),
        "traps": plain(book.traps(framework.name)),
        "sources": {id_: _source(book, table, id_) for id_ in sorted(used)},
    }


def _build(entry: Entry) -> dict[str, Any]:
    build = entry.build
    return {
        "version": build.version,
        "variant": build.variant,
        "package": build.package,
        "wheel_version": build.wheel_version,
        "index": build.index,
        "pythons": list(entry.pythons),
        "arch": list(build.arch),
        "glibc": build.glibc,
        "date": entry.date,
        "yanked": build.yanked,
        "cuda_built": str(build.cuda) if build.cuda else None,
        "cudnn_built": str(build.cudnn) if build.cudnn else None,
        "driver_min": {"minor": _text(entry.driver_minor), "strict": _text(entry.driver_strict)},
        "capabilities": [str(one) for one in build.targets],
        "capability_first": _text(build.capability_first),
        "delivery": build.delivery,
        "finds": build.finds,
        "loads": list(build.loads),
        "extra": build.extra,
        "requires": None if entry.requires is None else list(entry.requires),
        "companions": dict(entry.companions),
        "source": list(build.source),
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _source(book: Book, table: str, id_: str) -> dict[str, str] | None:
    found = book.source(table, id_)
    return {"where": found.where, "read": found.read} if found else None


def stack_json(book: Book, what: str, **tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows of the tables about drivers, CUDA, cuDNN or GPUs, under the name of each."""
    return {"schema": SCHEMA, "version": book.version, "show": what, **tables}


def faults_json(faults: Sequence[Fault]) -> dict[str, Any]:
    """Every fault with its file, its place in it and what is wrong."""
    return {
        "schema": SCHEMA,
        "status": "faulty" if faults else "ok",
        "faults": [{"file": one.file, "place": one.place, "message": one.message} for one in faults],
    }
