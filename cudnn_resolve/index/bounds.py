"""Bounds on time and bytes: every read of a socket is charged to the request that its thread is making."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

from cudnn_resolve.index.fetch_error import FetchError, TransientError, too_large
from cudnn_resolve.index.settings import Patience

LEAST_RATE = 10_000
"""Bytes per second below which a response counts as stalled."""
HEADER_BYTES = 1 << 20
"""Allowance for the headers and trailers of all responses to one request, redirects included."""
_CHECK_SECONDS = 0.2
"""Interval at which a blocked read checks whether its session was closed."""
_BUFFER = 1 << 16


class Exchange:
    """Budget of one request, redirects included; every read of a socket is charged to the exchange of its thread."""

    def __init__(self, patience: Patience, limit: int, seconds: float, closed: threading.Event) -> None:
        self.patience = patience
        self._limit = limit
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._closed = closed
        self._received = 0

    def check(self, waited: float) -> None:
        """Raise TransientError if the response takes too long, FetchError if its session was closed."""
        now = time.monotonic()
        if self._closed.is_set():
            raise FetchError("the request was cancelled", code="index-closed")
        if now > min(self._deadline, self._began + self.patience.answer + self._received / LEAST_RATE):
            raise TransientError("its response is too slow", code="index-stalled")
        if waited > self.patience.read:
            raise TransientError("it does not answer in time", code="index-stalled")

    def count(self, received: int) -> None:
        """Charge received bytes; raise FetchError beyond the limit."""
        self._received += received
        if self._received > self._limit:
            raise too_large(self._limit - HEADER_BYTES)


class _Reading(threading.local):
    exchange: Exchange


reading = _Reading()
"""The exchange of this thread."""


class _Reader(io.RawIOBase):
    """The bytes of a socket, charged to the exchange.

    A socket's timeout restarts with each byte, so that a byte now and then would keep a request open for ever.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._open = sock.makefile("rb", buffering=0)  # keeps the socket open while the response is read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        exchange = reading.exchange
        began = time.monotonic()
        self._sock.settimeout(_CHECK_SECONDS)
        while True:
            exchange.check(time.monotonic() - began)
            try:
                count: int = self._sock.recv_into(buffer)
            except TimeoutError:
                continue
            exchange.count(count)
            return count

    def close(self) -> None:
        if not self.closed:
            self._sock.settimeout(self._timeout)
            self._open.close()
            super().close()


class _Socket:
    """A socket that is read through a `_Reader`."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, *_arguments: Any, **_options: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock), _BUFFER)


class _Bounded:
    """Mixin for urllib3's connection classes."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _Socket(self.sock)


def bound(manager: Any) -> None:
    """Bound the connections of a pool manager, including those through a SOCKS proxy."""
    manager.pool_classes_by_scheme = {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": type(pool.ConnectionCls.__name__, (_Bounded, pool.ConnectionCls), {})})
        for scheme, pool in manager.pool_classes_by_scheme.items()
    }
