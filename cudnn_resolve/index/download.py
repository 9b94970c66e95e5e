"""Whole files of an index, onto this disk; what they must be is the caller's to check."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.index.address import is_local, path_of, shown
from cudnn_resolve.index.transport import Refusal, Transport

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from cudnn_resolve.index.settings import Settings
    from cudnn_resolve.requirement.source import File

MOST_BYTES = 32 << 30
"""No file of a release is larger."""
_PIECE = 1 << 20


class Downloads:
    """Brings files from the places of one configuration, with its credentials; safe to use from several threads."""

    def __init__(self, settings: Settings, *, offline: bool = False) -> None:
        self._transport = Transport(settings)
        self._offline = offline

    def close(self) -> None:
        """Ends the connections."""
        self._transport.close()

    def __call__(self, file: File, folder: str, progress: Callable[[int], None]) -> str:
        """The path of the file in the folder, whole; `progress` hears of the bytes as they come.

        IndexUnavailableError where its server does not give it, WorldError where it is not there or the disk refuses.
        """
        target = os.path.join(folder, os.path.basename(file.filename))
        part = f"{target}.part"
        try:
            if is_local(file.url):
                self._copy(path_of(file.url), part, progress)
            else:
                self._fetch(file, part, progress)
            os.replace(part, target)
        except OSError as error:
            raise WorldError(f"{file.filename[:200]}: {error.strerror or error}", code="download", context=folder) from None
        finally:
            if os.path.exists(part):
                os.unlink(part)
        return target

    def _copy(self, path: str, part: str, progress: Callable[[int], None]) -> None:
        if not os.path.isfile(path):
            raise WorldError(f"there is no file {path} any more", code="download", hint="plan again")
        try:
            os.link(path, part)
        except OSError:
            shutil.copyfile(path, part)
        progress(os.path.getsize(part))

    def _fetch(self, file: File, part: str, progress: Callable[[int], None]) -> None:
        if self._offline:
            raise WorldError(
                f"{file.filename[:200]} is not on this disk, and --offline was said", code="offline", hint="leave --offline out"
            )
        came = 0

        def take(response: HTTPResponse, pieces: Iterator[bytes]) -> bool:
            nonlocal came
            del response
            with open(part, "wb") as stream:
                if came:
                    progress(-came)
                    came = 0
                came = _pour(pieces, stream, file.size or MOST_BYTES, progress)
            return True

        try:
            done = self._transport.stream(file.url, {"Accept-Encoding": "identity"}, take)
        except Refusal as refusal:
            what = f"{file.filename[:200]} from {shown(file.url)}"
            raise IndexUnavailableError(f"{what} could not be had: {refusal.why}", code=refusal.code, hint=refusal.hint) from None
        if done is not True:
            what = f"{file.filename[:200]} from {shown(file.url)}"
            raise IndexUnavailableError(f"{what} could not be had: HTTP {done.status}", code="index-unavailable", hint="plan again")


def _pour(pieces: Iterator[bytes], stream: BinaryIO, most: int, progress: Callable[[int], None]) -> int:
    came = 0
    for piece in pieces:
        came += len(piece)
        if came > most:
            raise Refusal(f"it sends more than the {most} bytes that it promised", code="index-garbage")
        stream.write(piece)
        progress(len(piece))
    return came
