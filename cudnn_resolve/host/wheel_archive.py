"""Contents of a wheel, read without unpacking it."""

from __future__ import annotations

import zipfile
import zlib
from lzma import LZMAError

from cudnn_resolve.errors import WorldError
from cudnn_resolve.requirement.source import Contents

MOST_MEMBERS = 400_000
MOST_TEXT_BYTES = 64 << 20
_DAMAGE = (OSError, zipfile.BadZipFile, zlib.error, LZMAError, ValueError, EOFError, NotImplementedError, RuntimeError, LookupError)
"""Exceptions of zipfile for damaged files."""


class Archive:
    """An open wheel; a context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise bad_wheel(path, f"it cannot be read: {error}") from None

    def __enter__(self) -> Archive:  # noqa: PYI034 - typing has no Self before Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    def contents(self) -> Contents:
        """Every file, directories left out; raise WorldError if there are more than any wheel has."""
        infos = self._zip.infolist()
        if len(infos) > MOST_MEMBERS:
            raise bad_wheel(self.path, f"it has {len(infos)} members")
        # `orig_filename` is what the archive holds; `filename` is cut at a NUL byte, and other programs may read it differently.
        files = [info for info in infos if not info.orig_filename.endswith("/")]
        return Contents(
            names=tuple(info.orig_filename for info in files),
            unpacked=sum(info.file_size for info in files),
            checksums=tuple(info.CRC for info in files),
            links=tuple(info.orig_filename for info in files if (info.external_attr >> 28) == 0o12),
        )

    def folders(self) -> tuple[str, ...]:
        """Every directory that is a member itself."""
        return tuple(info.orig_filename[:-1] for info in self._zip.infolist() if info.orig_filename.endswith("/"))

    def text(self, name: str) -> str | None:
        """Text of a member; None if there is none. Raise WorldError if it is damaged or far too large."""
        try:
            with self._zip.open(name) as member:
                raw = member.read(MOST_TEXT_BYTES + 1)
        except KeyError:
            return None
        except _DAMAGE as error:
            raise bad_wheel(self.path, f"{name} cannot be read: {error}") from None
        if len(raw) > MOST_TEXT_BYTES:
            raise bad_wheel(self.path, f"{name} is far too large")
        return raw.decode("utf-8", "replace")


def bad_wheel(path: str, why: str) -> WorldError:
    """Error for a wheel that cannot be installed."""
    name = path.rpartition("/")[2]
    return WorldError(f"{name} cannot be installed: {why}", code="wheel-bad", hint="nothing was changed")
