"""Connections to one host after another: kept alive, each name looked up once, and every read held to a deadline.

The standard library's client over a socket of our own making: a timeout of a socket begins anew with each byte, so that a server
that lets one byte drip each second would hold a request for ever. Here the deadline moves with what has come, at a least rate.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from cudnn_resolve.index.address import Login, Origin
from cudnn_resolve.index.settings import Patience

if TYPE_CHECKING:
    from ssl import SSLContext

LEAST_RATE = 10_000
"""Bytes a second below which an answer counts as stalled."""
_MOST_ADDRESSES = 4


class Exchange:
    """One request and its answer: until when it may take."""

    __slots__ = ("patience", "received", "started")

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.started = time.monotonic()
        self.received = 0

    def left(self) -> float:
        """Seconds that the next read may take; TimeoutError where none are left."""
        left = self.started + self.patience.answer + self.received / LEAST_RATE - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer comes too slowly")
        return min(left, self.patience.read)


class _TimedReader(io.RawIOBase):
    """The bytes of a socket, each read within what the exchange has left."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._raw: Any = sock.makefile("rb", buffering=0)
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        exchange = self._connection.exchange
        self._sock.settimeout(exchange.left())
        try:
            count: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            exchange.left()  # says so where it was the whole answer that took too long
            raise
        exchange.received += count or 0
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            super().close()


class _Socket:
    """What `http.client.HTTPResponse` asks of a socket."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._connection = connection

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._connection.reader = io.BufferedReader(_TimedReader(self._sock, self._connection), 65536)
        return self._connection.reader


class Connection:
    """One connection to an origin, direct or through a proxy."""

    def __init__(self, origin: Origin, dialer: Dialer, route: Route) -> None:
        self.origin = origin
        self.is_used = False
        """True where it has carried an answer: the other end may have closed it since."""
        self.exchange = Exchange(dialer.patience)
        self.reader: io.BufferedReader | None = None
        """Of the last answer: Python 3.10 forgets the one of a tunnel that was refused, and the socket stays open with it."""
        first = route.proxy or origin
        kind: Any = http.client.HTTPSConnection if origin.scheme == "https" else http.client.HTTPConnection
        extra = {"context": route.context} if origin.scheme == "https" else {}
        client: Any = kind(first.host, first.port, timeout=dialer.patience.connect, **extra)
        client._create_connection = dialer.dial  # noqa: SLF001 - its own tests replace it so; there is no public way
        client.response_class = self._response
        if route.proxy and origin.scheme == "https":
            client.set_tunnel(origin.host, origin.port, headers=proxy_headers(route.login))
        self._client = client

    def _response(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        sock_like: Any = _Socket(sock, self)
        return http.client.HTTPResponse(sock_like, **options)

    def ask(self, method: str, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """The answer to a request, its body unread; errors as of `http.client` and `socket`."""
        self.exchange = Exchange(self.exchange.patience)
        client = self._client
        if client.sock is not None:
            client.sock.settimeout(self.exchange.patience.read)
        client.putrequest(method, target, skip_accept_encoding=True)
        for key, value in headers.items():
            client.putheader(key, value)
        client.endheaders()
        answer: http.client.HTTPResponse = client.getresponse()
        return answer

    @property
    def is_open(self) -> bool:
        """True where another request can be sent."""
        return self._client.sock is not None

    def close(self) -> None:
        """Ends it."""
        self._client.close()
        if self.reader is not None:
            self.reader.close()


class Route(NamedTuple):
    """How an origin is reached."""

    proxy: Origin | None
    login: Login | None
    """The proxy's."""
    context: SSLContext | None


def proxy_headers(login: Login | None) -> dict[str, str]:
    """The header that a proxy wants."""
    return {"Proxy-Authorization": basic(login)} if login else {}


def basic(login: Login) -> str:
    """The value of a header that says who asks."""
    return "Basic " + b64encode(f"{login.user}:{login.password}".encode()).decode("ascii")


class Dialer:
    """Makes sockets; asks for the addresses of each host once, however many threads want them."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._known: dict[tuple[str, int], list[Any]] = {}
        self._locks: dict[tuple[str, int], threading.Lock] = {}
        self._lock = threading.Lock()

    def dial(self, address: tuple[str, int], *_: object) -> socket.socket:
        """A connected socket; OSError of the last address where none answers."""
        error: OSError | None = None
        for family, kind, protocol, _name, where in self._addresses(address)[:_MOST_ADDRESSES]:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self.patience.connect)
                sock.connect(where)
            except OSError as refusal:
                sock.close()
                error = refusal
            else:
                return sock
        raise error or OSError("the host has no address")

    def _addresses(self, address: tuple[str, int]) -> list[Any]:
        with self._lock:
            lock = self._locks.setdefault(address, threading.Lock())
        with lock:
            if address not in self._known:
                self._known[address] = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            return self._known[address]


class Connections:
    """Connections that wait for their next request; shared by all threads."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[Connection]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, origin: Origin) -> Connection | None:
        """A connection to use; None where a new one has to be made."""
        with self._lock:
            idle = self._idle.get(origin)
            return idle.pop() if idle else None

    def give(self, connection: Connection) -> None:
        """Puts a connection back whose answer has been read to its end."""
        connection.is_used = True
        with self._lock:
            if connection.is_open and not self._closed:
                self._idle.setdefault(connection.origin, []).append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Ends all that wait."""
        with self._lock:
            self._closed = True
            idle = [one for many in self._idle.values() for one in many]
            self._idle.clear()
        for one in idle:
            one.close()
