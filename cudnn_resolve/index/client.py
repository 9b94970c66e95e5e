"""Package indexes as a resolution asks them.

settings = read_settings(Options(), os.environ, prefix=prefix, import_path=path)
with IndexClient(settings, cache_folder=folder, offline=False) as source:
    source.listing("numpy")
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index.address import is_local, path_of
from cudnn_resolve.index.cache import Cache
from cudnn_resolve.index.fetch_error import FORBIDDEN, FetchError
from cudnn_resolve.index.folder import Folders, page_of_tree
from cudnn_resolve.index.listing import Offered, make_listing
from cudnn_resolve.index.metadata_cache import MetadataCache
from cudnn_resolve.index.page import LinkPage, Page, PageError
from cudnn_resolve.index.page_cache import Pages
from cudnn_resolve.index.settings import UV, IndexAddress, Settings
from cudnn_resolve.masking import shown
from cudnn_resolve.requirement.source import File, IndexLocation, Listing, Metadata

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession

T = TypeVar("T")
THREADS = 8
"""Concurrent requests."""
_OFFLINE_HINT = "--offline uses only the tables and the cache"
Progress = Callable[[int, int, str], None]
"""Called during a wait with the requests sent, the bytes received, and a description of what is awaited."""


class IndexClient:
    """The indexes, folders and pages of links of one configuration; a `requirement.source.Source`. Sends nothing unasked.

    `cache_folder` is the program's folder in the user's cache; None disables the cache. `offline` uses the cache only, whatever its age.
    """

    def __init__(
        self, settings: Settings, *, cache_folder: str | None = None, offline: bool = False, progress: Progress | None = None
    ) -> None:
        self.settings = settings
        self.offline = offline
        self.notes: list[str] = list(settings.notes)
        """Notes for the user; more may be added with each call."""
        self._progress = progress
        self._lock = threading.Lock()
        self._opened: IndexSession | None = None
        cache = Cache(cache_folder)
        self._threads = ThreadPoolExecutor(THREADS)
        self._pages = Pages(self._session, cache)
        self._metadata_cache = MetadataCache(self._session, cache, self._note, offline=offline)
        self._requested: dict[tuple[str, str], Future[Page | None]] = {}
        self._metadata: dict[str, Future[Metadata | None]] = {}
        self._listings: dict[tuple[str, str], Listing | None] = {}
        self._folders = Folders(self._note)
        self._link_pages: dict[str, LinkPage] = {}

    def __enter__(self) -> IndexClient:  # noqa: PYI034 - nothing inherits from it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End threads and connections; releases that have been listed remain usable."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._opened:
            self._opened.close()

    def _session(self) -> IndexSession:
        """The session, opened with the first request: answers from the cache need none."""
        with self._lock:
            if self._opened is None:
                from cudnn_resolve.index.session import IndexSession

                self._opened = IndexSession(self.settings)
            return self._opened

    @property
    def requests(self) -> int:
        """Number of requests sent."""
        return self._opened.requests if self._opened else 0

    @property
    def received(self) -> int:
        """Bytes of bodies received."""
        return self._opened.received if self._opened else 0

    @property
    def exclude_newer(self) -> str | None:
        """Time from which on uploads are excluded, as `requirement.source.Source.exclude_newer`."""
        return self.settings.exclude_newer

    def listing(self, name: str, place: IndexLocation | None = None) -> Listing | None:
        """Releases of a package, as `requirement.source.Source.listing`."""
        key = (name, place.url if place else "")
        if key not in self._listings:
            self._listings[key] = self._list(name, place)
        return self._listings[key]

    def metadata(self, name: str, file: File) -> Metadata | None:
        """Metadata of a file, as `requirement.source.Source.metadata`."""
        what = f"metadata of {file.filename[:100]}"
        future = self._metadata.get(file.url)
        if future is None or future.cancel():
            self._tell(what)
            future = self._metadata[file.url] = _done(lambda: self._metadata_cache.read(name, file))
        try:
            return self._result(future, what)
        except FetchError as error:
            raise _unavailable(error, f"the metadata of {file.filename[:200]} from {shown(file.url)}") from None

    def prefetch(self, names: Iterable[str]) -> None:
        """Request pages of packages ahead of need, as `requirement.source.Source.prefetch`."""
        if self.offline:
            return
        for name in names:
            for index in self._indexes_for(name)[: 1 if self.settings.rule == UV else None]:
                self._expect(index.url, name)
            for link in self.settings.find_links:
                self._expect(link, "")

    def prefetch_metadata(self, name: str, file: File) -> None:
        """Request the metadata of a file ahead of need, as `requirement.source.Source.prefetch_metadata`."""
        if self.offline or file.url in self._metadata or is_local(file.url) or self._metadata_cache.cached(file):
            return
        self._metadata[file.url] = self._threads.submit(self._metadata_cache.read, name, file)

    def fetch(self, file: File, folder: str) -> str:
        """Download a file into `folder`; size and hash are checked. Raise WorldError if it cannot be downloaded or written."""
        from cudnn_resolve.index.download import Downloads

        return self._result(self._threads.submit(Downloads(self._session()).fetch, file, folder), file.filename)

    def read_downloaded(self, file: File, read: Callable[[str], T]) -> T:
        """Download a file, call `read` with its path, and delete it."""
        from cudnn_resolve.index.download import Downloads

        try:
            return Downloads(self._session()).read_downloaded(file, read)
        except FetchError as error:
            raise _unavailable(error, file.filename[:200]) from None

    def completed(self, files: Sequence[File]) -> list[File]:
        """The files with sizes and hashes that their index does not give, as `requirement.source.Source.completed`."""
        pool = ThreadPoolExecutor(THREADS)
        try:
            futures = [pool.submit(self._metadata_cache.completed, file) for file in files]
            return [self._result(future, f"the size of {file.filename[:100]}") for file, future in zip(files, futures, strict=True)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def keep_metadata(self, file: File, metadata: Metadata) -> None:
        """Cache metadata of a file that was read elsewhere."""
        self._metadata_cache.keep(file, metadata)

    def _list(self, name: str, place: IndexLocation | None) -> Listing | None:
        if place is not None:
            return self._list_place(name, place)
        offered = []
        is_known = True
        for link in self.settings.find_links:
            known, page = self._of_links(link, name)
            is_known &= known
            if page and page.versions:
                offered.append(Offered(page))
        is_known &= self._ask_indexes(name, offered)
        if not is_known and not offered:
            return None
        origins = tuple(dict.fromkeys(index.origin for index in offered if index.origin))
        if self.offline:  # if several places have a file, prefer the copy on this machine, which can be read
            offered.sort(key=lambda index: index.origin is not None and not is_local(index.origin))
        listing = make_listing(name, offered, self.settings, tuple(shown(origin) for origin in origins))
        return listing if is_known else replace(listing, is_partial=True)

    def _list_place(self, name: str, place: IndexLocation) -> Listing | None:
        """Releases at one place alone; None if it is unknown, offline."""
        if place.kind == "find-links":
            is_known, page = self._of_links(place.url, name)
            origin = None
        else:
            origin = place.url.rstrip("/")
            is_known, page = self._of_index(origin, name)
        return make_listing(name, [Offered(page, origin)] if page else [], self.settings) if is_known else None

    def _indexes_for(self, name: str) -> Sequence[IndexAddress]:
        """Indexes for a package: all, or the one that uv's configuration assigns to it."""
        return [index for package, index in self.settings.assigned if package == name] or self.settings.indexes

    def _ask_indexes(self, name: str, offered: list[Offered]) -> bool:
        """Add what the indexes offer of a package; False if an index is unknown, offline."""
        is_known = True
        refused: IndexUnavailableError | None = None
        refusing: list[str] = []
        for index in self._indexes_for(name):
            if is_local(index.url):
                self._check_folder(index)
            try:
                known, page = self._of_index(index.url, name)
            except IndexUnavailableError as error:
                if error.code != FORBIDDEN:
                    raise
                refused = error
                refusing.append(shown(index.url))
                continue
            is_known &= known
            if page and page.versions:
                offered.append(Offered(page, index.url))
                if self.settings.rule == UV:
                    break
        if refused and not offered:
            raise refused
        if refused:
            self._note(f"{', '.join(refusing)} refuses access without a login (HTTP 403): treated as not having the package")
        return is_known

    def _check_folder(self, index: IndexAddress) -> None:
        """Report a local index that does not exist: as an error if an option names it, else as a note, like pip."""
        path = path_of(index.url)
        if os.path.isdir(path):
            return
        if index.source.startswith("--"):
            hint = "an index is a URL, https://… or file://…, or the path of a folder"
            raise IndexUnavailableError(f"there is no folder {path}", code="index-missing", hint=hint)
        self._note(f"there is no folder {path}, which {index.source} names as an index")

    def _of_index(self, url: str, name: str) -> tuple[bool, Page | None]:
        """Whether the offer of an index is known, and its page of a package."""
        if is_local(url):
            with _local_errors(url, name):
                return True, page_of_tree(path_of(url), name)
        return self._ask(url, name)

    def _of_links(self, link: str, name: str) -> tuple[bool, Page | None]:
        if is_local(link):
            with _local_errors(link, name):
                return True, self._folders.page(path_of(link), name)
        known, page = self._ask(link, "")
        if page is None:
            return known, None
        with _local_errors(link, name):
            if link not in self._link_pages:
                self._link_pages[link] = LinkPage(bytes(page.blocks[0]), page.base)
            return True, self._link_pages[link].of(name)

    def _ask(self, url: str, name: str) -> tuple[bool, Page | None]:
        """Whether a remote page is known, and the page."""
        if self.offline:
            cached = self._pages.cached(url, name)
            return cached is not None, cached.page if cached else None
        what = f"the index {shown(url)} for {name}" if name else f"the page {shown(url)}"
        try:
            return True, self._result(self._page_future(url, name, ahead=False), what)
        except FetchError as error:
            raise _unavailable(error, what) from None
        except PageError as error:
            raise IndexUnavailableError(f"the page of {shown(url)} for {name} {error}", code="index-garbage") from None

    def _expect(self, url: str, name: str) -> None:
        if not is_local(url):
            self._page_future(url, name, ahead=True)

    def _page_future(self, url: str, name: str, *, ahead: bool) -> Future[Page | None]:
        """A page that is available or under way; it waits for a thread only if it is requested ahead of need."""
        key = (url, name)
        future = self._requested.get(key)
        if future is None or (not ahead and future.cancel()):
            cached = self._pages.cached(url, name)
            if cached and cached.is_fresh:
                future = _done(lambda: cached.page)
            elif ahead:
                future = self._threads.submit(self._pages.read, url, name, cached)
            else:
                self._tell(f"{name or 'the page'} at {shown(url)}")
                future = _done(lambda: self._pages.read(url, name, cached))
            self._requested[key] = future
        return future

    def _result(self, future: Future[T], what: str) -> T:
        """Wait for a future, reporting progress meanwhile."""
        while True:
            try:
                return future.result(timeout=0.1 if self._progress else None)
            except NotYetError:  # noqa: PERF203 - a wait costs more
                if future.done():
                    raise
                self._tell(what)

    def _tell(self, what: str) -> None:
        if self._progress and not self.offline:
            self._progress(self.requests, self.received, what)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _done(call: Callable[[], T]) -> Future[T]:
    """A completed future of a call that is made here and now, since nothing can continue without it."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised again by `result`
        future.set_exception(error)
    return future


@contextmanager
def _local_errors(url: str, name: str) -> Iterator[None]:
    """Raise errors of local places as IndexUnavailableError that names the place."""
    try:
        yield
    except PageError as error:
        raise IndexUnavailableError(f"the page of {shown(url)} for {name} {error}", code="index-garbage") from None
    except OSError as error:
        why = error.strerror or "error"
        raise IndexUnavailableError(f"{shown(url)} cannot be read for {name}: {why}", code="index-unreadable") from None
    except ValueError as error:
        raise IndexUnavailableError(f"{shown(url)} cannot be read for {name}: {error}", code="index-unreadable") from None


def _unavailable(error: FetchError, what: str) -> IndexUnavailableError:
    return IndexUnavailableError(f"cannot read {what}: {error.why}", code=error.code, hint=error.hint or _OFFLINE_HINT)
