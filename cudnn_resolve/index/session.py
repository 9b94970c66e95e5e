"""HTTP to package indexes, on requests and urllib3: certificates, proxies, credentials, redirects, retries, and bounds on every response.

The only module that imports requests, and imported with the first request only. It adds what requests lacks: a deadline and a bound on
bytes for whole responses, however slowly they trickle in, and rules for redirects.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urljoin

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy
from urllib3 import disable_warnings
from urllib3 import exceptions as urllib3_errors
from urllib3.util.retry import Retry
from urllib3.util.ssl_ import create_urllib3_context

from cudnn_resolve._version import __version__
from cudnn_resolve.index.address import Login, is_remote, origin_of, split_login
from cudnn_resolve.index.bounds import HEADER_BYTES, Exchange, bound, reading
from cudnn_resolve.index.credentials import Credentials
from cudnn_resolve.index.fetch_error import FORBIDDEN, FetchError, TransientError, too_large
from cudnn_resolve.index.settings import Settings
from cudnn_resolve.masking import redacted, shown

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
CONNECTIONS = 16
"""Connections kept to each host; more gain nothing, measured on 108 requests."""
ANSWER_SECONDS = 300.0
"""Time limit for a page or a METADATA file, however steadily it arrives."""
_CHUNK = 1 << 16
_LARGEST_PACKED = 16 << 20
"""Bytes of a compressed body: padding and empty members cost time without unpacking to anything."""
_SHORT_BODY = 1 << 16
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_LONGEST_PAUSE = 30.0
_TLS_ERRORS = (urllib3_errors.SSLError, requests.exceptions.SSLError)
_LOOKUP_ERROR = "gaierror"
"""Name of the system's error for a host name; urllib3 has a class of its own only since 2.0."""
_TRY_AGAIN = -3
"""Its number if the name server did not answer (EAI_AGAIN)."""


class Answer(NamedTuple):
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    """Case-insensitive."""
    body: bytes
    url: str
    """Final URL after redirects, without credentials."""
    is_whole: bool = True
    """False if the body was larger than wanted and was not read."""


class IndexSession:
    """Sends requests for many threads; opens no connection before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._credentials = Credentials(settings)
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._closed = threading.Event()
        self._retry = _Retry(total=settings.retries, other=1, backoff_factor=settings.backoff)  # `other`: the slowest failures
        self.requests = 0
        """Number of requests sent."""
        self.received = 0
        """Bytes of bodies received."""

    def ask(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int, method: str = "GET", wanted: int | None = None
    ) -> Answer:
        """Response to a request, after redirects and retries; raise FetchError if there is none, or its status is 500 or above.

        `limit` bounds the decoded body in bytes; raise FetchError for a longer one. With `wanted`, the body of a whole file that is larger
        is not read.
        """

        def once() -> Answer:
            with self.opened(url, headers or {}, limit=limit, method=method) as (response, final_url):
                remaining = response.raw.length_remaining
                if wanted is not None and response.status_code == 200 and (remaining is None or remaining > wanted):
                    return Answer(200, response.headers, b"", final_url, is_whole=False)
                return Answer(response.status_code, response.headers, self._body(response, limit), final_url)

        return self.retried(once)

    @contextmanager
    def opened(
        self, url: str, headers: Mapping[str, str], *, limit: int, method: str = "GET", seconds: float = ANSWER_SECONDS
    ) -> Iterator[tuple[requests.Response, str]]:
        """Send a request once; yields the head of the response and its URL after redirects. The body must be read inside.

        Raise TransientError if another try may help. `limit` bounds the bytes on the wire, `seconds` the time for everything.
        """
        reading.exchange = Exchange(self._settings.patience, limit + HEADER_BYTES, seconds, self._closed)
        with self._translate_errors(url):
            response, final_url = self._follow(method, url, headers)
        try:
            yield response, final_url
        finally:
            response.close()

    def chunks(self, response: requests.Response) -> Iterator[bytes]:
        """The body as it arrives, undecoded; raise TransientError if it ends early."""
        while True:
            with self._translate_errors(response.url):
                chunk: bytes = response.raw.read(_CHUNK, decode_content=False)
            if not chunk:
                break
            self.received += len(chunk)
            yield chunk
        if response.raw.length_remaining:  # urllib3 2 raises an error itself
            raise TransientError("its response ended early", code="index-truncated")

    def retried(self, once: Callable[[], T], has_progressed: Callable[[], bool] = lambda: False) -> T:
        """Call `once`, again after transient errors; a try that `has_progressed` starts the count over."""
        retry: Retry = self._retry
        while True:
            try:
                return once()
            except TransientError as error:  # noqa: PERF203 - a request costs more
                if has_progressed():
                    retry = self._retry
                is_slow = error.code in ("index-stalled", "index-unreachable")
                counted = None if error.response else error if is_slow else urllib3_errors.ProtocolError()
                try:
                    retry = retry.increment("GET", "", response=error.response, error=counted)
                except urllib3_errors.MaxRetryError:
                    raise error from None
                requested = retry.get_retry_after(error.response) if error.response else None
                if self._closed.wait(retry.get_backoff_time() if requested is None else requested):
                    raise

    def close(self) -> None:
        """Close the connections; requests in flight fail at once."""
        self._closed.set()
        if self._session:
            self._session.close()

    def _body(self, response: requests.Response, limit: int) -> bytes:
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding not in ("", "identity", "gzip", "x-gzip"):
            raise FetchError(f"it sent an encoding that was not requested ({shown(coding)})", code="index-garbage")
        is_packed = coding in ("gzip", "x-gzip")
        most = min(limit, _LARGEST_PACKED) if is_packed else limit
        if (response.raw.length_remaining or 0) > most:
            raise too_large(most)
        body = _joined(self.chunks(response), most)
        return _unpacked(body, limit) if is_packed else body

    def _follow(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[requests.Response, str]:
        """Response after all redirects, and its URL; credentials are looked up for each URL."""
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
                error = TransientError(f"it responded with HTTP {response.status_code}", status=response.status_code)
                error.response = response.raw
                raise error
            url = _redirect_target(url, response.headers.get("Location"))
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
        verdict = "requires a user name and a password" if status == 401 else "refuses access"
        return FetchError(
            f"it {verdict} (HTTP {status}); looked for credentials in {self._credentials.places()}",
            code=FORBIDDEN if status == 403 and not given and "WWW-Authenticate" not in response.headers else "index-denied",
            hint="put the credentials where pip or uv finds them, for example into ~/.netrc",
            status=status,
        )

    @contextmanager
    def _translate_errors(self, url: str) -> Iterator[None]:
        """Raise exceptions of requests and urllib3 as FetchError."""
        try:
            yield
        except FetchError:
            raise
        except (requests.RequestException, urllib3_errors.HTTPError, OSError, ValueError) as error:
            translated = _fetch_error(error)
            with contextlib.suppress(ValueError):
                for proxy in self._settings.proxies_for(url).values():
                    translated.why += f" (through the proxy {redacted(proxy)})"
                    translated.hint = translated.hint or "check HTTPS_PROXY and PIP_PROXY"
            raise translated from None

    def _opened_session(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                self._session = self._make_session()
            return self._session

    def _make_session(self) -> requests.Session:
        session = _Session()
        session.trust_env = False  # the settings cover the environment
        session.headers.update({"User-Agent": f"cudnn-resolve/{__version__}", "Accept": "*/*"})
        session.mount("http://", _Adapter())
        session.mount("https://", _Adapter(_tls_context(self._settings)))
        if self._settings.trusted_hosts:
            disable_warnings(urllib3_errors.InsecureRequestWarning)
            unchecked = _Adapter(_tls_context(self._settings, check=False))
            for host in self._settings.trusted_hosts:
                session.mount(f"https://{host}/", unchecked)
                session.mount(f"https://{host}:", unchecked)
        return session


class _Session(requests.Session):
    """A session that leaves redirects to `_follow`, which knows credentials and bounds."""

    def get_redirect_target(self, _response: requests.Response) -> None:
        return None


class _Adapter(HTTPAdapter):
    """Connections with bounded responses and one shared TLS context."""

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
        """Pool for a request; the context alone decides which certificates are trusted (requests 2.32 and later has rules of its own)."""
        del cert
        proxy = select_proxy(request.url, proxies)
        return (self.proxy_manager_for(proxy) if proxy else self.poolmanager).connection_from_url(request.url)

    def cert_verify(self, *_: object) -> None:
        """Do nothing: the context checks certificates."""


class _Retry(Retry):
    """Retries that wait as long as the server asks, within bounds."""

    def get_retry_after(self, response: Any) -> float | None:
        try:
            seconds = super().get_retry_after(response)
        except (urllib3_errors.InvalidHeader, ValueError, OverflowError):
            return None
        return None if seconds is None else min(seconds, _LONGEST_PAUSE)


def _tls_context(settings: Settings, *, check: bool = True) -> Any:
    """TLS context with the certificates of the settings, else of the system, else of requests."""
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
    """Discard a body: read a short one, so that its connection can be reused, and drop the connection of a longer one."""
    response.raw.read(_SHORT_BODY, decode_content=False)
    response.close()


def _redirect_target(url: str, location: str | None) -> str:
    """URL that a redirect leads to, without credentials and fragment; raise FetchError if it may not be followed."""
    try:
        target = urljoin(url, quote((location or "").encode("latin-1", "replace"), safe="!#$%&'()*+,/:;=?@[]~"))
        origin_of(target)
    except ValueError:
        target = ""
    if not location or not is_remote(target):
        raise FetchError("it redirects to an invalid URL", code="index-redirects")
    if url[:6].lower() == "https:" and target[:5].lower() == "http:":
        raise FetchError(f"it redirects from https to http ({shown(target)})", code="index-redirects")
    return split_login(target)[0].partition("#")[0]


def _joined(chunks: Iterable[bytes], most: int) -> bytes:
    """All chunks in one; raise FetchError if they have too many bytes."""
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise too_large(most)
        parts.append(chunk)
    return b"".join(parts)


def _unpacked(body: bytes, limit: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
            return _joined(iter(lambda: stream.read(_CHUNK), b""), limit)
    except EOFError:
        raise TransientError("its compressed response ended early", code="index-truncated") from None
    except (OSError, zlib.error):
        raise TransientError("its response is declared as gzip and is not", code="index-garbage") from None


def _fetch_error(error: Exception) -> FetchError:
    """Translate an exception of requests or urllib3, by what is wrapped in it."""
    chain = list(_wrapped(error, set()))
    own = _first(chain, FetchError)
    if own is not None:
        return own
    untrusted = next((text for inner in chain if (text := getattr(inner, "verify_message", None))), None)
    if untrusted:
        hint = "name the certificates to trust as for pip: PIP_CERT, REQUESTS_CA_BUNDLE or SSL_CERT_FILE"
        return FetchError(f"its certificate is not trusted ({untrusted})", code="index-certificate", hint=hint)
    tunnel = next((str(inner) for inner in chain if "Tunnel connection failed" in str(inner)), None)
    if tunnel:
        return FetchError(f"the proxy refuses ({tunnel[-60:].strip()!a})", code="index-proxy")
    if "SOCKS support" in str(error):
        hint = "install PySocks next to cudnn-resolve, or use an HTTP proxy"
        return FetchError("a SOCKS proxy needs the package PySocks", code="index-proxy", hint=hint)
    lookup = next((inner for inner in chain if type(inner).__name__ == _LOOKUP_ERROR), None)
    if lookup is not None:
        kind = TransientError if getattr(lookup, "errno", None) == _TRY_AGAIN else FetchError
        return kind("its host name cannot be resolved", code="index-unreachable")
    if _first(chain, *_TLS_ERRORS) is not None:
        reason = next((text for inner in chain if isinstance(text := getattr(inner, "reason", None), str)), "TLS")
        return TransientError(f"no secure connection ({reason})", code="index-tls")
    return _connection_error(chain)


def _connection_error(chain: list[BaseException]) -> FetchError:
    if _first(chain, ConnectionRefusedError) is not None:
        return TransientError("the connection is refused", code="index-unreachable")
    if _first(chain, TimeoutError) is not None:
        return TransientError("it does not answer in time", code="index-stalled")
    lost = _first(chain, ConnectionError)
    if lost is not None:
        return TransientError(f"the connection was lost ({type(lost).__name__})", code="index-reset")
    broken = _first(chain, urllib3_errors.ProtocolError)
    if broken is not None:
        head, cause = "aborted" in str(broken.args[0]), broken.args[-1]  # a body is "broken"
        if head and not isinstance(cause, OSError):
            return TransientError(f"its response is not HTTP ({type(cause).__name__})", code="index-garbage")
        return TransientError("its response ended early", code="index-truncated")
    if _first(chain, ValueError) is not None:
        return FetchError(f"its URL cannot be used ({type(chain[0]).__name__})", code="index-address")
    system = next((inner.strerror for inner in chain if isinstance(inner, OSError) and inner.strerror), None)
    return FetchError(system or type(chain[0]).__name__, code="index-unreachable")


def _first(chain: list[BaseException], *kinds: type[E]) -> E | None:
    return next((error for error in chain if isinstance(error, kinds)), None)


def _wrapped(error: object, seen: set[int]) -> Iterator[BaseException]:
    """An exception and everything that is wrapped in it, outermost first."""
    if isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        for inner in (*error.args, getattr(error, "reason", None), error.__cause__, error.__context__):
            yield from _wrapped(inner, seen)
