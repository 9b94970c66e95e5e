"""The ways to an index: certificates, proxies, the keyring, local trees and folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index import metadata_reader
from cudnn_resolve.index.address import Login
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.metadata_reader import read_local
from cudnn_resolve.index.settings import IndexAddress, Proxy, Settings
from cudnn_resolve.requirement.source import File, Metadata
from tests.index_server import CERTIFICATE, IndexServer, build_wheel, metadata_text


def versions(settings: Settings, name: str = "demo") -> list[str]:
    with IndexClient(settings) as client:
        listing = client.listing(name)
        assert listing is not None
        return [offer.version for offer in listing.offers]


def test_a_certificate_must_be_trusted() -> None:
    with IndexServer(tls=True) as index:
        index.add_wheel("demo", "1.0")
        with pytest.raises(IndexUnavailableError, match="certificate is not trusted") as caught:
            versions(index.settings())
        assert caught.value.hint
        assert "PIP_CERT" in caught.value.hint
        assert versions(index.settings(certificate=str(CERTIFICATE))) == ["1.0"]
        assert versions(index.settings(trusted_hosts=("127.0.0.1",))) == ["1.0"]
        with pytest.raises(IndexUnavailableError, match="not trusted"):
            versions(index.settings(trusted_hosts=("127.0.0.1:1",)))


@pytest.mark.parametrize("which", ["certificate", "client_certificate"])
def test_a_certificate_that_cannot_be_read_is_told(which: str) -> None:
    with IndexServer(tls=True) as index, pytest.raises(IndexUnavailableError, match="cannot be read"):
        versions(index.settings(**{which: "/nowhere.pem"}))


def test_an_index_without_tls_under_an_https_address() -> None:
    with IndexServer() as index, pytest.raises(IndexUnavailableError, match="no secure connection"):
        versions(index.settings(indexes=(IndexAddress(url=index.url.replace("http:", "https:"), source=""),)))


def proxied(proxy: IndexServer, url: str, **changes: Any) -> Settings:
    return proxy.settings(
        indexes=(IndexAddress(url=url, source=""),), proxies=(Proxy("all", proxy.root, Login("joe", "s3cret")),), **changes
    )


def test_a_proxy_is_asked_for_plain_addresses(index: IndexServer) -> None:
    index.others["http://host.invalid/simple/demo/?x=1"] = ("text/html", b'<a href="demo-1.0.tar.gz">x</a>')
    index.others["http://host.invalid/simple/demo/"] = ("text/html", b'<a href="demo-2.0.tar.gz">x</a>')
    assert versions(proxied(index, "http://host.invalid/simple")) == ["2.0"]
    assert index.asked[0].headers["proxy-authorization"]
    assert index.asked[0].headers["host"] == "host.invalid"


def test_a_proxy_digs_a_tunnel_to_secure_addresses(index: IndexServer) -> None:
    index.login = ("joe", "s3cret")
    with IndexServer(tls=True) as far:
        far.add_wheel("demo", "1.0")
        settings = proxied(index, far.url, certificate=str(CERTIFICATE))
        assert versions(settings) == ["1.0"]
        assert [one.method for one in index.asked] == ["CONNECT"]
        assert "proxy-authorization" not in far.asked[0].headers
        index.login = ("joe", "another")
        with pytest.raises(IndexUnavailableError, match="the proxy refuses") as caught:
            versions(settings)
        assert "s3cret" not in str(caught.value)


def test_hosts_without_a_proxy(index: IndexServer) -> None:
    index.add_wheel("demo", "1.0")
    proxy = (Proxy("all", "http://127.0.0.1:9"),)
    assert versions(index.settings(proxies=proxy, no_proxy="127.0.0.1")) == ["1.0"]
    with pytest.raises(IndexUnavailableError, match=r"refused \(through the proxy http://127\.0\.0\.1:9\)") as caught:
        versions(index.settings(proxies=proxy))
    assert "HTTPS_PROXY" in str(caught.value.hint)


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a program `keyring` on the path that does as told, and writes down its words."""

    def put(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "keyring"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{script}\n', "utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return tmp_path / "asked"

    return put


def test_the_keyring_is_asked_after_a_refusal(index: IndexServer, keyring: Callable[[str], Path]) -> None:
    asked = keyring("echo me; echo from-keyring")
    index.add_wheel("demo", "1.0")
    assert versions(index.settings(keyring=True)) == ["1.0"]
    assert not asked.exists()
    index.login = ("me", "from-keyring")
    assert versions(index.settings(keyring=True)) == ["1.0"]
    assert asked.read_text("utf-8") == f"--mode creds get {index.url}\n"
    with pytest.raises(IndexUnavailableError, match="HTTP 401"):
        versions(index.settings())


def test_the_keyring_knows_the_password_of_a_name(index: IndexServer, keyring: Callable[[str], Path]) -> None:
    asked = keyring("echo from-keyring")
    index.add_wheel("demo", "1.0")
    index.login = ("me", "from-keyring")
    address = IndexAddress(url=index.url, source="", login=Login("me", ""))
    assert versions(index.settings(keyring=True, indexes=(address,))) == ["1.0"]
    assert asked.read_text("utf-8") == f"get {index.url} me\n"


@pytest.mark.parametrize("script", ["exit 1", "echo only-one-line", "kill -9 $$", "echo me; echo wrong", "read line; echo $line; echo x"])
def test_a_keyring_that_does_not_help(index: IndexServer, keyring: Callable[[str], Path], script: str) -> None:
    keyring(script)
    index.login = ("me", "right")
    with pytest.raises(IndexUnavailableError, match=r"looked for credentials in .*the keyring"):
        versions(index.settings(keyring=True))


def wheel(folder: Path, version: str, requires: str = "other") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{version}-py3-none-any.whl"
    path.write_bytes(build_wheel("demo", version, metadata_text("demo", version, requires=[requires]), {}))
    return path


def test_a_tree_of_folders_is_an_index(tmp_path: Path) -> None:
    wheel(tmp_path / "files", "2.0")
    (tmp_path / "simple/demo").mkdir(parents=True)
    (tmp_path / "simple/demo/index.html").write_text('<a href="../../files/demo-2.0-py3-none-any.whl">demo</a>', "utf-8")
    wheel(tmp_path / "simple/plain", "1.0")
    settings = Settings(indexes=(IndexAddress(url=(tmp_path / "simple").as_uri(), source=""),))
    with IndexClient(settings) as client:
        listing = client.listing("demo")
        assert listing is not None
        (file,) = listing.offers[0].files
        assert file.url == (tmp_path / "files/demo-2.0-py3-none-any.whl").as_uri()
        found = client.metadata("demo", file)
        assert found is not None
        assert found.requires == ("other",)
    assert versions(settings, "plain") == []
    assert versions(settings, "nobody") == []


def test_folders_of_wheels_are_looked_into_even_offline(tmp_path: Path) -> None:
    wheel(tmp_path, "1.0")
    (tmp_path / "other-1.0.txt").touch()
    settings = Settings(find_links=(tmp_path.as_uri(), (tmp_path / "gone").as_uri()))
    with IndexClient(settings, offline=True) as client:
        listing = client.listing("demo")
        assert listing is not None
        (file,) = listing.offers[0].files
        assert (file.origin, file.size) == (None, os.stat(tmp_path / file.filename).st_size)
        found = client.metadata("demo", file)
        assert found is not None
        assert found.requires == ("other",)
        assert any("there is no folder" in note for note in client.notes)


def test_a_local_wheel_is_read_again_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path, "1.0")
    read: list[str] = []

    def note(name: str, file: File) -> Metadata:
        read.append(name)
        return read_local(name, file)

    monkeypatch.setattr(metadata_reader, "read_local", note)

    def requires() -> tuple[str, ...]:
        with IndexClient(Settings(find_links=(tmp_path.as_uri(),)), cache_folder=str(tmp_path / "cache")) as client:
            listing = client.listing("demo")
            assert listing is not None
            found = client.metadata("demo", listing.offers[0].files[0])
            assert found is not None
            return found.requires

    assert [requires(), requires()] == [("other",), ("other",)]
    assert read == ["demo"]
    wheel(tmp_path, "1.0", "newer")
    assert requires() == ("newer",)
    assert read == ["demo", "demo"]


def test_a_page_of_links_on_disk(tmp_path: Path) -> None:
    (tmp_path / "links.html").write_text('<a href="sub/demo-1.0.tar.gz">x</a><a href="other-1.0.zip">x</a>', "utf-8")
    settings = Settings(find_links=((tmp_path / "links.html").as_uri(),))
    assert versions(settings) == ["1.0"]
    assert versions(settings, "other") == ["1.0"]


def test_a_damaged_local_wheel_is_an_error(tmp_path: Path) -> None:
    path = wheel(tmp_path, "1.0")
    path.write_bytes(b"nothing")
    with IndexClient(Settings(find_links=(tmp_path.as_uri(),))) as client:
        listing = client.listing("demo")
        assert listing is not None
        with pytest.raises(IndexUnavailableError, match=r"demo-1.0-py3-none-any.whl.* is not a zip file"):
            client.metadata("demo", listing.offers[0].files[0])
        path.unlink()
        with pytest.raises(IndexUnavailableError, match=r"demo-1\.0"):
            client.metadata("demo", replace(listing.offers[0].files[0], url=(tmp_path / "gone").as_uri()))
