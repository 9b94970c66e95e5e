"""Package indexes as a resolution asks them: `open_source(settings)` gives a `requirement.source.Source`.

settings = read_settings(Options(), os.environ, prefix=prefix, import_path=path)
with open_source(settings, cache_folder=folder, offline=False) as source:
    source.listing("numpy")
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index.address import is_local, path_of, shown
from cudnn_resolve.index.cache import IndexCache
from cudnn_resolve.index.filename import normalize
from cudnn_resolve.index.folder import Folders, shelf_of_tree
from cudnn_resolve.index.listing import Source as Shelved
from cudnn_resolve.index.listing import make_listing
from cudnn_resolve.index.page import HTML, PageError, Shelf, names_on, read_page
from cudnn_resolve.index.refusal import FORBIDDEN, Refusal
from cudnn_resolve.index.remote import Pages
from cudnn_resolve.index.settings import UV, IndexAddress, Settings
from cudnn_resolve.index.statement import Statements
from cudnn_resolve.index.work import FEW_THREADS, Crew, Job
from cudnn_resolve.requirement.source import File, Listing, Metadata, Place

if TYPE_CHECKING:
    from cudnn_resolve.index.direct import Direct
    from cudnn_resolve.index.download import Told
    from cudnn_resolve.index.reading import Reader
    from cudnn_resolve.index.transport import Transport

Progress = Callable[[int, int, str], None]
"""Called while somebody waits: requests sent, bytes received, what is waited for."""


def open_source(
    settings: Settings, *, cache_folder: str | None = None, offline: bool = False, progress: Progress | None = None
) -> IndexClient:
    """A source that asks the indexes of `settings`; nothing goes out before it is asked.

    `cache_folder` is the program's folder in the user's cache; None keeps nothing. `offline` answers from the cache alone,
    whatever its age.
    """
    return IndexClient(settings, cache_folder=cache_folder, offline=offline, progress=progress)


class IndexClient:
    """The indexes, folders and pages of links of one configuration; a `requirement.source.Source`."""

    def __init__(self, settings: Settings, *, cache_folder: str | None, offline: bool, progress: Progress | None) -> None:
        self.settings = settings
        self.offline = offline
        self.notes: list[str] = list(settings.notes)
        """What the user should hear, in words; grows while it works."""
        self.served_by: dict[str, tuple[str, ...]] = {}
        """Packages that more than one index serves under pip's rule, and those indexes: the best version wins, whoever offers it."""
        self._progress = progress
        self._lock = threading.Lock()
        self._made: Transport | None = None
        self._reads: Reader | None = None
        self._cache = IndexCache(cache_folder)
        self._crew = Crew(few=FEW_THREADS, is_far=lambda: self._made is not None and self._made.is_far)
        self._pages = Pages(lambda: self._transport, self._cache, offline=offline)
        self._statements = Statements(self._reader, self._cache, offline=offline)
        self._shelves: dict[tuple[str, str], Job[Shelf | None]] = {}
        self._metadata: dict[str, Job[Metadata | None]] = {}
        self._listings: dict[tuple[str, str], Listing | None] = {}
        self._folders = Folders(self._note)
        self._names: dict[str, frozenset[str]] = {}

    def __enter__(self) -> IndexClient:  # noqa: PYI034 - nothing inherits from it
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends threads and connections; releases that have been listed can still be looked at."""
        self._crew.close()
        if self._made:
            self._made.close()

    @property
    def _transport(self) -> Transport:
        """Made for the first request: an answer out of the cache needs none of it."""
        with self._lock:
            if self._made is None:
                from cudnn_resolve.index.transport import Transport

                self._made = Transport(self.settings)
            return self._made

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._made.requests if self._made else 0

    @property
    def received(self) -> int:
        """How many bytes of answers came, without their heads."""
        return self._made.received if self._made else 0

    def listing(self, name: str, place: Place | None = None) -> Listing | None:
        """What the indexes offer of a package, as `requirement.source.Source.listing`."""
        key = (name, place.url if place else "")
        if key not in self._listings:
            self._listings[key] = self._list(name, place)
        return self._listings[key]

    def metadata(self, name: str, file: File) -> Metadata | None:
        """What a file says of itself, as `requirement.source.Source.metadata`."""
        job = self._metadata.get(file.url)
        if job is None:
            job = self._metadata[file.url] = self._statement_job(name, file)
            self._start(job, is_local(file.url))
        try:
            return job.value(self._tell)
        except Refusal as refusal:
            raise _unavailable(refusal, f"the metadata of {file.filename[:200]} from {shown(file.url)}") from None

    def expect(self, names: Iterable[str]) -> None:
        """Starts to ask for packages, as `requirement.source.Source.expect`."""
        if self.offline:
            return
        for name in names:
            for index in self._indexes_for(name)[: 1 if self.settings.rule == UV else None]:
                if not is_local(index.url):
                    self._shelf(index.url, name, wait=False)
            for link in self.settings.find_links:
                if not is_local(link):
                    self._shelf(link, "", wait=False)

    def expect_metadata(self, name: str, file: File) -> None:
        """Starts to ask for the metadata of a file, as `requirement.source.Source.expect_metadata`."""
        if self.offline or file.url in self._metadata or is_local(file.url):
            return
        job = self._metadata[file.url] = self._statement_job(name, file)
        if self._statements.is_kept(file):
            job.run()
        else:
            self._crew.hand(job)

    def fetch(self, files: Sequence[File], folder: str, told: Told | None = None) -> list[str]:
        """Paths of the files in `folder`, downloaded side by side unless they are there, each with its size and hash checked.

        `told` hears of each file how many bytes are there and how many it has. WorldError where a file cannot be had or written;
        whole files that are there by then stay.
        """
        from cudnn_resolve.index.download import Downloads

        downloads = Downloads(self._transport, self.settings.retries)
        jobs = [Job(lambda file=file: downloads.fetch(file, folder, told), file.filename) for file in files]  # type: ignore[misc]
        crew = Crew(4)
        for job in jobs:
            crew.hand(job)
        try:
            return [job.value(self._tell) for job in jobs]
        finally:
            crew.close()

    def completed(self, files: Sequence[File]) -> list[File]:
        """The files with what their index does not say of them, as `requirement.source.Source.completed`."""
        from cudnn_resolve.index.complete import complete

        transport = None if self.offline else lambda: self._transport
        return complete(files, self._statements, transport, tell=self._tell)

    def keep_metadata(self, file: File, said: Metadata) -> None:
        """Keeps the metadata of a file that was read by other ways."""
        self._statements.keep(file, said)

    def direct(self, reference: str) -> Direct:
        """The package that an address, a path or the folder of a project is: its name, its one offer, its metadata."""
        from cudnn_resolve.index.direct import read_direct

        return read_direct(self, reference)

    def _reader(self) -> Reader:
        transport = self._transport
        with self._lock:
            if self._reads is None:
                from cudnn_resolve.index.reading import Reader

                self._reads = Reader(transport, self.settings.retries, self._note)
            return self._reads

    def _statement_job(self, name: str, file: File) -> Job[Metadata | None]:
        return Job(lambda: self._statements.read(normalize(name), file), f"metadata of {file.filename[:100]}")

    def _list(self, name: str, place: Place | None) -> Listing | None:
        if place is not None:
            found, shelf = self._of_place(name, place)
            origin = place.url.rstrip("/") if place.kind != "find-links" else None
            return make_listing(name, [self._shelved(shelf, name, origin)] if shelf else [], self.settings) if found else None
        shelves = []
        known = True
        for link in self.settings.find_links:
            found, shelf = self._of_links(link, name)
            known &= found
            if shelf and shelf.versions:
                shelves.append(Shelved(shelf))
        known &= self._ask_indexes(name, shelves)
        if not known and not shelves:
            return None
        origins = tuple(dict.fromkeys(one.origin for one in shelves if one.origin))
        if len(origins) > 1:
            self.served_by[name] = origins
        listing = make_listing(name, shelves, self.settings, tuple(shown(origin) for origin in origins))
        return listing if known else replace(listing, is_partial=True)

    def _indexes_for(self, name: str) -> Sequence[IndexAddress]:
        """The indexes that count for a package: all, or the one that uv's configuration assigns to it."""
        return [index for package, index in self.settings.assigned if package == name] or self.settings.indexes

    def _ask_indexes(self, name: str, shelves: list[Shelved]) -> bool:
        """Whether it is known what all indexes have that count; adds what they have."""
        known = True
        refused: IndexUnavailableError | None = None
        refusing: list[str] = []
        for index in self._indexes_for(name):
            try:
                found, shelf = self._of_index(index, name)
            except IndexUnavailableError as error:
                if error.code != FORBIDDEN:
                    raise
                refused = error
                refusing.append(index.url)
                continue
            known &= found
            if shelf and shelf.versions:
                shelves.append(self._shelved(shelf, name, index.url))
                if self.settings.rule == UV:
                    break
        if refused and not shelves:
            raise refused
        if refused:
            self._note(
                f"{', '.join(shown(one) for one in refusing)} refuses without a login (HTTP 403): it counts as not having what is asked for"
            )
        return known

    def _shelved(self, shelf: Shelf, name: str, origin: str | None) -> Shelved:
        if origin is None or is_local(origin):
            return Shelved(shelf, origin)
        return Shelved(shelf, origin, lambda: self._anew(origin, name))

    def _anew(self, url: str, name: str) -> Shelf | None:
        """The page, asked for again because what was kept of it is damaged."""
        self._pages.forget(url, name)
        self._shelves.pop((url, name), None)
        if self.offline:
            hint = "ask once without --offline"
            raise IndexUnavailableError(f"what was kept of {name} at {shown(url)} is damaged", code="cache-damaged", hint=hint)
        return self._asked(url, name)[1]

    def _of_index(self, index: IndexAddress, name: str) -> tuple[bool, Shelf | None]:
        """Whether it is known what an index offers of a package, and what it is."""
        if is_local(index.url):
            self._look_for(index)
            return True, self._local(lambda: shelf_of_tree(path_of(index.url), name), index.url, name)
        return self._asked(index.url, name)

    def _look_for(self, index: IndexAddress) -> None:
        """Nothing; an index on this machine that is not there is an error where it was asked for, else a note, as pip has it."""
        path = path_of(index.url)
        if os.path.isdir(path):
            return
        if index.said_by.startswith("--"):
            hint = "an index is an address, https://… or file://…, or the path of a folder"
            raise IndexUnavailableError(f"there is no folder {path}", code="index-missing", hint=hint)
        self._note(f"there is no folder {path}, which {index.said_by} names as an index")

    def _of_links(self, link: str, name: str) -> tuple[bool, Shelf | None]:
        if is_local(link):
            return True, self._local(lambda: self._folders.shelf(path_of(link), name), link, name)
        found, page = self._asked(link, "")
        if page is None:
            return found, None
        body = bytes(page.blocks[0])
        if link not in self._names:
            self._names[link] = names_on(body)
        return True, self._checked(lambda: read_page(body, HTML, page.base, name), link, name) if name in self._names[link] else None

    def _of_place(self, name: str, place: Place) -> tuple[bool, Shelf | None]:
        if place.kind == "find-links":
            return self._of_links(place.url, name)
        return self._of_index(IndexAddress(url=place.url.rstrip("/"), said_by=""), name)

    def _local(self, read: Callable[[], Shelf | None], url: str, name: str) -> Shelf | None:
        try:
            return self._checked(read, url, name)
        except OSError as error:
            raise IndexUnavailableError(
                f"{shown(url)} cannot be read for {name}: {error.strerror or 'error'}", code="index-unreadable"
            ) from None

    def _checked(self, read: Callable[[], Shelf | None], url: str, name: str) -> Shelf | None:
        try:
            return read()
        except PageError as error:
            raise IndexUnavailableError(f"the page of {shown(url)} for {name} {error}", code="index-garbage") from None
        except ValueError as error:
            raise IndexUnavailableError(f"{shown(url)} cannot be read for {name}: {error}", code="index-unreadable") from None

    def _asked(self, url: str, name: str) -> tuple[bool, Shelf | None]:
        job = self._shelf(url, name, wait=True)
        try:
            shelf = job.value(self._tell)
        except Refusal as refusal:
            raise _unavailable(refusal, f"the index {shown(url)} for {name}" if name else f"the page {shown(url)}") from None
        except PageError as error:
            raise IndexUnavailableError(f"the page of {shown(url)} for {name} {error}", code="index-garbage") from None
        return not (shelf is None and self.offline and not self._pages.is_kept(url, name)), shelf

    def _shelf(self, url: str, name: str, *, wait: bool) -> Job[Shelf | None]:
        key = (url, name)
        job = self._shelves.get(key)
        if job is None:
            kept = self._pages.kept(url, name)
            job = Job(lambda: self._pages.read(url, name, kept), f"{name or 'the page'} at {shown(url)}")
            self._shelves[key] = job
            if self.offline or self._pages.is_fresh(kept):
                job.run()
            else:
                self._crew.hand(job, first=wait)
        return job

    def _start(self, job: Job[Metadata | None], local: bool) -> None:  # noqa: FBT001 - private
        if local or self.offline:
            job.run()
        else:
            self._crew.hand(job, first=True)

    def _tell(self, what: str) -> None:
        if self._progress:
            self._progress(self.requests, self.received, what)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _unavailable(refusal: Refusal, what: str) -> IndexUnavailableError:
    return IndexUnavailableError(f"{what} could not be had: {refusal.why}", code=refusal.code, hint=refusal.hint or _ALONE)


_ALONE = "--offline answers from the tables and what is in the cache"
