"""Client of a package index: the files of a project, and the metadata of a wheel without downloading it.

Pages are requested as JSON (PEP 691) or HTML (PEP 503), whichever the index has. Metadata comes from the file next to the wheel (PEP 658)
if there is one, announced or not, otherwise from the wheel by range requests.
"""

from __future__ import annotations

import errno
import io
import os
import re
import socket
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import requests
from harvest_archive import Metadata, archive_metadata, parse_metadata
from harvest_cache import Cache
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

CONNECTIONS = 16
"""Concurrent connections; more were not faster when measured."""
TIMEOUT_S = (10, 60)
"""For connecting, and for reading."""
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.2"
TAIL_BYTES = 16 * 1024
"""End of a wheel that is read first; for most it contains the whole central directory."""
BLOCK_BYTES = 8 * 1024
LARGEST_READ_BYTES = 64 * 1024 * 1024
LARGEST_METADATA_BYTES = 4 * 1024 * 1024
LARGEST_ARCHIVE_BYTES = 2 * 1024 * 1024
"""Largest source archive read for its requirements."""


class IndexFailure(Exception):  # noqa: N818 - a failure of the index, not of the program
    """A page or a wheel could not be read; the text says which and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """One file of a project, as listed on its page."""

    name: str
    url: str
    requires_python: str | None = None
    yanked: bool = False
    day: str | None = None
    """Day of its upload, `2024-08-01`."""


def configured_index() -> str:
    """Return the simple API that pip is configured for, or pip's default from its help; SystemExit if pip gives neither."""
    pip = [sys.executable, "-m", "pip"]
    done = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False)
    configured = dict(re.findall(r"^(\S+)\.index-url='(.*)'$", done.stdout, re.MULTILINE))
    for place in (":env:", "install", "global"):
        if configured.get(place):
            return str(configured[place])
    done = subprocess.run([*pip, "install", "--help"], capture_output=True, text=True, check=False)
    found = re.search(r"--index-url\b.*?\(default\s+(\S+?)\)", done.stdout, re.DOTALL)
    if found is None:
        raise SystemExit("harvest: pip has no index configured; use --index-url URL")
    return found[1]


def cache_name_lookups() -> None:
    """Cache the name look-ups of this process; many at once overload some resolvers."""
    getaddrinfo, lock, known = socket.getaddrinfo, threading.Lock(), {}

    def cached(*args: Any, **named: Any) -> Any:
        key = (args, tuple(sorted(named.items())))
        with lock:
            if key not in known:
                known[key] = getaddrinfo(*args, **named)
            return known[key]

    socket.getaddrinfo = cached


class Index:
    """One simple API with its cache. May be used from several threads."""

    def __init__(self, url: str, cache: str) -> None:
        self.url = url.rstrip("/") + "/"
        self.cache = Cache(cache)
        self._session = requests.Session()
        self._session.headers["User-Agent"] = "cudnn-resolve-harvest"
        retry = Retry(total=5, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False)
        adapter = HTTPAdapter(pool_connections=4, pool_maxsize=CONNECTIONS, pool_block=True, max_retries=retry)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

    def files(self, project: str) -> list[RemoteFile]:
        """Return the files of a project, in page order; IndexFailure if there is no page."""
        answer = self._get(f"{self.url}{project}/", {"Accept": ACCEPT})
        if answer.status_code != requests.codes.ok:
            raise IndexFailure(f"{project}: the index returned {answer.status_code}")
        if "json" in answer.headers.get("Content-Type", ""):
            return [_from_json(entry, answer.url) for entry in answer.json()["files"]]
        page = _Page(answer.url)
        page.feed(answer.text)
        return page.files

    def metadata(self, file: RemoteFile) -> Metadata | None:
        """Return the metadata of a wheel or small source archive, cached since files on an index never change.

        None if a source archive does not contain it. IndexFailure if the file cannot be read.
        """
        entry = self.cache.get("metadata", file.url)
        if entry is None:
            known = self._wheel_metadata(file) if file.name.endswith(".whl") else self._archive_metadata(file)
            entry = {"file": file.name, **({"requires": known.requires, "extras": known.extras} if known else {})}
            self.cache.put("metadata", file.url, entry)
        return Metadata(requires=tuple(entry["requires"]), extras=tuple(entry["extras"])) if "requires" in entry else None

    def _wheel_metadata(self, file: RemoteFile) -> Metadata:
        beside = self._get(file.url + ".metadata")
        if beside.status_code == requests.codes.ok and beside.content.startswith(b"Metadata-Version"):
            return parse_metadata(beside.content.decode("utf-8", "replace"))
        try:
            return parse_metadata(_metadata_member(_RangeFile(self, file.url)).decode("utf-8", "replace"))
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError) as error:
            raise IndexFailure(f"{file.name}: {error}") from error

    def _archive_metadata(self, file: RemoteFile) -> Metadata | None:
        answer = self.range(file.url, f"0-{LARGEST_ARCHIVE_BYTES - 1}")
        whole = int(answer.headers["Content-Range"].rpartition("/")[2]) == len(answer.content)
        return archive_metadata(answer.content) if whole else None

    def range(self, url: str, span: str) -> requests.Response:
        """Request a part of a file, `0-99` or `-100`; IndexFailure if the server would send all of it."""
        answer = self._get(url, {"Range": f"bytes={span}", "Accept-Encoding": "identity"})
        if answer.status_code not in (requests.codes.partial_content, requests.codes.requested_range_not_satisfiable):
            raise IndexFailure(f"{url.rsplit('/', 1)[-1]}: the index returned {answer.status_code} to a range request")
        return answer

    def _get(self, url: str, headers: dict[str, str] | None = None) -> requests.Response:
        """Send a request and read the body, unless a range was requested and the whole file would come."""
        try:
            answer = self._session.get(url, headers=headers, timeout=TIMEOUT_S, stream=True)
            if headers and "Range" in headers and answer.status_code == requests.codes.ok:
                answer.close()
            else:
                _ = answer.content
        except requests.RequestException as error:
            raise IndexFailure(f"{url.rsplit('/', 1)[-1] or 'page'}: {type(error).__name__}") from error
        return answer


class Positioned(io.RawIOBase):
    """Base of remote files for `zipfile`: size and position; subclasses read."""

    _size: int
    _at = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Change the position, and return it."""
        to = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if to < 0:
            raise OSError(errno.EINVAL, "before the start of the file")
        self._at = to
        return to


class _RangeFile(Positioned):
    """Remote file for `zipfile`, read in ranges: first the tail, then what is needed, at least a block."""

    def __init__(self, index: Index, url: str) -> None:
        self._index, self._url = index, url
        answer = index.range(url, f"-{TAIL_BYTES}")
        self._size = int(answer.headers["Content-Range"].rpartition("/")[2])
        if answer.status_code != requests.codes.partial_content:  # shorter than the tail, which some servers reject
            answer = index.range(url, f"0-{self._size - 1}")
        self._parts = [(self._size - len(answer.content), answer.content)]

    def readinto(self, buffer: Any) -> int:
        data = self.part(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def part(self, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, fewer at the end of the file."""
        length = min(length, self._size - start)
        if length <= 0:
            return b""
        for first, data in self._parts:
            if first <= start and start + length <= first + len(data):
                return data[start - first : start - first + length]
        last = min(self._size, start + max(length, BLOCK_BYTES)) - 1
        if last - start > LARGEST_READ_BYTES:
            raise zipfile.BadZipFile("the central directory is too large")
        self._parts.append((start, self._index.range(self._url, f"{start}-{last}").content))
        return self._parts[-1][1][:length]


def remote_archive(index: Index, file: RemoteFile) -> zipfile.ZipFile:
    """Open a wheel on the index, fetching only what is read."""
    return zipfile.ZipFile(_RangeFile(index, file.url))


def _metadata_member(file: _RangeFile) -> bytes:
    """Return the METADATA of a wheel; KeyError if it has none, BadZipFile if it is not a zip."""
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", member.filename)]
        if not members:
            raise KeyError("no METADATA inside")
        file.part(members[0].header_offset, min(members[0].compress_size, LARGEST_METADATA_BYTES) + 1024)
        with archive.open(members[0]) as stream:
            return stream.read(LARGEST_METADATA_BYTES)


def _from_json(entry: dict[str, Any], base: str) -> RemoteFile:
    return RemoteFile(
        name=entry["filename"],
        url=urljoin(base, entry["url"]),
        requires_python=entry.get("requires-python") or None,
        yanked=entry.get("yanked", False) is not False,
        day=(entry.get("upload-time") or "")[:10] or None,
    )


class _Page(HTMLParser):
    """Parser of a PEP 503 page."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.files: list[RemoteFile] = []
        self._base = base

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "base" and named.get("href"):
            self._base = urljoin(self._base, named["href"] or "")
        if tag != "a" or not named.get("href"):
            return
        url = urljoin(self._base, named["href"] or "").partition("#")[0]
        self.files.append(
            RemoteFile(
                name=unquote(urlsplit(url).path.rsplit("/", 1)[-1]),
                url=url,
                requires_python=named.get("data-requires-python") or None,
                yanked="data-yanked" in named,
                day=(named.get("data-upload-time") or "")[:10] or None,
            )
        )
