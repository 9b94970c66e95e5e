"""What an index does not say of its files and a lock wants to know: their sizes, and the hashes of files on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.index.address import is_local, path_of
from cudnn_resolve.index.work import FEW_THREADS, Crew, Job

if TYPE_CHECKING:
    from cudnn_resolve.index.statement import Statements
    from cudnn_resolve.index.transport import Transport
    from cudnn_resolve.requirement.source import File

_SMALL = 1 << 16
_LARGEST_DIGITS = 16


def complete(
    files: Sequence[File], statements: Statements, transport: Callable[[], Transport] | None, *, tell: Callable[[str], None]
) -> list[File]:
    """The files with their sizes and hashes, as far as they can be had without downloading them; asked for side by side.

    `transport` is None where nobody may be asked.
    """
    crew = Crew(few=FEW_THREADS, is_far=lambda: transport is not None and transport().is_far)
    jobs = [Job(lambda file=file: _completed(file, statements, transport), f"the size of {file.filename[:100]}") for file in files]  # type: ignore[misc]
    for job in jobs:
        crew.hand(job)
    try:
        return [job.value(tell) for job in jobs]
    finally:
        crew.close()


def _completed(file: File, statements: Statements, transport: Callable[[], Transport] | None) -> File:
    if is_local(file.url):
        return _of_disk(file)
    if file.size is not None:
        return file
    size = statements.size(file)
    if size is None and transport:
        size = _asked(file.url, transport())
        if size is not None:
            statements.keep_size(file, size)
    return file if size is None else file._replace(size=size)


def _of_disk(file: File) -> File:
    """A local file with its hash; as it is where it cannot be read."""
    from cudnn_resolve.index.download import sha256_of

    path = path_of(file.url)
    try:
        return file._replace(size=os.stat(path).st_size, hashes=file.hashes or {"sha256": sha256_of(path)})
    except OSError:
        return file


def _asked(url: str, transport: Transport) -> int | None:
    """The size that the server states of a file; None where it states none, for then the hash has to do."""
    from cudnn_resolve.index.refusal import Refusal

    try:
        head = transport.ask(url, {"Accept-Encoding": "identity"}, limit=_SMALL, method="HEAD")
    except Refusal:
        return None
    length = head.headers.get("content-length", "")
    plain = head.headers.get("content-encoding", "identity") == "identity"
    return (
        int(length) if head.status == 200 and plain and length.isascii() and length.isdigit() and len(length) <= _LARGEST_DIGITS else None
    )
