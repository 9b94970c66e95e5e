"""Bounds on what a server may cost: every read of a socket is charged to the request that its thread is making."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

from cudnn_resolve.index.fetch_error import FetchError, TransientError, too_large
from cudnn_resolve.index.settings import Patience

LEAST_RATE = 10_000
"""Bytes a second below which an answer counts as stalled."""
HEADER_BYTES = 1 << 20
"""What the heads of all answers to one request, with redirects and trailers, may have beside their bodies."""
_LOOK_SECONDS = 0.2
"""How often a read that waits looks whether its session was closed."""
_BUFFER = 1 << 16


class Exchange:
    """Time and bytes that one request may cost, with its redirects; every read of a socket is charged to the exchange of its thread."""

    def __init__(self, patience: Patience, limit: int, seconds: float, closed: threading.Event) -> None:
        self.patience = patience
        self._limit = limit
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._closed = closed
        self._received = 0

    def look(self, waited: float) -> None:
        """Raise a TransientError where the answer has taken too long, and a FetchError where nobody wants it any more."""
        now = time.monotonic()
        if self._closed.is_set():
            raise FetchError("it is no longer wanted", code="index-closed")
        if now > min(self._ends, self._began + self.patience.answer + self._received / LEAST_RATE):
            raise TransientError("its answer comes too slowly", code="index-stalled")
        if waited > self.patience.read:
            raise TransientError("it does not answer in time", code="index-stalled")

    def count(self, received: int) -> None:
        """Add what was received."""
        self._received += received
        if self._received > self._limit:
            raise too_large(self._limit - HEADER_BYTES)


class _Reading(threading.local):
    exchange: Exchange


reading = _Reading()
"""What this thread reads."""


class _Reader(io.RawIOBase):
    """The bytes of a socket within the bounds of the exchange.

    A timeout of a socket restarts with each byte, so that one byte now and then would hold a request for ever.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._open = sock.makefile("rb", buffering=0)  # the socket stays open as long as its answer is read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        exchange = reading.exchange
        began = time.monotonic()
        self._sock.settimeout(_LOOK_SECONDS)
        while True:
            exchange.look(time.monotonic() - began)
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
    """A socket whose answers are read by a `_Reader`."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, *_arguments: Any, **_options: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock), _BUFFER)


class _Bounded:
    """Mixed into urllib3's classes of connections."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _Socket(self.sock)


def bound(manager: Any) -> None:
    """Make the connections of a pool manager bounded ones, those through a SOCKS proxy too."""
    manager.pool_classes_by_scheme = {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": type(pool.ConnectionCls.__name__, (_Bounded, pool.ConnectionCls), {})})
        for scheme, pool in manager.pool_classes_by_scheme.items()
    }
