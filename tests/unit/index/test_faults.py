"""An index that stalls, resets, lies or sends garbage: a right answer after all, or an error that says what it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.requirement.source import File
from tests.index_server import Fault, IndexServer, body, cut, drip, redirect, stall, status

PAGE = "/simple/demo/"


@pytest.fixture
def client(index: IndexServer, tmp_path: Path) -> Iterator[IndexClient]:
    index.add_wheel("demo", "1.0", requires=["other>=2"], members={"demo/data": os.urandom(100_000)})
    with IndexClient(index.settings(), cache_folder=str(tmp_path / "cache")) as opened:
        yield opened


def wheel(client: IndexClient) -> File:
    listing = client.listing("demo")
    assert listing is not None
    return listing.offers[0].files[0]


@pytest.mark.parametrize(
    "fault",
    [
        status(500),
        status(503, retry_after="0"),
        status(429, retry_after="0"),
        status(502, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
        cut(20),
        cut(20, is_reset=True),
        cut(0, is_reset=True),
        body(b"\x1f\x8b\x08garbage", "text/html", content_encoding="gzip"),
    ],
    ids=["500", "503", "429", "502", "cut", "reset", "reset at once", "no gzip"],
)
def test_what_passes_is_tried_again(index: IndexServer, client: IndexClient, fault: Fault) -> None:
    index.fail(PAGE, fault, times=2)
    assert wheel(client).filename == "demo-1.0-py3-none-any.whl"
    assert len(index.asked) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "word", "code"),
    [
        (status(500), "HTTP 500", "index-unavailable"),
        (status(418), "HTTP 418", "index-unavailable"),
        (status(403), "refuses access", "index-forbidden"),
        (stall(), "does not answer in time", "index-stalled"),
        (drip(0.05), "too slow", "index-stalled"),
        (cut(20), "ended early", "index-truncated"),
        (cut(0, is_reset=True), "was lost|ended early", "index-"),
        (body(b"<a href='x'>", content_length="999"), "in time|ended early", "index-"),
        (body(b"plain words", "text/html"), "is not HTML", "index-garbage"),
        (body(b"\x89PNG", "image/png"), "media type 'image/png'", "index-garbage"),
        (body(b'{"files": 5}', "application/vnd.pypi.simple.v1+json"), "without a list", "index-garbage"),
        (body(b"[" * 200_000, "application/vnd.pypi.simple.v1+json"), "JSON without a list", "index-garbage"),
        (body(b'{"files": [], "meta": {"api-version": "2.0"}}', "application/vnd.pypi.simple.v1+json"), "API version 2.0", "index-garbage"),
        (body(b"x", "text/html", content_encoding="br"), "encoding", "index-garbage"),
        (redirect("/simple/demo/"), "more than 10 times", "index-redirects"),
        (redirect("file:///etc/passwd"), "invalid URL", "index-redirects"),
        (redirect("//["), "invalid URL", "index-redirects"),
    ],
)
def test_what_stays_is_an_error_that_names_index_and_package(
    index: IndexServer, client: IndexClient, fault: Fault, word: str, code: str
) -> None:
    index.fail(PAGE, fault)
    with pytest.raises(IndexUnavailableError, match=word) as caught:
        client.listing("demo")
    assert caught.value.code.startswith(code)
    assert f"{index.url} for demo" in str(caught.value)


@pytest.mark.slow
def test_a_page_of_thirty_megabytes_is_read(index: IndexServer, client: IndexClient) -> None:
    line = b'<a href="demo-1.%d-py3-none-any.whl#sha256=' + b"0" * 64 + b'" title="' + b"x" * 500 + b'">demo</a><br>\n'
    index.fail(PAGE, body(b"<html>" + b"".join(line % (number % 500) for number in range(50_000)), "text/html"))
    listing = client.listing("demo")
    assert listing is not None
    assert len(listing.offers) == 500
    assert len(listing.offers[0].files) == 100


@pytest.mark.slow
def test_a_page_that_never_ends_is_not_read(index: IndexServer, client: IndexClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.index.page_cache.LARGEST_PAGE", 1 << 20)
    index.packs = True
    import gzip

    index.fail(PAGE, body(gzip.compress(b"<p>" + bytes(50 << 20)), "text/html", content_encoding="gzip"))
    with pytest.raises(IndexUnavailableError, match="larger than 1 MB"):
        client.listing("demo")


def test_nobody_there(index: IndexServer, tmp_path: Path) -> None:
    settings = index.settings()
    index.__exit__(None, None, None)
    with (
        IndexClient(settings, cache_folder=str(tmp_path)) as client,
        pytest.raises(IndexUnavailableError, match="the connection is refused"),
    ):
        client.listing("demo")


def test_metadata_beside_a_wheel_must_have_its_hash(index: IndexServer, client: IndexClient) -> None:
    index.metadata_beside = True
    file = wheel(client)
    index.fail("/files/demo/demo-1.0-py3-none-any.whl.metadata", body(b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"))
    with pytest.raises(IndexUnavailableError, match="does not match its sha256"):
        client.metadata("demo", file)


def test_metadata_that_is_announced_but_missing_comes_from_the_wheel(index: IndexServer, client: IndexClient) -> None:
    index.metadata_beside = True
    file = wheel(client)
    index.fail("/files/demo/demo-1.0-py3-none-any.whl.metadata", status(404))
    found = client.metadata("demo", file)
    assert found is not None
    assert found.requires == ("other>=2",)


def test_a_server_without_parts_of_files_is_named_and_the_file_downloaded(index: IndexServer, client: IndexClient) -> None:
    index.add_wheel("demo", "2.0", requires=["big"], members={"demo/data": os.urandom(2_000_000)})
    index.ranges = False
    found = client.metadata("demo", wheel(client))
    assert found is not None
    assert found.requires == ("big",)
    assert any("does not serve parts of files" in note for note in client.notes)


def test_a_small_file_is_simply_read_where_there_are_no_parts(index: IndexServer, client: IndexClient) -> None:
    index.ranges = False
    found = client.metadata("demo", wheel(client))
    assert found is not None
    assert found.requires == ("other>=2",)
    assert len(index.paths()) == 2
    assert client.notes == []


@pytest.mark.parametrize("heads", ["heads", ""])
def test_a_server_that_counts_no_parts_from_the_end(index: IndexServer, client: IndexClient, heads: str) -> None:
    index.suffix_ranges = False
    index.heads = bool(heads)
    found = client.metadata("demo", wheel(client))
    assert found is not None
    assert found.requires == ("other>=2",)
    assert client.received < (40_000 if heads else 300_000)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not a zip|part"),
        (b"garbage" * 5000, "not a zip"),
        (b"PK\x05\x06" + bytes(18), "no METADATA"),
        (b"PK\x05\x06" + bytes(6) + b"\xff" * 8 + bytes(4), "not a zip file"),
    ],
)
def test_a_wheel_that_is_none(index: IndexServer, client: IndexClient, content: bytes, word: str) -> None:
    index.files["demo"]["demo-1.0-py3-none-any.whl"].body = content
    with pytest.raises(IndexUnavailableError, match=word) as caught:
        client.metadata("demo", wheel(client))
    assert "demo-1.0-py3-none-any.whl" in str(caught.value)


def test_a_wheel_whose_metadata_speaks_of_another_package(index: IndexServer, client: IndexClient) -> None:
    from tests.index_server import build_wheel, metadata_text

    index.files["demo"]["demo-1.0-py3-none-any.whl"].body = build_wheel("demo", "1.0", metadata_text("evil", "1.0"), {})
    with pytest.raises(IndexUnavailableError, match="for the package 'evil'"):
        client.metadata("demo", wheel(client))


def test_a_file_that_is_gone(index: IndexServer, client: IndexClient) -> None:
    file = wheel(client)
    index.fail("/files/", status(404))
    with pytest.raises(IndexUnavailableError, match=r"does not exist \(HTTP 404\)"):
        client.metadata("demo", file)


def test_a_kept_connection_that_the_server_has_closed_is_made_anew(index: IndexServer, client: IndexClient) -> None:
    index.add_wheel("other", "1.0")
    index.fail(PAGE, cut(1 << 20))  # the whole body, and then the end of the connection without a word
    assert wheel(client).filename
    listing = client.listing("other")
    assert listing is not None
    assert [offer.version for offer in listing.offers] == ["1.0"]
    assert len(index.asked) == 2


def test_a_page_that_changes_between_two_runs(index: IndexServer, client: IndexClient, tmp_path: Path) -> None:
    assert wheel(client).filename == "demo-1.0-py3-none-any.whl"
    del index.files["demo"]["demo-1.0-py3-none-any.whl"]
    index.add_wheel("demo", "0.5")
    with IndexClient(index.settings(), cache_folder=str(tmp_path / "cache")) as again:
        assert wheel(again).filename == "demo-0.5-py3-none-any.whl"
    assert wheel(client).filename == "demo-1.0-py3-none-any.whl"
