"""Servers that mean harm: answers that never end, redirects to elsewhere, proxies that would be gone past."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.errors import IndexUnavailableError, UsageError
from cudnn_resolve.index import session
from cudnn_resolve.index.address import Login
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.read_settings import Options, read_settings
from cudnn_resolve.index.settings import IndexAddress, Patience, Proxy, Settings
from cudnn_resolve.requirement.source import File
from tests.index_server import CERTIFICATE, IndexServer, body, cut, redirect, status

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
PAGE = b'<html><a href="demo-1.0.tar.gz">x</a>'
PACKED = gzip.compress(PAGE)


@contextlib.contextmanager
def endless(first: bytes, more: bytes, pause: float = 0.0) -> Iterator[str]:
    """The address of a server that sends `first`, and then `more` over and over."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.recv(65536)
                client.sendall(first)
                while not ended.wait(pause):
                    client.sendall(more if pause else more * 2000)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)  # or `accept` would steal from the next server with the same descriptor
            thread.join(10)


def listing(settings: Settings, name: str = "demo") -> Any:
    with IndexClient(settings) as client:
        return client.listing(name)


def settings_for(url: str, **changes: Any) -> Settings:
    made = {"backoff": 0.01, "retries": 1, "patience": Patience(1, 1, 1), **changes}
    return Settings(indexes=(IndexAddress(url=url, source=""),), **made)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.02])
@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n"),
        (OK, b"X"),
        (OK + b"\r\n", PAGE),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED, b"\0"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED, gzip.compress(b"")),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED[:10], b"\x00\x00\x00\xff\xff"),
        (b"HTTP/1.1 302 Found\r\nLocation: /simple/demo/\r\n\r\n", b"x"),
        (b"HTTP/1.1 503 No\r\n\r\n", b"x"),
    ],
    ids=[
        *("continue", "continue-with-head", "head", "body", "chunks", "trailers", "chunk-size"),
        *("after-gzip", "members", "blocks", "redirect", "unavailable"),
    ],
)
def test_an_answer_that_never_ends_does(monkeypatch: pytest.MonkeyPatch, first: bytes, more: bytes, pause: float) -> None:
    monkeypatch.setattr("cudnn_resolve.index.page_cache.LARGEST_PAGE", 1 << 20)
    with endless(first, more, pause) as url, pytest.raises(IndexUnavailableError):
        listing(settings_for(url, retries=0, patience=Patience(0.5, 0.5, 0.5)))


@pytest.mark.slow
def test_an_answer_has_so_much_time_however_steadily_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.index.bounds.LEAST_RATE", 1)  # each byte gives it another second
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(session.IndexSession.opened.__wrapped__, "__kwdefaults__", {"method": "GET", "seconds": 0.3})  # type: ignore[attr-defined]
    with endless(OK + b"\r\n", PAGE, 0.01) as url, pytest.raises(IndexUnavailableError, match="too slow"):
        listing(settings_for(url, retries=0))


@pytest.mark.slow
def test_a_server_that_wants_a_long_pause_gets_a_short_one(index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LONGEST_PAUSE", 0.01)
    index.add_wheel("demo", "1.0")
    for wanted in ("99999999", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "nonsense", "-5"):
        index.heal()
        index.fail("/simple/demo/", status(503, retry_after=wanted), times=1)
        assert listing(index.settings()).offers


def test_a_redirect_does_not_lead_from_https_to_http(index: IndexServer) -> None:
    index.add_wheel("demo", "1.0")
    with IndexServer(tls=True) as secure:
        secure.fail("/simple/demo/", redirect(f"{index.url}/demo/"))
        with pytest.raises(IndexUnavailableError, match="from https to http"):
            listing(secure.settings(certificate=str(CERTIFICATE)))
    assert not index.asked


def test_the_default_entry_of_netrc_does_not_follow_a_redirect(index: IndexServer, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine elsewhere.invalid login me password a\ndefault login me password secret\n", "utf-8")
    netrc.chmod(0o600)
    with IndexServer() as other:
        other.add_wheel("demo", "1.0")
        index.fail("/simple/demo/", redirect(f"{other.url}/demo/"))
        assert listing(index.settings(netrc=str(netrc))).offers
    assert "authorization" in index.asked[0].headers
    assert "authorization" not in other.asked[0].headers


@pytest.mark.parametrize("scheme", ["socks4", "socks5", "socks5h"])
def test_a_socks_proxy_is_never_gone_past(index: IndexServer, scheme: str) -> None:
    index.add_wheel("demo", "1.0")
    with pytest.raises(IndexUnavailableError, match=r"PySocks|refused|SOCKS"):
        listing(index.settings(proxies=(Proxy("all", f"{scheme}://127.0.0.1:9", Login("joe", "s3cret")),)))
    assert not index.asked


@pytest.mark.parametrize("proxy", ["ftp://proxy.invalid:1", "http://", "http://proxy.invalid:port", "http://[proxy:80"])
def test_a_proxy_that_cannot_be_used_is_an_error(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(UsageError, match="proxy"):
        read_settings(Options(), {"HOME": str(tmp_path), "HTTPS_PROXY": proxy}, prefix=None)


def test_a_server_that_gives_a_byte_at_a_time_is_given_up(index: IndexServer, tmp_path: Path) -> None:
    made = index.add_wheel("demo", "1.0", members={"demo/data": os.urandom(50_000)})
    index.fail("/files/", cut(1))
    file = File(made.filename, f"{index.root}/files/demo/{made.filename}", {"sha256": made.digest}, size=len(made.body))
    with IndexClient(index.settings()) as client, pytest.raises(IndexUnavailableError, match="ended early"):
        client.fetch(file, str(tmp_path / "to"))
    assert len(index.asked) == 3
    assert not os.listdir(tmp_path / "to")


def test_what_is_on_its_way_ends_with_the_client() -> None:
    with endless(OK, b"X: y\r\n", 0.05) as url:
        client = IndexClient(settings_for(url, patience=Patience(9, 99, 99)))
        client.prefetch(["demo"])
        while not client.requests:
            pass
        client.close()
        (future,) = client._requested.values()  # noqa: SLF001 - nobody asks for it any more
        with contextlib.suppress(Exception):
            assert future.exception(timeout=5)
        assert future.done()


@pytest.mark.slow
def test_a_download_has_so_much_time_however_steadily_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cudnn_resolve.index.bounds.LEAST_RATE", 1)
    monkeypatch.setattr("cudnn_resolve.index.download._LONGEST_SECONDS", 0.4)
    with endless(OK + b"Content-Length: 900000\r\n\r\n", b"x", 0.01) as url, IndexClient(settings_for(url, retries=0)) as client:
        file = File("demo-1.0-py3-none-any.whl", f"{url}/demo-1.0-py3-none-any.whl", {"sha256": "0" * 64})
        with pytest.raises(IndexUnavailableError, match="too slow"):
            client.fetch(file, str(tmp_path / "to"))
    assert not os.listdir(tmp_path / "to")


@pytest.mark.slow
def test_what_a_small_answer_unpacks_to_is_bounded(index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.index.page_cache.LARGEST_PAGE", 1 << 20)
    index.fail("/simple/demo/", body(gzip.compress(bytes(50 << 20)), "text/html", content_encoding="gzip"))
    with pytest.raises(IndexUnavailableError, match="larger than 1 MB"):
        listing(index.settings())
