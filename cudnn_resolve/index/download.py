"""Files of releases, downloaded whole: checked while they come, resumed where they broke off, in place only when they are right.

A part that a broken-off run left is taken up by the next one where a hash is promised, which judges the whole. Further parts are asked for
with If-Range, within a run and by the next one: a file that changed on its server meanwhile comes whole again.
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
Told = Callable[[str, int, int | None], None]
"""Name of a file, bytes that are there, bytes that it has."""
LARGEST_FILE = 16 << 30
"""Bound of a download of which neither the lock nor the index says a size."""
_LONGEST_SECONDS = 6 * 3600.0
_BESIDE = ".from"
"""Behind the name of a part: the file that says which edition it is of."""
_LONGEST_EDITION = 200
_EDITION = re.compile(r'"[\x21\x23-\x7e]{0,198}"|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT')
_SETTLED_SECONDS = 60
_PIECE = 1 << 20
_LEAST_PROGRESS = 1 << 16
"""Bytes after which a connection that broke off counts as progress, and tries are counted from one again."""


class Downloads:
    """Files of indexes, downloaded through one session."""

    def __init__(self, session: IndexSession) -> None:
        self._session = session

    def fetch(self, file: File, folder: str, told: Told | None = None, *, resume: bool = False) -> str:
        """The path of the file in `folder`: there already with the right hash, copied, or downloaded.

        With `resume`, for a folder that nobody else writes, a part that comes to no end stays there and is taken up by the next call.
        WorldError where the disk refuses, IndexUnavailableError where the file cannot be had or is not the one that was promised.
        """
        path = os.path.join(folder, safe_name(file.filename))
        if file.hashes and _is_right(path, file):
            return path
        resume = resume and strongest(file)[1] is not None and not is_local(file.url)
        mark = "" if resume else f".{os.getpid()}"
        passing = os.path.join(folder, f".{os.path.basename(path)[:200]}{mark}.part")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.open(passing, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "r+b") as stream:
                self._fill(stream, file, told, _Edition(f"{passing}{_BESIDE}" if resume else None))
            os.replace(passing, path)
        except OSError as error:
            resume = False
            raise _disk_error(error, path) from None
        except FetchError as error:
            resume = resume and isinstance(error, TransientError)
            what = f"{file.filename[:200]} could not be downloaded from {shown(file.url)}: {error.why}"
            raise IndexUnavailableError(what, code=error.code, hint=error.hint) from None
        finally:
            if not resume or os.path.exists(path):
                for name in (passing, f"{passing}{_BESIDE}"):
                    with contextlib.suppress(OSError):
                        os.unlink(name)
        return path

    def passing(self, file: File, read: Callable[[str], T]) -> T:
        """What `read` makes of the file, which is downloaded for it and thrown away; FetchError and errors of `read`."""
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            path = os.path.join(folder, safe_name(file.filename))
            with open(path, "w+b") as stream:
                self._fill(stream, file, None, _Edition(None))
            return read(path)

    def _fill(self, stream: IO[bytes], file: File, told: Told | None, edition: _Edition) -> None:
        """Write the file's bytes behind those that are there; FetchError where they are not what was promised."""
        algorithm, digest = strongest(file)
        file = file if file.size is not None or is_local(file.url) else replace(file, size=self._size_on_index(file))
        partial = _Partial(stream, algorithm, file, told)
        resumed = partial.size
        if is_local(file.url):
            with open(path_of(file.url), "rb") as source:
                while piece := source.read(_PIECE):
                    partial.write(piece)
        elif resumed != file.size or partial.digest() != digest:
            self._download(partial, file, edition)
            if resumed and digest and partial.digest() != digest:  # what an earlier run left was of another file
                partial.restart()
                self._download(partial, file, edition)
        stream.flush()
        if file.size is not None and partial.size != file.size:
            raise FetchError(f"it has {partial.size} bytes, and {file.size} were promised", code="file-size")
        if digest and partial.digest() != digest:
            raise FetchError(f"its {algorithm} is {partial.digest()}, and {digest} was promised", code="file-hash")

    def _download(self, partial: _Partial, file: File, edition: _Edition) -> None:
        ends = time.monotonic() + _LONGEST_SECONDS
        start = 0

        def once() -> None:
            nonlocal start
            start = partial.size
            headers = {"Range": f"bytes={start}-", **edition.condition} if start else {}
            limit = LARGEST_FILE if file.size is None else file.size
            with self._session.opened(file.url, headers, limit=limit, seconds=ends - time.monotonic()) as (response, _):
                if response.status_code == 416 and start:
                    partial.restart()
                    raise TransientError("it has fewer bytes than came before", code="index-garbage")
                if response.status_code not in (200, 206):
                    raise FetchError(f"it answers HTTP {response.status_code}", status=response.status_code)
                is_rest = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
                if is_rest and not edition.has(response.headers):  # it does not heed If-Range
                    partial.restart()
                    raise TransientError("it became another file while it came", code="index-garbage")
                if start and not is_rest:
                    partial.restart()
                edition.keep(response.headers)
                for piece in self._session.chunks(response):
                    partial.write(piece)

        self._session.retried(once, lambda: partial.size - start >= _LEAST_PROGRESS)

    def _size_on_index(self, file: File) -> int | None:
        """The size that the index states of a file of which the lock states none: a server cannot fill the disk with another one."""
        if file.origin is None or is_local(file.origin):
            return None
        from cudnn_resolve.index.filename import projects_in
        from cudnn_resolve.index.page import PageError, files_of
        from cudnn_resolve.index.pages import Pages

        for name in projects_in(file.filename):
            with contextlib.suppress(FetchError, PageError):
                page = Pages(lambda: self._session, Cache(None)).read(file.origin, name, None)
                listed = (one for number in range(len(page.versions)) for one in files_of(page, number, None)) if page else ()
                return next((one.size for one in listed if one.filename == file.filename), None)
        return None


class _Edition:
    """Which edition of its file a part is of, as the server names it; kept beside the part for the next run where there is a path."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._name = ""
        if path is not None:
            with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
                self._name = _edition_of(file.read(_LONGEST_EDITION + 1).strip())

    @property
    def condition(self) -> dict[str, str]:
        """The header by which another edition comes whole."""
        return {"If-Range": self._name} if self._name else {}

    def has(self, headers: Mapping[str, str]) -> bool:
        """False where an answer names another edition."""
        said = headers.get("ETag" if self._name.startswith('"') else "Last-Modified", "")
        return not self._name or not said or said == self._name

    def keep(self, headers: Mapping[str, str]) -> None:
        """Remember the edition of an answer."""
        name = _edition_of(headers.get("ETag", "")) or _edition_of(_settled(headers))
        if name != self._name and self._path is not None:
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "wb") as file:
                file.write(name.encode("ascii"))
        self._name = name


def _edition_of(text: str) -> str:
    """A strong ETag or a date; empty for anything else: a weak ETag says nothing of bytes."""
    return text if _EDITION.fullmatch(text) else ""


def _settled(headers: Mapping[str, str]) -> str:
    """The time of the last change, where it is far enough back that it tells two editions apart."""
    try:
        changed, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("Last-Modified", "Date"))
        return headers["Last-Modified"] if (now - changed).total_seconds() >= _SETTLED_SECONDS else ""
    except (ValueError, TypeError, OverflowError):
        return ""


class _Partial:
    """A file as far as it has come: with what an earlier run left of it."""

    def __init__(self, stream: IO[bytes], algorithm: str, file: File, told: Told | None) -> None:
        self._stream = stream
        self._algorithm = algorithm
        self._file = file
        self._told = told
        self._hash = hashlib.new(algorithm)
        self.size = 0
        while piece := stream.read(_PIECE):
            self._hash.update(piece)
            self.size += len(piece)
        if self.size > (LARGEST_FILE if file.size is None else file.size):
            self.restart()

    def digest(self) -> str:
        """The hash of all that came."""
        return self._hash.hexdigest()

    def write(self, piece: bytes) -> None:
        """Add a piece; FetchError where the file becomes longer than it should be."""
        most = self._file.size if self._file.size is not None else LARGEST_FILE
        self.size += len(piece)
        if self.size > most:
            raise FetchError(f"it is longer than the {most} bytes that were promised", code="file-size")
        self._stream.write(piece)
        self._hash.update(piece)
        if self._told:
            self._told(self._file.filename, self.size, self._file.size)

    def restart(self) -> None:
        """Forget what came: the server begins at the beginning."""
        self._stream.seek(0)
        self._stream.truncate()
        self._hash = hashlib.new(self._algorithm)
        self.size = 0


def strongest(file: File) -> tuple[str, str | None]:
    """The algorithm by which a file is checked, and its digest; `sha256` and None where none is promised."""
    for algorithm in ("sha256", "sha512", "sha384", "blake2b"):
        if algorithm in file.hashes:
            return algorithm, file.hashes[algorithm]
    return "sha256", None


def safe_name(filename: str) -> str:
    """The name of a file that came from an index, fit for a folder; IndexUnavailableError where it would lead out of it."""
    if not filename or filename in (".", "..") or "/" in filename or "\0" in filename or len(filename.encode("utf-8", "replace")) > 240:
        raise IndexUnavailableError(f"an index offers a file with the name {shown(filename)}", code="index-garbage")
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
    """The digest of a file on disk; OSError where it cannot be read."""
    made: Any = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            made.update(piece)
    return str(made.hexdigest())


def _disk_error(error: OSError, path: str) -> WorldError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorldError(
            f"there is no room left for {path}", code="disk-full", hint="free some space, or name a folder on another disk (TMPDIR)"
        )
    return WorldError(f"{path} cannot be written: {error.strerror or type(error).__name__}", code="output-unwritable")
