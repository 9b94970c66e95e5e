"""Answers that no library would write: byte for byte what a broken server, or none, sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.settings import IndexAddress, Patience, Settings

PAGE = b'<html><a href="demo-1.0.tar.gz">x</a>'
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def sending(raw: bytes) -> Iterator[str]:
    """The address of a server that sends these bytes to everybody, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, contextlib.suppress(OSError):
                        client.recv(65536)
                        client.sendall(raw)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        finally:
            server.shutdown(socket.SHUT_RDWR)  # or `accept` would steal from the next server with the same descriptor
            thread.join(10)


def versions(url: str) -> list[str]:
    settings = Settings(indexes=(IndexAddress(url=url, source=""),), backoff=0.01, retries=1, patience=Patience(1, 1, 2))
    with IndexClient(settings) as client:
        listing = client.listing("demo")
        assert listing is not None
        return [offer.version for offer in listing.offers]


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE),
        CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in PAGE) + b"0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE),
        OK + b"Content-Length: -5\r\n\r\n" + PAGE,
        OK + b"Content-Length: %d\r\n\r\n%sand more" % (len(PAGE), PAGE),
    ],
    ids=["chunked", "tiny chunks", "until the end", "after 100", "negative length", "more than it says"],
)
def test_odd_but_whole(raw: bytes) -> None:
    with sending(raw) as url:
        assert versions(url) == ["1.0"]


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (CHUNKED + b"%x\r\n%s\r\n" % (len(PAGE), PAGE), "ended early"),
        (CHUNKED + b"zz\r\n" + PAGE, "ended early"),
        (CHUNKED + b"fffffff\r\n" + PAGE, "ended early"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"", "was lost"),
        (b"HTTP/1.1 999999 x\r\n\r\n", "not HTTP"),
        (OK + b"X: y\r\n" * 200 + b"\r\n", "not HTTP"),
        (OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 500, "was lost"),
        (b"HTTP/1.1 204 No\r\n\r\n", "HTTP 204"),
        (OK + b"Content-Length: 99999999999999999999\r\n\r\n" + PAGE, "larger than"),
        (OK + b"Content-Length: 500\r\n\r\n" + PAGE, "ended early"),
    ],
)
def test_broken(raw: bytes, word: str) -> None:
    with sending(raw) as url, pytest.raises(IndexUnavailableError, match=word):
        versions(url)
