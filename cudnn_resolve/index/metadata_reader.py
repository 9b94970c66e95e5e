"""Read the metadata of a file: served beside it, from within a wheel, or from a downloaded archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudnn_resolve.index import metadata as core
from cudnn_resolve.index.address import path_of
from cudnn_resolve.index.download import Downloads
from cudnn_resolve.index.fetch_error import FetchError
from cudnn_resolve.index.metadata import MetadataError
from cudnn_resolve.index.remote_wheel import WheelError, open_local, open_remote, read_wheel_metadata
from cudnn_resolve.masking import shown
from cudnn_resolve.requirement.source import File, Metadata

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession


def read_remote(session: IndexSession, name: str, file: File, note: Callable[[str], None]) -> tuple[Metadata, int | None]:
    """Metadata of a remote file, with as few bytes as its server allows, and its size if that became known.

    Raise FetchError if it is unavailable or unusable.
    """
    with _fetch_errors():
        raw = _beside(session, file) if file.metadata is not None else None
        if raw is not None:
            return core.read_metadata(raw, file.filename, name), None
        if file.is_wheel:
            stream = open_remote(session, file)
            if stream is not None:
                raw = read_wheel_metadata(stream, core.LARGEST_BYTES)
                return core.read_metadata(raw, file.filename, name), stream.seek(0, os.SEEK_END)
            where = shown(file.url.rpartition("/")[0])
            note(f"{where} does not serve parts of files: {file.filename[:200]} was downloaded to read its metadata")
        return Downloads(session).read_downloaded(file, lambda path: read_file(path, file.filename, name)), None


def read_local(name: str, file: File) -> Metadata:
    """Metadata of a local file; raise FetchError if it cannot be read or used."""
    with _fetch_errors():
        return read_file(path_of(file.url), file.filename, name)


def read_file(path: str, filename: str, name: str) -> Metadata:
    """Metadata of a wheel or source archive; raise WheelError, MetadataError or OSError if it cannot be read."""
    if not filename.endswith(".whl"):
        from cudnn_resolve.index.sdist import read_archive_metadata

        return read_archive_metadata(path, filename, name)
    with open_local(path) as stream:
        return core.read_metadata(read_wheel_metadata(stream, core.LARGEST_BYTES), filename, name)


def _beside(session: IndexSession, file: File) -> bytes | None:
    """METADATA that is served beside a file, hash checked; None if it is announced but missing."""
    import hashlib

    answer = session.ask(f"{file.url}.metadata", {"Accept-Encoding": "gzip"}, limit=core.LARGEST_BYTES)
    if answer.status != 200:
        return None
    for algorithm, digest in (file.metadata or {}).items():
        if algorithm in hashlib.algorithms_guaranteed and hashlib.new(algorithm, answer.body).hexdigest() != digest:
            raise FetchError(f"the metadata beside it does not match its {algorithm}", code="metadata-hash")
    return answer.body


@contextmanager
def _fetch_errors() -> Iterator[None]:
    """Raise errors of reading as FetchError."""
    try:
        yield
    except (MetadataError, WheelError) as error:
        raise FetchError(f"it {error}", code="metadata-invalid") from None
    except OSError as error:
        raise FetchError(f"it cannot be read: {error.strerror or type(error).__name__}", code="file-unreadable") from None
