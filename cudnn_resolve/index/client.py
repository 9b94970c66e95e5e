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
from cudnn_resolve.index.page import Page, PageError
from cudnn_resolve.index.pages import Pages
from cudnn_resolve.index.settings import UV, IndexAddress, Settings
from cudnn_resolve.index.statements import Statements
from cudnn_resolve.masking import shown
from cudnn_resolve.requirement.source import File, Listing, Metadata, Place

if TYPE_CHECKING:
    from cudnn_resolve.index.download import Told
    from cudnn_resolve.index.page import LinkPage
    from cudnn_resolve.index.session import IndexSession

T = TypeVar("T")
THREADS = 8
"""Requests at the same time."""
_DOWNLOADS = 4
_OFFLINE_HINT = "--offline answers from the tables and what is in the cache"
Progress = Callable[[int, int, str], None]
"""Called while somebody waits: requests sent, bytes received, what is waited for."""


class IndexClient:
    """The indexes, folders and pages of links of one configuration; a `requirement.source.Source`. Nothing goes out before it is asked.

    `cache_folder` is the program's folder in the user's cache; None keeps nothing. `offline` answers from the cache alone,
    whatever its age.
    """

    def __init__(
        self, settings: Settings, *, cache_folder: str | None = None, offline: bool = False, progress: Progress | None = None
    ) -> None:
        self.settings = settings
        self.offline = offline
        self.notes: list[str] = list(settings.notes)
        """What the user should hear, in words; grows while it works."""
        self.served_by: dict[str, tuple[str, ...]] = {}
        """Packages that more than one index serves under pip's rule, and those indexes: the best version wins, whoever offers it."""
        self._progress = progress
        self._lock = threading.Lock()
        self._made: IndexSession | None = None
        cache = Cache(cache_folder)
        self._threads = ThreadPoolExecutor(THREADS)
        self._pages = Pages(self._session, cache)
        self._statements = Statements(self._session, cache, self._note, offline=offline)
        self._asked: dict[tuple[str, str], Future[Page | None]] = {}
        self._metadata: dict[str, Future[Metadata | None]] = {}
        self._listings: dict[tuple[str, str], Listing | None] = {}
        self._folders = Folders(self._note)
        self._link_pages: dict[str, LinkPage] = {}

    def __enter__(self) -> IndexClient:  # noqa: PYI034 - nothing inherits from it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End threads and connections; releases that have been listed can still be looked at."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._made:
            self._made.close()

    def _session(self) -> IndexSession:
        """Made for the first request: an answer out of the cache needs none of it."""
        with self._lock:
            if self._made is None:
                from cudnn_resolve.index.session import IndexSession

                self._made = IndexSession(self.settings)
            return self._made

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._made.requests if self._made else 0

    @property
    def received(self) -> int:
        """How many bytes of bodies came."""
        return self._made.received if self._made else 0

    @property
    def exclude_newer(self) -> str | None:
        """The time from which on uploads do not count, as `requirement.source.Source.exclude_newer`."""
        return self.settings.exclude_newer

    def listing(self, name: str, place: Place | None = None) -> Listing | None:
        """What the indexes offer of a package, as `requirement.source.Source.listing`."""
        key = (name, place.url if place else "")
        if key not in self._listings:
            self._listings[key] = self._list(name, place)
        return self._listings[key]

    def metadata(self, name: str, file: File) -> Metadata | None:
        """What a file says of itself, as `requirement.source.Source.metadata`."""
        what = f"metadata of {file.filename[:100]}"
        future = self._metadata.get(file.url)
        if future is None or future.cancel():
            self._tell(what)
            future = self._metadata[file.url] = _done(lambda: self._statements.read(name, file))
        try:
            return self._result(future, what)
        except FetchError as error:
            raise _unavailable(error, f"the metadata of {file.filename[:200]} from {shown(file.url)}") from None

    def expect(self, names: Iterable[str]) -> None:
        """Ask for packages ahead of need, as `requirement.source.Source.expect`."""
        if self.offline:
            return
        for name in names:
            for index in self._indexes_for(name)[: 1 if self.settings.rule == UV else None]:
                self._expect(index.url, name)
            for link in self.settings.find_links:
                self._expect(link, "")

    def expect_metadata(self, name: str, file: File) -> None:
        """Ask for the metadata of a file ahead of need, as `requirement.source.Source.expect_metadata`."""
        if self.offline or file.url in self._metadata or is_local(file.url) or self._statements.cached(file):
            return
        self._metadata[file.url] = self._threads.submit(self._statements.read, name, file)

    def fetch(self, files: Sequence[File], folder: str, told: Told | None = None) -> list[str]:
        """Paths of the files in `folder`, downloaded side by side unless they are there, each with its size and hash checked.

        `told` hears of each file how many bytes are there and how many it has. WorldError where a file cannot be had or written;
        whole files that are there by then stay.
        """
        from cudnn_resolve.index.download import Downloads

        downloads = Downloads(self._session())
        return self._all([(file.filename, lambda file=file: downloads.fetch(file, folder, told)) for file in files], _DOWNLOADS)  # type: ignore[misc]

    def passing(self, file: File, read: Callable[[str], T]) -> T:
        """What `read` makes of the path of a file, which is downloaded for it and thrown away."""
        from cudnn_resolve.index.download import Downloads

        try:
            return Downloads(self._session()).passing(file, read)
        except FetchError as error:
            raise _unavailable(error, file.filename[:200]) from None

    def completed(self, files: Sequence[File]) -> list[File]:
        """The files with what their index does not say of them, as `requirement.source.Source.completed`."""
        kept = [self._statements.completed_from_cache(file) for file in files]
        asked = [file for file, found in zip(files, kept, strict=True) if found is None]
        tasks = [(f"the size of {file.filename[:100]}", lambda file=file: self._statements.completed(file)) for file in asked]
        answers = iter(self._all(tasks, THREADS) if tasks else ())
        return [next(answers) if found is None else found for found in kept]

    def keep_metadata(self, file: File, said: Metadata) -> None:
        """Keep the metadata of a file that was read by other ways."""
        self._statements.keep(file, said)

    def _list(self, name: str, place: Place | None) -> Listing | None:
        if place is not None:
            known, page = self._of_links(place.url, name) if place.kind == "find-links" else self._of_index(place.url.rstrip("/"), name)
            origin = place.url.rstrip("/") if place.kind != "find-links" else None
            return make_listing(name, [Offered(page, origin)] if page else [], self.settings) if known else None
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
        origins = tuple(dict.fromkeys(one.origin for one in offered if one.origin))
        if len(origins) > 1:
            self.served_by[name] = origins
        if self.offline:  # of a file that several have, the copy on this machine can be read
            offered.sort(key=lambda one: one.origin is not None and not is_local(one.origin))
        listing = make_listing(name, offered, self.settings, tuple(shown(origin) for origin in origins))
        return listing if is_known else replace(listing, is_partial=True)

    def _indexes_for(self, name: str) -> Sequence[IndexAddress]:
        """The indexes that count for a package: all, or the one that uv's configuration assigns to it."""
        return [index for package, index in self.settings.assigned if package == name] or self.settings.indexes

    def _ask_indexes(self, name: str, offered: list[Offered]) -> bool:
        """Whether it is known what all indexes have that count; adds what they have."""
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
            self._note(f"{', '.join(refusing)} refuses without a login (HTTP 403): it counts as not having what is asked for")
        return is_known

    def _check_folder(self, index: IndexAddress) -> None:
        """Tell of an index on this machine that is not there: an error where an option names it, else a note, as pip has it."""
        path = path_of(index.url)
        if os.path.isdir(path):
            return
        if index.said_by.startswith("--"):
            hint = "an index is an address, https://… or file://…, or the path of a folder"
            raise IndexUnavailableError(f"there is no folder {path}", code="index-missing", hint=hint)
        self._note(f"there is no folder {path}, which {index.said_by} names as an index")

    def _of_index(self, url: str, name: str) -> tuple[bool, Page | None]:
        """Whether it is known what an index offers of a package, and what it is."""
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
        from cudnn_resolve.index.page import LinkPage

        with _local_errors(link, name):
            if link not in self._link_pages:
                self._link_pages[link] = LinkPage(page.blocks[0], page.base)
            return True, self._link_pages[link].of(name)

    def _ask(self, url: str, name: str) -> tuple[bool, Page | None]:
        """Whether it is known what a remote page says, and the page."""
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
        """A page that is there, or on its way; it waits for a thread only where it is asked for ahead of need."""
        key = (url, name)
        future = self._asked.get(key)
        if future is None or (not ahead and future.cancel()):
            cached = self._pages.cached(url, name)
            if cached and cached.is_fresh:
                future = _done(lambda: cached.page)
            elif ahead:
                future = self._threads.submit(self._pages.read, url, name, cached)
            else:
                self._tell(f"{name or 'the page'} at {shown(url)}")
                future = _done(lambda: self._pages.read(url, name, cached))
            self._asked[key] = future
        return future

    def _all(self, tasks: Sequence[tuple[str, Callable[[], T]]], threads: int) -> list[T]:
        """What the calls give, so many at the same time; each with what is waited for, in words."""
        pool = ThreadPoolExecutor(threads)
        try:
            futures = [(what, pool.submit(call)) for what, call in tasks]
            return [self._result(future, what) for what, future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, future: Future[T], what: str) -> T:
        """The result of a future; says now and then what is waited for."""
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
    """A future whose call has run, here: nothing else can go on before it."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)
    return future


@contextmanager
def _local_errors(url: str, name: str) -> Iterator[None]:
    """Errors of places on this machine, with the name of the place."""
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
    return IndexUnavailableError(f"{what} could not be had: {error.why}", code=error.code, hint=error.hint or _OFFLINE_HINT)
