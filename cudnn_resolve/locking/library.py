"""Which cuDNN the frameworks of a lock load: the shared one of the stack, or one inside a wheel, which nothing else replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Lock, LockedFramework, Stack
    from cudnn_resolve.matrix.book import Book

_CUDNN_WHEELS = "nvidia-cudnn"


def bundled_cudnns(lock: Lock, stack: Stack, book: Book) -> dict[str, str]:
    """Framework of the stack to the cuDNN inside its wheel, for those that have one; of what the matrix does not know, nothing."""
    found = ((one.name, _bundled_cudnn(lock, one, book)) for one in stack.frameworks)
    return {name: version for name, version in found if version is not None}


def _bundled_cudnn(lock: Lock, one: LockedFramework, book: Book) -> str | None:
    name = book.framework_of(one.name)
    builds = book.framework(name).builds if name is not None else ()
    rows = [row for row in builds if (row.package, row.wheel_version, row.variant) == (one.name, one.version, one.variant)]
    bundled = [row for row in rows if row.delivery == "bundled"]
    # Some releases are there both ways under one version; the wheel without libraries asks for those of NVIDIA.
    if not bundled or (len(bundled) < len(rows) and _asks_for_cudnn(lock, one.name)):
        return None
    return str(bundled[0].cudnn) if bundled[0].cudnn is not None else one.cudnn_built


def _asks_for_cudnn(lock: Lock, name: str) -> bool:
    return any(other.name.startswith(_CUDNN_WHEELS) for package in lock.packages if package.name == name for other in package.dependencies)
