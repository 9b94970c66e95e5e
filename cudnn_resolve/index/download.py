"""Files of releases, downloaded whole: checked while they come, taken up where they broke off, in place only when they are right."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeVar

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.index.address import is_local, path_of, shown
from cudnn_resolve.index.refusal import Refusal, TransientRefusal
from cudnn_resolve.requirement.source import File

if TYPE_CHECKING:
    from hashlib import _Hash

    from cudnn_resolve.index.transport import Answer, Transport

T = TypeVar("T")
Told = Callable[[str, int, int | None], None]
"""Name of a file, bytes that are there, bytes that it has."""
LARGEST_FILE = 64 << 30
_PIECE = 1 << 20


class _DiskError(Exception):
    """The disk refused while an answer came; not the network's fault."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Downloads:
    """Files of indexes, downloaded through one transport."""

    def __init__(self, transport: Transport, retries: int) -> None:
        self._transport = transport
        self._retries = retries

    def fetch(self, file: File, folder: str, told: Told | None = None) -> str:
        """The path of the file in `folder`: there already with the right hash, copied, or downloaded.

        WorldError where the disk refuses, IndexUnavailableError where the file cannot be had or is not the one that was promised.
        """
        path = os.path.join(folder, safe_name(file.filename))
        if file.hashes and _is_right(path, file):
            return path
        passing = os.path.join(folder, f".{os.path.basename(path)[:200]}.{os.getpid()}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.open(passing, flags, 0o666), "w+b") as stream:
                self._fill(stream, file, told)
            os.replace(passing, path)
        except OSError as error:
            _forget(passing)
            raise _of_disk(error, path) from None
        except _DiskError as error:
            _forget(passing)
            raise _of_disk(error.error, path) from None
        except Refusal as refusal:
            _forget(passing)
            raise IndexUnavailableError(
                f"{file.filename[:200]} could not be downloaded from {shown(file.url)}: {refusal.why}", code=refusal.code, hint=refusal.hint
            ) from None
        except BaseException:
            _forget(passing)
            raise
        return path

    def passing(self, file: File, read: Callable[[str], T]) -> T:
        """What `read` makes of the file, which is downloaded for it and thrown away; Refusal and errors of `read`."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            path = os.path.join(folder, safe_name(file.filename))
            with open(path, "w+b") as stream:
                try:
                    self._fill(stream, file, None)
                except _DiskError as error:
                    raise error.error from None
            return read(path)

    def _fill(self, stream: IO[bytes], file: File, told: Told | None) -> None:
        """Writes the file's bytes; Refusal where they are not what was promised."""
        algorithm, digest = strongest(file)
        taken = _Taken(stream, algorithm, file, told)
        if is_local(file.url):
            with open(path_of(file.url), "rb") as source:
                taken.take_all(iter(lambda: source.read(_PIECE), b""))
        else:
            self._download(taken, file)
        stream.flush()
        if file.size is not None and taken.size != file.size:
            raise Refusal(f"it has {taken.size} bytes, and {file.size} were promised", code="file-size")
        if digest and taken.digest() != digest:
            raise Refusal(f"its {algorithm} is {taken.digest()}, and {digest} was promised", code="file-hash")

    def _download(self, taken: _Taken, file: File) -> None:
        attempt = 0
        while True:
            before = taken.size
            headers = {"Range": f"bytes={before}-"} if before else {}
            try:
                answer = self._transport.stream(file.url, headers, taken.take)
            except TransientRefusal as refusal:
                attempt = 1 if taken.size > before else attempt + 1
                if attempt > self._retries:
                    raise
                self._transport.pause(refusal, attempt - 1)
            else:
                if answer.status not in (200, 206):
                    raise Refusal(f"it answers HTTP {answer.status}", status=answer.status)
                return


class _Taken:
    """What has come of a file so far."""

    def __init__(self, stream: IO[bytes], algorithm: str, file: File, told: Told | None) -> None:
        self._stream = stream
        self._algorithm = algorithm
        self._file = file
        self._told = told
        self.size = 0
        self._hash = _new_hash(algorithm)

    def digest(self) -> str:
        """Of all that came."""
        return self._hash.hexdigest()

    def take(self, answer: Answer, pieces: Iterator[bytes]) -> None:
        """Writes an answer behind what is there, or anew where the server begins at the beginning."""
        if self.size and not (answer.status == 206 and answer.headers.get("content-range", "").startswith(f"bytes {self.size}-")):
            self._restart()
        self.take_all(pieces)

    def take_all(self, pieces: Iterator[bytes]) -> None:
        """Writes all pieces."""
        most = self._file.size if self._file.size is not None else LARGEST_FILE
        for piece in pieces:
            self.size += len(piece)
            if self.size > most:
                raise Refusal(f"it is longer than the {most} bytes that were promised", code="file-size")
            try:
                self._stream.write(piece)
            except OSError as error:
                raise _DiskError(error) from None
            self._hash.update(piece)
            if self._told:
                self._told(self._file.filename, self.size, self._file.size)

    def _restart(self) -> None:
        try:
            self._stream.seek(0)
            self._stream.truncate()
        except OSError as error:
            raise _DiskError(error) from None
        self.size = 0
        self._hash = _new_hash(self._algorithm)


def strongest(file: File) -> tuple[str, str | None]:
    """The algorithm by which a file is checked, and its digest; `sha256` and None where none is promised."""
    for algorithm in ("sha256", "sha512", "sha384", "blake2b"):
        if algorithm in file.hashes:
            return algorithm, file.hashes[algorithm]
    return "sha256", None


def sha256_of(path: str) -> str:
    """The digest of a file on disk; OSError where it cannot be read."""
    made = _new_hash("sha256")
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            made.update(piece)
    return made.hexdigest()


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
        made = _new_hash(algorithm)
        with open(path, "rb") as stream:
            while piece := stream.read(_PIECE):
                made.update(piece)
    except OSError:
        return False
    return digest is not None and made.hexdigest() == digest


def _new_hash(algorithm: str) -> _Hash:
    import hashlib

    made: Any = hashlib.new(algorithm)
    return made  # type: ignore[no-any-return]


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _of_disk(error: OSError, path: str) -> WorldError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorldError(
            f"there is no room left for {path}", code="disk-full", hint="free some space, or name a folder on another disk (TMPDIR)"
        )
    return WorldError(f"{path} cannot be written: {error.strerror or type(error).__name__}", code="output-unwritable")
