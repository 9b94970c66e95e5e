"""Download files of releases: verified as they arrive, resumed after interruptions, and moved into place only when correct.

A partial file of an interrupted run is resumed by the next one if a hash is known, which verifies the whole. Ranges are requested with
If-Range, within a run and by the next one: a file that changed on its server meanwhile is sent whole again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.index.address import is_local, path_of
from cudnn_resolve.index.cache import Cache
from cudnn_resolve.index.fetch_error import FetchError, TransientError
from cudnn_resolve.masking import shown
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession

T = TypeVar("T")
Progress = Callable[[int], None]
"""Called with the number of bytes that arrived since its last call, less those that are discarded."""
LARGEST_FILE = 16 << 30
"""Bound on a download for which neither the lock nor the index gives a size."""
_LONGEST_SECONDS = 6 * 3600.0
_EDITION_SUFFIX = ".from"
"""Appended to the name of a partial file: the file that holds the edition it belongs to."""
_LONGEST_EDITION = 200
_EDITION = re.compile(r'"[\x21\x23-\x7e]{0,198}"|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT')
_SETTLED_SECONDS = 60
_CHUNK = 1 << 20
_LEAST_PROGRESS = 1 << 16
"""Bytes received that count as progress, so that the count of tries starts over."""


class Downloads:
    """Downloads through one session."""

    def __init__(self, session: IndexSession) -> None:
        self._session = session

    def fetch(self, file: File, folder: str, progress: Progress | None = None, *, resume: bool = False) -> str:
        """Path of the file in `folder`: already there with the right hash, copied, or downloaded.

        With `resume`, for a folder that nobody else writes to, a partial file stays and is resumed by the next call. Raise WorldError for
        an error of the disk, IndexUnavailableError if the file is unavailable or has another size or hash.
        """
        path = os.path.join(folder, safe_name(file.filename))
        if file.hashes and _is_right(path, file):
            return path
        resume = resume and strongest(file)[1] is not None and not is_local(file.url)
        mark = "" if resume else f".{os.getpid()}"
        temporary = os.path.join(folder, f".{os.path.basename(path)[:200]}{mark}.part")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "r+b") as stream:
                self._fill(stream, file, progress, _Edition(f"{temporary}{_EDITION_SUFFIX}" if resume else None))
            os.replace(temporary, path)
        except OSError as error:
            resume = False
            raise _disk_error(error, path) from None
        except FetchError as error:
            resume = resume and isinstance(error, TransientError)
            what = f"{file.filename[:200]} could not be downloaded from {shown(file.url)}: {error.why}"
            raise IndexUnavailableError(what, code=error.code, hint=error.hint) from None
        finally:
            if not resume or os.path.exists(path):
                for name in (temporary, f"{temporary}{_EDITION_SUFFIX}"):
                    with contextlib.suppress(OSError):
                        os.unlink(name)
        return path

    def read_downloaded(self, file: File, read: Callable[[str], T]) -> T:
        """Download a file, call `read` with its path, and delete it; raises FetchError and errors of `read`."""
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            path = os.path.join(folder, safe_name(file.filename))
            with open(path, "w+b") as stream:
                self._fill(stream, file, None, _Edition(None))
            return read(path)

    def _fill(self, stream: IO[bytes], file: File, progress: Progress | None, edition: _Edition) -> None:
        """Append the missing bytes of a file; raise FetchError if its size or hash is wrong."""
        algorithm, digest = strongest(file)
        file = file if file.size is not None or is_local(file.url) else replace(file, size=self._size_on_index(file))
        partial = _PartialFile(stream, algorithm, file, progress)
        resumed = partial.size
        if is_local(file.url):
            with open(path_of(file.url), "rb") as source:
                while chunk := source.read(_CHUNK):
                    partial.write(chunk)
        elif resumed != file.size or partial.digest() != digest:
            self._download(partial, file, edition)
            if resumed and digest and partial.digest() != digest:  # the earlier run had downloaded another file
                partial.restart()
                self._download(partial, file, edition)
        stream.flush()
        if file.size is not None and partial.size != file.size:
            raise FetchError(f"it has {partial.size} bytes, expected {file.size}", code="file-size")
        if digest and partial.digest() != digest:
            raise FetchError(f"its {algorithm} is {partial.digest()}, expected {digest}", code="file-hash")

    def _download(self, partial: _PartialFile, file: File, edition: _Edition) -> None:
        deadline = time.monotonic() + _LONGEST_SECONDS
        start = 0

        def once() -> None:
            nonlocal start
            start = partial.size
            headers = {"Range": f"bytes={start}-", **edition.condition} if start else {}
            limit = LARGEST_FILE if file.size is None else file.size
            with self._session.opened(file.url, headers, limit=limit, seconds=deadline - time.monotonic()) as (response, _):
                if response.status_code == 416 and start:
                    partial.restart()
                    raise TransientError("it is shorter than what was downloaded before", code="index-garbage")
                if response.status_code not in (200, 206):
                    raise FetchError(f"it responded with HTTP {response.status_code}", status=response.status_code)
                is_rest = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
                if is_rest and not edition.matches(response.headers):  # the server ignores If-Range
                    partial.restart()
                    raise TransientError("it changed during the download", code="index-garbage")
                if start and not is_rest:
                    partial.restart()
                edition.keep(response.headers)
                for chunk in self._session.chunks(response):
                    partial.write(chunk)

        self._session.retried(once, lambda: partial.size - start >= _LEAST_PROGRESS)

    def _size_on_index(self, file: File) -> int | None:
        """Size of a file according to its index, if the lock has none: so a server cannot fill the disk with another file."""
        if file.origin is None or is_local(file.origin):
            return None
        from cudnn_resolve.index.filename import projects_in
        from cudnn_resolve.index.page import PageError, files_of
        from cudnn_resolve.index.page_cache import Pages

        for name in projects_in(file.filename):
            with contextlib.suppress(FetchError, PageError):
                page = Pages(lambda: self._session, Cache(None)).read(file.origin, name, None)
                listed = (entry for number in range(len(page.versions)) for entry in files_of(page, number, None)) if page else ()
                return next((entry.size for entry in listed if entry.filename == file.filename), None)
        return None


class _Edition:
    """The server's identifier of the file that a partial file belongs to; with a path, it is saved there for the next run."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._name = ""
        if path is not None:
            with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
                self._name = _edition_of(file.read(_LONGEST_EDITION + 1).strip())

    @property
    def condition(self) -> dict[str, str]:
        """Header that makes the server send another edition whole."""
        return {"If-Range": self._name} if self._name else {}

    def matches(self, headers: Mapping[str, str]) -> bool:
        """False if a response names another edition."""
        name = headers.get("ETag" if self._name.startswith('"') else "Last-Modified", "")
        return not self._name or not name or name == self._name

    def keep(self, headers: Mapping[str, str]) -> None:
        """Save the edition of a response."""
        name = _edition_of(headers.get("ETag", "")) or _edition_of(_settled(headers))
        if name != self._name and self._path is not None:
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "wb") as file:
                file.write(name.encode("ascii"))
        self._name = name


def _edition_of(text: str) -> str:
    """A strong ETag or a date; empty for anything else, since a weak ETag does not identify bytes."""
    return text if _EDITION.fullmatch(text) else ""


def _settled(headers: Mapping[str, str]) -> str:
    """Time of the last change, if it is old enough to tell two editions apart; else empty."""
    try:
        changed, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("Last-Modified", "Date"))
        return headers["Last-Modified"] if (now - changed).total_seconds() >= _SETTLED_SECONDS else ""
    except (ValueError, TypeError, OverflowError):
        return ""


class _PartialFile:
    """A file that is being downloaded, starting with what an earlier run left of it."""

    def __init__(self, stream: IO[bytes], algorithm: str, file: File, progress: Progress | None) -> None:
        self._stream = stream
        self._algorithm = algorithm
        self._progress, self._told = progress, 0
        self._most = LARGEST_FILE if file.size is None else file.size
        self._hash = hashlib.new(algorithm)
        self.size = 0
        while chunk := stream.read(_CHUNK):
            self._hash.update(chunk)
            self.size += len(chunk)
        if self.size > self._most:
            self.restart()

    def digest(self) -> str:
        """Hash of all bytes so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append a chunk; raise FetchError if the file becomes too long."""
        self.size += len(chunk)
        if self.size > self._most:
            raise FetchError(f"it is longer than the expected {self._most} bytes", code="file-size")
        self._stream.write(chunk)
        self._hash.update(chunk)
        if self._progress is not None:
            self._progress(self.size - self._told)
            self._told = self.size

    def restart(self) -> None:
        """Discard everything: the server starts from the beginning."""
        self._stream.seek(0)
        self._stream.truncate()
        self._hash = hashlib.new(self._algorithm)
        self.size = 0


def strongest(file: File) -> tuple[str, str | None]:
    """The strongest known hash of a file: algorithm and digest; `sha256` and None if there is none."""
    for algorithm in ("sha256", "sha512", "sha384", "blake2b"):
        if algorithm in file.hashes:
            return algorithm, file.hashes[algorithm]
    return "sha256", None


def safe_name(filename: str) -> str:
    """File name from an index; raise IndexUnavailableError if it would lead out of its folder or is too long."""
    if not filename or filename in (".", "..") or "/" in filename or "\0" in filename or len(filename.encode("utf-8", "replace")) > 240:
        raise IndexUnavailableError(f"an index offers a file with the invalid name {shown(filename)}", code="index-garbage")
    return filename


def _is_right(path: str, file: File) -> bool:
    algorithm, digest = strongest(file)
    try:
        if file.size is not None and os.stat(path).st_size != file.size:
            return False
        return digest is not None and digest_of(path, algorithm) == digest
    except OSError:
        return False


def digest_of(path: str, algorithm: str = "sha256") -> str:
    """Digest of a file on disk; raise OSError if it cannot be read."""
    digest: Any = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return str(digest.hexdigest())


def _disk_error(error: OSError, path: str) -> WorldError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorldError(f"no space left for {path}", code="disk-full", hint="free some space, or use a folder on another disk (TMPDIR)")
    return WorldError(f"{path} cannot be written: {error.strerror or type(error).__name__}", code="output-unwritable")
