"""Pages of remote indexes: asked for once, revalidated, kept."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.index.address import folder_url, level
from cudnn_resolve.index.cache import DamagedError, IndexCache, Kept
from cudnn_resolve.index.page import ACCEPT, HTML, PageError, Shelf, read_page
from cudnn_resolve.index.refusal import Refusal

if TYPE_CHECKING:
    from cudnn_resolve.index.transport import Answer, Transport

LARGEST_PAGE = 100 << 20
_LONG_BYTES = 1 << 16
LINKS = "links"
"""Form of a page of links, which is kept as it came: it speaks of many packages."""
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_MOST_SECONDS = 365 * 86400


class Pages:
    """The pages of remote indexes, through the cache."""

    def __init__(self, transport: Callable[[], Transport], cache: IndexCache, *, offline: bool) -> None:
        self._transport = transport
        self._cache = cache
        self._offline = offline
        self._reading = threading.Lock()
        """Held where a page is read: a long one takes several times its size, and reading two at once takes no less time than in turn."""

    def kept(self, url: str, name: str) -> Kept | None:
        """What the cache has of a page."""
        return self._cache.page(_page_url(url, name))

    def is_kept(self, url: str, name: str) -> bool:
        """True where the cache knows the page, even as missing."""
        return self.kept(url, name) is not None

    def forget(self, url: str, name: str) -> None:
        """Drops what the cache has of a page."""
        self._cache.drop_page(_page_url(url, name))

    def is_fresh(self, kept: Kept | None) -> bool:
        """True where the index need not be asked."""
        return kept is not None and kept.fresh_until > time.time()

    def read(self, url: str, name: str, kept: Kept | None) -> Shelf | None:
        """What an index at `url` offers of a package, or the page of links there where `name` is empty; None where it has none.

        Offline also None where the cache does not know. Refusal and PageError where the index does not answer with a page.
        """
        if self._offline or self.is_fresh(kept):
            return kept.shelf if kept else None
        address = _page_url(url, name)
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", "Cache-Control": "max-age=0"}
        if kept and kept.etag:
            headers["If-None-Match"] = kept.etag
        if kept and kept.modified:
            headers["If-Modified-Since"] = kept.modified
        answer = self._transport().ask(address, headers, limit=LARGEST_PAGE)
        with self._reading:
            return self._taken(address, name, kept, answer)

    def _taken(self, address: str, name: str, kept: Kept | None, answer: Answer) -> Shelf | None:
        """What an answer offers, which is kept."""
        is_new = False
        if answer.status == 304 and kept:
            made = kept._replace(fresh_until=_fresh_until(answer.headers))
        elif answer.status in (404, 410):
            made = _kept(answer, None, "")
        elif answer.status == 200:
            digest = _digest(answer)
            if kept and kept.shelf is not None and kept.digest == digest:
                made = _kept(answer, kept.shelf, digest)
            else:
                is_new = True
                made = _kept(answer, _read(answer._replace(body=_LOGIN.sub(b"//", answer.body)), name), digest)
        else:
            raise Refusal(f"it answers HTTP {answer.status}", status=answer.status)
        self._keep(address, made, kept, answer.headers)
        return self._light(address, made) if is_new else made.shelf

    def _light(self, address: str, made: Kept) -> Shelf | None:
        """What was made of a page that has come; a long one from the file that it is kept in: only what is looked at stays in memory."""
        if made.shelf is None or sum(map(len, made.shelf.blocks)) < _LONG_BYTES:
            return made.shelf
        kept = self._cache.page(address)
        return kept.shelf if kept is not None and kept.shelf is not None and kept.digest == made.digest else made.shelf

    def _keep(self, address: str, made: Kept, before: Kept | None, headers: Mapping[str, str]) -> None:
        if "no-store" in headers.get("cache-control", "").lower():
            self._cache.drop_page(address)
        elif before is None or made != before:
            try:
                self._cache.keep_page(address, made)
            except DamagedError:
                self._cache.drop_page(address)


_LOGIN = re.compile(rb"//[^/@\s\"'<>]{1,256}@")
"""Logins in the links of a page, which do not go into the cache."""


def _digest(answer: Answer) -> str:
    """Tells one page from another, the place that relative links start from included."""
    from hashlib import blake2b

    return blake2b(answer.url.encode("utf-8", "replace") + b" " + answer.body, digest_size=16).hexdigest()


def _page_url(url: str, name: str) -> str:
    return f"{folder_url(url)}{name}/" if name else level(url)


def _read(answer: Answer, name: str) -> Shelf:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and "html" not in kind and "json" not in kind and not kind.startswith("text/"):
        raise PageError(f"has the media type {kind[:60]!a}")
    if not name:
        return Shelf(LINKS, answer.url, [""], [answer.body])
    return read_page(answer.body, kind or HTML, answer.url, name)


def _kept(answer: Answer, shelf: Shelf | None, digest: str) -> Kept:
    return Kept(
        status=200 if shelf else 404,
        shelf=shelf,
        etag=answer.headers.get("etag", "")[:1000] or None,
        modified=answer.headers.get("last-modified", "")[:100] or None,
        digest=digest,
        fresh_until=_fresh_until(answer.headers),
    )


def _fresh_until(headers: Mapping[str, str]) -> float:
    """Until when an answer counts without asking again, seconds since the epoch; 0 where it says nothing of it."""
    control = headers.get("cache-control", "")
    found = _MAX_AGE.search(control)
    if found is None or "no-cache" in control.lower() or "no-store" in control.lower():
        return 0.0
    age = headers.get("age", "0").strip()
    seconds = min(int(found[1]), _MOST_SECONDS) - (int(age[:9]) if age.isdigit() else 0)
    return time.time() + seconds if seconds > 0 else 0.0
