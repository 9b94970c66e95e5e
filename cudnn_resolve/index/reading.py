"""Metadata of files where it stands: beside a file, inside it, or in an archive that is downloaded for it."""

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
    """What a remote file says of itself, with as few bytes as its server allows, and its size where that became known.

    FetchError where it cannot be had or used.
    """
    with _checked():
        raw = _beside(session, file) if file.metadata is not None else None
        if raw is not None:
            return core.read_metadata(raw, file.filename, name), None
        if file.is_wheel:
            stream = open_remote(session, file)
            if stream is not None:
                raw = read_wheel_metadata(stream, core.LARGEST_BYTES)
                return core.read_metadata(raw, file.filename, name), stream.seek(0, os.SEEK_END)
            where = shown(file.url.rpartition("/")[0])
            note(f"{where} gives no parts of files: {file.filename[:200]} was downloaded to read its metadata")
        return Downloads(session).passing(file, lambda path: read_file(path, file.filename, name)), None


def read_local(name: str, file: File) -> Metadata:
    """What a file on this machine says of itself; FetchError where it cannot be read or used."""
    with _checked():
        return read_file(path_of(file.url), file.filename, name)


def read_file(path: str, filename: str, name: str) -> Metadata:
    """What a wheel or source archive at a path says of itself; WheelError, MetadataError and OSError where it cannot be read."""
    if not filename.endswith(".whl"):
        from cudnn_resolve.index.sdist import read_archive_metadata

        return read_archive_metadata(path, filename, name)
    with open_local(path) as stream:
        return core.read_metadata(read_wheel_metadata(stream, core.LARGEST_BYTES), filename, name)


def _beside(session: IndexSession, file: File) -> bytes | None:
    """The METADATA that is served beside a file, its hash checked; None where it is announced but not there."""
    import hashlib

    answer = session.ask(f"{file.url}.metadata", {"Accept-Encoding": "gzip"}, limit=core.LARGEST_BYTES)
    if answer.status != 200:
        return None
    for algorithm, digest in (file.metadata or {}).items():
        if algorithm in hashlib.algorithms_guaranteed and hashlib.new(algorithm, answer.body).hexdigest() != digest:
            raise FetchError(f"the metadata beside it does not match its {algorithm}", code="metadata-hash")
    return answer.body


@contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except (MetadataError, WheelError) as error:
        raise FetchError(f"it {error}", code="metadata-invalid") from None
    except OSError as error:
        raise FetchError(f"it cannot be read: {error.strerror or type(error).__name__}", code="file-unreadable") from None
