"""Requests to indexes: routes, certificates, credentials, redirects, retries, and bodies within bounds."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from cudnn_resolve._version import __version__
from cudnn_resolve.index.address import Login, Origin, is_remote, level, origin_of, shown, split_login
from cudnn_resolve.index.credential import Credentials
from cudnn_resolve.index.refusal import FORBIDDEN, Refusal, TransientRefusal, refusal_of
from cudnn_resolve.index.settings import Settings

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext

    from cudnn_resolve.index.connection import Connection, Connections, Dialer, Route

_MOST_REDIRECTS = 10
_LONGEST_PAUSE = 30.0
_NEAR_SECONDS = 0.012
"""As long as an index in the same data centre takes for an answer, with a TLS handshake; the way across a country alone takes longer."""
_PIECE = 65536
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
_UNSAFE = re.compile(r"[^\x21-\x7e]")


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    url: str
    """After redirects, without credentials."""
    is_whole: bool = True
    """False where the body was larger than was wanted and was not read."""


class Transport:
    """Sends requests for many threads; opens nothing before the first."""

    def __init__(
        self, settings: Settings, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._settings = settings
        self._credentials = Credentials(settings)
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: Connections | None = None
        self._dialer: Dialer | None = None
        self._contexts: dict[bool, SSLContext] = {}
        self.requests = 0
        self.received = 0
        self._quickest: float | None = None
        """Seconds from a request to the head of its answer, of the quickest so far; two threads that write it at once do no harm."""

    @property
    def is_far(self) -> bool:
        """True where even the quickest answer was long in coming: more requests at once are then worth more connections."""
        return self._quickest is not None and self._quickest > _NEAR_SECONDS

    def ask(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int, method: str = "GET", wanted: int | None = None
    ) -> Answer:
        """The answer to a request, after redirects and retries; Refusal where there is none, or none below 500.

        `limit` bounds the decoded body in bytes; a longer one is a Refusal. With `wanted`, a body of more than that is not read.
        """

        def whole(response: HTTPResponse, where: str) -> Answer:
            heads = {key.lower(): value for key, value in response.getheaders()}
            if wanted is not None and response.status == 200 and (response.length is None or response.length > wanted):
                return Answer(200, heads, b"", where, is_whole=False)
            return Answer(response.status, heads, self._body(response, heads, limit), where)

        answer: Answer = self._with_retries(url, dict(headers or {}), method, whole)
        return answer

    def stream(self, url: str, headers: Mapping[str, str], take: Callable[[Answer, Iterator[bytes]], None]) -> Answer:
        """The head of an answer after `take` got it, and its body piece by piece where the status is 200 or 206; asked for once.

        TransientRefusal where it may be worth another try; what came until then has been taken.
        """

        def passed(response: HTTPResponse, where: str) -> Answer:
            answer = Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, b"", where)
            if response.status in (200, 206):
                take(answer, self._pieces(response))
            return answer

        answer: Answer = self._follow(url, dict(headers), "GET", passed)
        return answer

    def pause(self, refusal: TransientRefusal, attempt: int) -> None:
        """Waits before the next try: as long as the server asks, within bounds, else longer each time."""
        wanted = refusal.pause if refusal.pause is not None else self._settings.backoff * 2**attempt
        self._sleep(min(wanted, _LONGEST_PAUSE))

    def close(self) -> None:
        """Ends the connections that wait."""
        if self._connections:
            self._connections.close()

    def looked_for(self, url: str) -> str:
        """Where credentials for an address were looked for, in words."""
        return self._credentials.looked_for(url)

    def _with_retries(self, url: str, headers: dict[str, str], method: str, take: Callable[[HTTPResponse, str], Any]) -> Any:
        stalls = 0
        for attempt in range(self._settings.retries + 1):
            try:
                return self._follow(url, headers, method, take)
            except TransientRefusal as refusal:  # noqa: PERF203 - a request costs more
                stalls += refusal.code in ("index-stalled", "index-unreachable")
                if attempt == self._settings.retries or stalls > 1:
                    raise Refusal(refusal.why, code=refusal.code, hint=refusal.hint, status=refusal.status) from None
                self.pause(refusal, attempt)
        raise AssertionError

    def _follow(self, url: str, headers: dict[str, str], method: str, take: Callable[[HTTPResponse, str], Any]) -> Any:
        for _ in range(_MOST_REDIRECTS + 1):
            url, login = split_login(url)
            login = login or self._credentials.known(url)
            answer = self._exchange(url, headers, method, login, take)
            if isinstance(answer, _Unauthorized) and (found := self._credentials.found(url, login)):
                answer = self._exchange(url, headers, method, found, take)
            if isinstance(answer, _Unauthorized):
                raise self._denied(url, answer, given=login is not None)
            if not isinstance(answer, _Redirect):
                return answer
            url = answer.url
        raise Refusal(f"it sends from one address to the next, more than {_MOST_REDIRECTS} times", code="index-redirects")

    def _denied(self, url: str, answer: _Unauthorized, *, given: bool) -> Refusal:
        status = answer.status
        word = "wants a user name and a password" if status == 401 else "refuses access"
        return Refusal(
            f"it {word} (HTTP {status}); credentials were looked for in {self.looked_for(url)}",
            code=FORBIDDEN if status == 403 and not given and not answer.wants_login else "index-denied",
            hint="put the credentials where pip or uv finds them, ~/.netrc for example",
            status=status,
        )

    def _exchange(
        self, url: str, headers: dict[str, str], method: str, login: Login | None, take: Callable[[HTTPResponse, str], Any]
    ) -> Any:
        from http.client import RemoteDisconnected

        connection, all_headers, target = self._prepared(url, headers, login)
        try:
            while True:
                self.requests += 1
                try:
                    began = self._clock()
                    response = connection.ask(method, target, all_headers)
                    took = self._clock() - began
                    self._quickest = took if self._quickest is None else min(self._quickest, took)
                    break
                except (RemoteDisconnected, ConnectionError):
                    connection.close()
                    if not connection.is_used:
                        raise
                    connection = self._connection(origin_of(url), fresh=True)  # it had been closed while it waited
            result = self._judge(response, url, take)
            if response.isclosed() or response.length == 0:
                response.close()
                self._pool().give(connection)
            else:
                response.close()
                connection.close()
        except BaseException as error:
            connection.close()
            if isinstance(error, Exception) and not isinstance(error, Refusal):
                known = refusal_of(error, self._route(connection.origin).proxy)
                if known:
                    raise known from None
            raise
        return result

    def _judge(self, response: HTTPResponse, url: str, take: Callable[[HTTPResponse, str], Any]) -> Any:
        status = response.status
        if status in (301, 302, 303, 307, 308):
            self._drain(response)
            return _Redirect(_next_address(url, response.getheader("Location")))
        if status in (401, 403, 407):
            self._drain(response)
            return _Unauthorized(status, response.getheader("WWW-Authenticate") is not None)
        if status in _TRANSIENT:
            refusal = TransientRefusal(f"it answers HTTP {status}", code="index-unavailable", status=status)
            refusal.pause = _pause(response.getheader("Retry-After"))
            raise refusal
        return take(response, url)

    def _prepared(self, url: str, headers: dict[str, str], login: Login | None) -> tuple[Connection, dict[str, str], str]:
        from cudnn_resolve.index.connection import basic, proxy_headers

        try:
            origin = origin_of(url)
            parts = urlsplit(url)
        except ValueError:
            raise Refusal("its address is none", code="index-address") from None
        target = _UNSAFE.sub(lambda found: quote(found[0].encode("utf-8", "replace")), parts.path or "/")
        if parts.query:
            target += "?" + _UNSAFE.sub(lambda found: quote(found[0].encode("utf-8", "replace")), parts.query)
        made = {"User-Agent": f"cudnn-resolve/{__version__}", "Accept-Encoding": "identity", **headers}
        if login:
            made["Authorization"] = basic(login)
        connection = self._connection(origin)
        route = self._route(origin)
        if route.proxy and origin.scheme == "http":
            target = level(url).partition("?")[0].partition("/")[0] + f"//{urlsplit(url).netloc}{target}"
            made.update(proxy_headers(route.login))
        return connection, made, target

    def _connection(self, origin: Origin, *, fresh: bool = False) -> Connection:
        from cudnn_resolve.index.connection import Connection

        waiting = None if fresh else self._pool().take(origin)
        assert self._dialer or not waiting
        return waiting or Connection(origin, self._dial(), self._route(origin))

    def _pool(self) -> Connections:
        with self._lock:
            if self._connections is None:
                from cudnn_resolve.index.connection import Connections, Dialer

                self._connections = Connections()
                self._dialer = Dialer(self._settings.patience)
            return self._connections

    def _dial(self) -> Dialer:
        self._pool()
        assert self._dialer
        return self._dialer

    def _route(self, origin: Origin) -> Route:
        from cudnn_resolve.index.connection import Route

        proxy, login = self._settings.proxy_for(origin)
        return Route(proxy, login, self._context(origin) if origin.scheme == "https" else None)

    def _context(self, origin: Origin) -> SSLContext:
        trusted = self._settings.trusts(origin)
        with self._lock:
            if trusted not in self._contexts:
                self._contexts[trusted] = _make_context(self._settings, check=not trusted)
            return self._contexts[trusted]

    def _drain(self, response: HTTPResponse) -> None:
        """Reads a short body that nobody wants, so that the connection can serve again."""
        if response.length is not None and response.length <= _PIECE:
            self.received += len(response.read())

    def _pieces(self, response: HTTPResponse) -> Iterator[bytes]:
        while piece := response.read(_PIECE):
            self.received += len(piece)
            yield piece
        if response.length:
            raise TransientRefusal(f"its answer ends {response.length} bytes too early", code="index-truncated")

    def _body(self, response: HTTPResponse, headers: Mapping[str, str], limit: int) -> bytes:
        coding = headers.get("content-encoding", "identity").lower()
        if coding in ("identity", ""):
            if response.length is not None and response.length > limit:
                raise _too_large(limit)
            pieces = self._pieces(response)
        elif coding in ("gzip", "x-gzip", "deflate"):
            pieces = _inflated(self._pieces(response), limit)
        else:
            raise Refusal(f"it answers in an encoding that was not asked for ({shown(coding)})", code="index-garbage")
        parts = []
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            parts.append(piece)
        return b"".join(parts)


class _Redirect(NamedTuple):
    url: str


class _Unauthorized(NamedTuple):
    status: int
    wants_login: bool


def _next_address(url: str, location: str | None) -> str:
    try:
        following = urljoin(url, location or "")
    except ValueError:
        following = ""
    if not location or not is_remote(following):
        raise Refusal("it sends on to an address that is none", code="index-redirects")
    return split_login(following)[0].partition("#")[0]


def _pause(text: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text.strip()[:6])
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _inflated(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
    left = limit + 1
    try:
        for piece in pieces:
            while piece and left > 0 and not inflater.eof:
                part = inflater.decompress(piece, left)
                left -= len(part)
                yield part
                piece = inflater.unconsumed_tail  # noqa: PLW2901 - what the bound left over
    except zlib.error:
        raise TransientRefusal("its answer is no gzip, although it says so", code="index-garbage") from None
    if left > 0 and not inflater.eof:
        raise TransientRefusal("its compressed answer ends too early", code="index-truncated")


def _too_large(limit: int) -> Refusal:
    return Refusal(f"its answer is larger than {limit >> 20} MB", code="index-too-large")


def _make_context(settings: Settings, *, check: bool) -> SSLContext:
    import ssl

    if not check:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = _checking_context(settings.certificate)
    context.set_alpn_protocols(["http/1.1"])
    if settings.client_certificate:
        try:
            context.load_cert_chain(settings.client_certificate)
        except OSError:
            raise Refusal(f"the client certificate {settings.client_certificate} cannot be read", code="index-certificate") from None
    return context


def _checking_context(certificate: str | None) -> SSLContext:
    import os
    import ssl

    try:
        if certificate:
            is_folder = os.path.isdir(certificate)
            return ssl.create_default_context(cafile=None if is_folder else certificate, capath=certificate if is_folder else None)
    except OSError:
        raise Refusal(f"the certificates {certificate} cannot be read", code="index-certificate") from None
    return ssl.create_default_context()
