"""Pages of remote indexes: requested, revalidated and cached."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.index.cache import Cache
from cudnn_resolve.index.fetch_error import FetchError
from cudnn_resolve.index.page import ACCEPT, HTML, Page, PageError, read_page
from cudnn_resolve.masking import redacted

if TYPE_CHECKING:
    from cudnn_resolve.index.session import Answer, IndexSession

LARGEST_PAGE = 100 << 20
LINKS = "links"
"""Form of a page of links, which is cached as received, since it lists many packages."""
_MAX_AGE = r"(?i)(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})"
_MOST_SECONDS = 365 * 86400
_LOGIN = rb"//[^/?#\s\"'<>]{1,256}@"
"""Credentials in the links of a page, which must not get into the cache."""


class CachedPage(Struct, frozen=True, kw_only=True):
    """Response of an index about a package."""

    page: Page | None
    """None if the index has no such package."""
    digest: str = ""
    """Digest of the body as received."""
    etag: str | None = None
    modified: str | None = None
    fresh_until: float = 0.0
    """Seconds since the epoch; 0 if it must be revalidated each time."""

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used without revalidation."""
        return self.fresh_until > time.time()


class Pages:
    """Pages of remote indexes, through the cache."""

    def __init__(self, session: Callable[[], IndexSession], cache: Cache) -> None:
        self._session = session
        self._cache = cache
        self._decoding = threading.Lock()
        """Pages are decoded one at a time: a long one needs several times its size, and two at once would be no faster in Python."""

    def cached(self, url: str, name: str) -> CachedPage | None:
        """Cached response for a page; None if there is none."""
        return self._cache.get("pages", _page_url(url, name), CachedPage)

    def read(self, url: str, name: str, cached: CachedPage | None) -> Page | None:
        """Page of a package on the index at `url`, or the page of links there if `name` is empty; None if it does not exist.

        Raise FetchError or PageError if the index does not respond with a page.
        """
        address = _page_url(url, name)
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", "Cache-Control": "max-age=0"}
        if cached and cached.etag:
            headers["If-None-Match"] = cached.etag
        if cached and cached.modified:
            headers["If-Modified-Since"] = cached.modified
        answer = self._session().ask(address, headers, limit=LARGEST_PAGE)
        with self._decoding:
            response = _cacheable(answer, name, cached)
            if "no-store" in answer.headers.get("Cache-Control", "").lower():
                self._cache.drop("pages", address)
            elif response != cached:
                self._cache.put("pages", address, response)
            return response.page


def _cacheable(answer: Answer, name: str, cached: CachedPage | None) -> CachedPage:
    """A response as it is cached; a page that has not changed is not decoded again."""
    if answer.status == 304 and cached:
        return replace(cached, fresh_until=_fresh_until(answer.headers))
    if answer.status in (404, 410):
        page, digest = None, ""
    elif answer.status == 200:
        digest = _digest(answer)
        page = cached.page if cached and cached.digest == digest else _decoded(answer, name)
    else:
        raise FetchError(f"it responded with HTTP {answer.status}", status=answer.status)
    return CachedPage(
        page=page,
        digest=digest,
        etag=answer.headers.get("ETag", "")[:1000] or None,
        modified=answer.headers.get("Last-Modified", "")[:100] or None,
        fresh_until=_fresh_until(answer.headers),
    )


def _decoded(answer: Answer, name: str) -> Page:
    body = re.sub(_LOGIN, b"//", answer.body) if b"@" in answer.body else answer.body
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind and "html" not in kind and "json" not in kind and not kind.startswith("text/"):
        raise PageError(f"has the media type {kind[:60]!a}")
    if not name:
        return Page(form=LINKS, base=answer.url, versions=[""], blocks=[memoryview(body)])
    return read_page(body, kind or HTML, answer.url, name)


def _digest(answer: Answer) -> str:
    """Digest of a page and of the URL that its relative links start from."""
    from hashlib import blake2b

    digest = blake2b(answer.url.encode("utf-8", "replace") + b" ", digest_size=16)
    digest.update(answer.body)
    return digest.hexdigest()


def _page_url(url: str, name: str) -> str:
    url = redacted(url)
    return f"{url}{'' if url.endswith('/') else '/'}{name}/" if name else url


def _fresh_until(headers: Mapping[str, str]) -> float:
    """Time until which a response needs no revalidation, in seconds since the epoch; 0 if it does not say."""
    control = headers.get("Cache-Control", "")
    found = re.search(_MAX_AGE, control)
    if found is None or "no-cache" in control.lower() or "no-store" in control.lower():
        return 0.0
    age = headers.get("Age", "0").strip()
    seconds = min(int(found[1]), _MOST_SECONDS) - (int(age[:9]) if age.isdigit() else 0)
    return time.time() + seconds if seconds > 0 else 0.0
