"""HTTP to package indexes, on requests and urllib3: certificates, proxies, credentials, redirects, retries, and bounds on every answer.

The only module of the program that imports requests, and so the client imports it with the first request. What requests leaves open is
added here: a deadline and a bound on bytes for whole answers, whatever trickles in, and rules for redirects.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urljoin

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy
from urllib3 import disable_warnings
from urllib3.exceptions import HTTPError, InsecureRequestWarning, InvalidHeader, MaxRetryError, ProtocolError
from urllib3.util.retry import Retry
from urllib3.util.ssl_ import create_urllib3_context

from cudnn_resolve._version import __version__
from cudnn_resolve.index.address import Login, is_remote, origin_of, split_login
from cudnn_resolve.index.bounds import HEADER_BYTES, Exchange, bound, reading
from cudnn_resolve.index.credentials import Credentials
from cudnn_resolve.index.fetch_error import FORBIDDEN, FetchError, TransientError, fetch_error, too_large
from cudnn_resolve.index.settings import Settings
from cudnn_resolve.masking import redacted, shown

T = TypeVar("T")
CONNECTIONS = 16
"""Connections to one host that are kept; more gain nothing, measured on 108 requests."""
ANSWER_SECONDS = 300.0
"""What a page or a METADATA file may take at most, however steadily it comes."""
_PIECE = 1 << 16
_LARGEST_PACKED = 16 << 20
"""Bytes of a compressed body: padding and empty members take more time than what they unpack to."""
_SHORT_BODY = 1 << 16
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_LONGEST_PAUSE = 30.0


class Answer(NamedTuple):
    """An answer with its body."""

    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes
    url: str
    """After redirects, without credentials."""
    is_whole: bool = True
    """False where the body was larger than was wanted and was not read."""


class IndexSession:
    """Sends requests for many threads; opens nothing before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._credentials = Credentials(settings)
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._closed = threading.Event()
        self._retry = _Retry(total=settings.retries, other=1, backoff_factor=settings.backoff)  # `other`: those that cost most time
        self.requests = 0
        """How many requests were sent."""
        self.received = 0
        """How many bytes of bodies came."""

    def ask(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int, method: str = "GET", wanted: int | None = None
    ) -> Answer:
        """The answer to a request, after redirects and retries; FetchError where there is none, or none below 500.

        `limit` bounds the decoded body in bytes; a longer one is a FetchError. With `wanted`, a whole file of more than that is not read.
        """

        def once() -> Answer:
            with self.opened(url, headers or {}, limit=limit, method=method) as (response, where):
                left = response.raw.length_remaining
                if wanted is not None and response.status_code == 200 and (left is None or left > wanted):
                    return Answer(200, response.headers, b"", where, is_whole=False)
                return Answer(response.status_code, response.headers, self._body(response, limit), where)

        return self.retried(once)

    @contextmanager
    def opened(
        self, url: str, headers: Mapping[str, str], *, limit: int, method: str = "GET", seconds: float = ANSWER_SECONDS
    ) -> Iterator[tuple[requests.Response, str]]:
        """The head of an answer and its address after redirects; its body is to be read inside. Asked for once.

        TransientError where another try may help. `limit` bounds the bytes as they come, `seconds` the time for everything.
        """
        reading.exchange = Exchange(self._settings.patience, limit + HEADER_BYTES, seconds, self._closed)
        with self._translated(url):
            response, where = self._follow(method, url, headers)
        try:
            yield response, where
        finally:
            response.close()

    def pieces(self, response: requests.Response) -> Iterator[bytes]:
        """The body as it comes, undecoded; TransientError where it ends too early."""
        while True:
            with self._translated(response.url):
                piece: bytes = response.raw.read(_PIECE, decode_content=False)
            if not piece:
                break
            self.received += len(piece)
            yield piece
        if response.raw.length_remaining:  # urllib3 itself tells from version 2 on
            raise TransientError("its answer ends too early", code="index-truncated")

    def retried(self, once: Callable[[], T], went_on: Callable[[], bool] = lambda: False) -> T:
        """The result of `once`, tried again after transient errors; counting restarts where `went_on` says that it got further."""
        retry: Retry = self._retry
        while True:
            try:
                return once()
            except TransientError as error:  # noqa: PERF203 - a request costs more
                if went_on():
                    retry = self._retry
                stalled = error.code in ("index-stalled", "index-unreachable")
                counted = None if error.response else error if stalled else ProtocolError()
                try:
                    retry = retry.increment("GET", "", response=error.response, error=counted)
                except MaxRetryError:
                    raise error from None
                asked = retry.get_retry_after(error.response) if error.response else None
                if self._closed.wait(retry.get_backoff_time() if asked is None else asked):
                    raise

    def close(self) -> None:
        """End the connections; requests on the way fail at once."""
        self._closed.set()
        if self._session:
            self._session.close()

    def _body(self, response: requests.Response, limit: int) -> bytes:
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding not in ("", "identity", "gzip", "x-gzip"):
            raise FetchError(f"it answers in an encoding that was not asked for ({shown(coding)})", code="index-garbage")
        is_packed = coding in ("gzip", "x-gzip")
        most = min(limit, _LARGEST_PACKED) if is_packed else limit
        if (response.raw.length_remaining or 0) > most:
            raise too_large(most)
        parts, size = [], 0
        for piece in self.pieces(response):
            size += len(piece)
            if size > most:
                raise too_large(most)
            parts.append(piece)
        body = b"".join(parts)
        return _unpacked(body, limit) if is_packed else body

    def _follow(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[requests.Response, str]:
        """The answer behind all redirects, and its address; credentials are looked up for each address."""
        for hop in range(_MOST_REDIRECTS + 1):
            url, login = split_login(url)
            login = login or self._credentials.known(url, redirected=hop > 0)
            response = self._send(method, url, headers, login)
            if response.status_code in (401, 403) and (found := self._credentials.after_refusal(url, login)):
                _finish(response)
                response = self._send(method, url, headers, found)
            if response.status_code in (401, 403, 407):
                _finish(response)
                raise self._denied(response, given=login is not None)
            if response.status_code not in _REDIRECTS | _TRANSIENT:
                return response, url
            _finish(response)
            if response.status_code in _TRANSIENT:
                error = TransientError(f"it answers HTTP {response.status_code}", status=response.status_code)
                error.response = response.raw
                raise error
            url = _next_address(url, response.headers.get("Location"))
        raise FetchError(f"it redirects more than {_MOST_REDIRECTS} times", code="index-redirects")

    def _send(self, method: str, url: str, headers: Mapping[str, str], login: Login | None) -> requests.Response:
        self.requests += 1
        patience = self._settings.patience
        return self._opened_session().request(
            method,
            url,
            headers={"Accept-Encoding": "identity", **headers},
            auth=HTTPBasicAuth(login.user.encode(), login.password.encode()) if login else None,
            proxies=self._settings.proxies_for(url),
            timeout=(patience.connect, patience.read),
            stream=True,
        )

    def _denied(self, response: requests.Response, *, given: bool) -> FetchError:
        status = response.status_code
        wants = "wants a user name and a password" if status == 401 else "refuses access"
        return FetchError(
            f"it {wants} (HTTP {status}); credentials were looked for in {self._credentials.places()}",
            code=FORBIDDEN if status == 403 and not given and "WWW-Authenticate" not in response.headers else "index-denied",
            hint="put the credentials where pip or uv finds them, ~/.netrc for example",
            status=status,
        )

    @contextmanager
    def _translated(self, url: str) -> Iterator[None]:
        """Turn exceptions of requests and urllib3 into a FetchError."""
        try:
            yield
        except FetchError:
            raise
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            found = fetch_error(error)
            with contextlib.suppress(ValueError):
                for proxy in self._settings.proxies_for(url).values():
                    found.why += f" (through the proxy {redacted(proxy)})"
                    found.hint = found.hint or "check HTTPS_PROXY and PIP_PROXY"
            raise found from None

    def _opened_session(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                made = _Session()
                made.trust_env = False  # the settings hold what the environment says
                made.headers.update({"User-Agent": f"cudnn-resolve/{__version__}", "Accept": "*/*"})
                made.mount("http://", _Adapter())
                made.mount("https://", _Adapter(_tls_context(self._settings)))
                if self._settings.trusted_hosts:
                    disable_warnings(InsecureRequestWarning)
                    unchecked = _Adapter(_tls_context(self._settings, check=False))
                    for host in self._settings.trusted_hosts:
                        made.mount(f"https://{host}/", unchecked)
                        made.mount(f"https://{host}:", unchecked)
                self._session = made
            return self._session


class _Session(requests.Session):
    """A session that leaves redirects to `_follow`, which knows credentials and bounds."""

    def get_redirect_target(self, _response: requests.Response) -> None:
        return None


class _Adapter(HTTPAdapter):
    """Connections whose answers are bounded, and one TLS context for all of them."""

    def __init__(self, context: Any = None) -> None:
        self._tls = {"ssl_context": context, "cert_reqs": context.verify_mode.name} if context else {}
        super().__init__(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().init_poolmanager(connections, maxsize, block, **options, **self._tls)
        bound(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        is_new = proxy not in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **options, **self._tls)
        if is_new:
            bound(manager)
        return manager

    def get_connection_with_tls_context(self, request: Any, _verify: object, proxies: Any = None, cert: object = None) -> Any:
        """The pool for a request; which certificates are trusted is up to the context (requests from 2.32 on has ideas of its own)."""
        del cert
        proxy = select_proxy(request.url, proxies)
        return (self.proxy_manager_for(proxy) if proxy else self.poolmanager).connection_from_url(request.url)

    def cert_verify(self, *_: object) -> None:
        """Leave certificates to the context."""


class _Retry(Retry):
    """Retries that wait as long as the server asks for, within bounds."""

    def get_retry_after(self, response: Any) -> float | None:
        try:
            seconds = super().get_retry_after(response)
        except (InvalidHeader, ValueError, OverflowError):
            return None
        return None if seconds is None else min(seconds, _LONGEST_PAUSE)


def _tls_context(settings: Settings, *, check: bool = True) -> Any:
    """Certificates that the settings name, else those of the system, else those that come with requests."""
    path = settings.certificate
    context = create_urllib3_context(cert_reqs=None if check else 0)
    try:
        if check and path:
            context.load_verify_locations(**{"capath" if os.path.isdir(path) else "cafile": path})
        elif check:
            context.load_default_certs()
            if not context.cert_store_stats()["x509_ca"]:
                context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    except OSError:
        raise FetchError(f"the certificates {path} cannot be read", code="index-certificate") from None
    if settings.client_certificate:
        try:
            context.load_cert_chain(settings.client_certificate)
        except OSError:
            raise FetchError(f"the client certificate {settings.client_certificate} cannot be read", code="index-certificate") from None
    return context


def _finish(response: requests.Response) -> None:
    """Read a short body that nobody wants, so that its connection can serve again; end the connection of a longer one."""
    response.raw.read(_SHORT_BODY, decode_content=False)
    response.close()


def _next_address(url: str, location: str | None) -> str:
    try:
        following = urljoin(url, quote((location or "").encode("latin-1", "replace"), safe="!#$%&'()*+,/:;=?@[]~"))
        origin_of(following)
    except ValueError:
        following = ""
    if not location or not is_remote(following):
        raise FetchError("it redirects to an invalid URL", code="index-redirects")
    if url[:6].lower() == "https:" and following[:5].lower() == "http:":
        raise FetchError(f"it redirects from https to http ({shown(following)})", code="index-redirects")
    return split_login(following)[0].partition("#")[0]


def _unpacked(body: bytes, limit: int) -> bytes:
    parts, size = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                parts.append(piece)
    except EOFError:
        raise TransientError("its compressed answer ends too early", code="index-truncated") from None
    except (OSError, zlib.error):
        raise TransientError("its answer is no gzip, although it says so", code="index-garbage") from None
    return b"".join(parts)
