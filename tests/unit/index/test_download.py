"""Files downloaded whole: checked, taken up where they broke off, and in place only when they are right."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.download import Downloads
from cudnn_resolve.index.session import IndexSession
from cudnn_resolve.requirement.source import File
from tests.index_server import Asked, Fault, IndexServer, Reply, body, cut, status


@pytest.fixture
def client(index: IndexServer, tmp_path: Path) -> Iterator[IndexClient]:
    with IndexClient(index.settings(), cache_folder=str(tmp_path / "cache")) as opened:
        yield opened


@pytest.fixture
def file(index: IndexServer, client: IndexClient) -> File:
    index.form = "json"
    index.add_wheel("demo", "1.0", members={"demo/data": os.urandom(400_000)})
    listing = client.listing("demo")
    assert listing is not None
    return listing.offers[0].files[0]


@pytest.fixture
def downloads(index: IndexServer) -> Iterator[Downloads]:
    """Downloads of `apply`, which resume where an earlier run broke off."""
    with closing(IndexSession(index.settings())) as session:
        yield Downloads(session)


def served(index: IndexServer) -> bytes:
    return index.files["demo"]["demo-1.0-py3-none-any.whl"].body


def test_a_file_comes_whole_and_is_told_of(index: IndexServer, downloads: Downloads, file: File, tmp_path: Path) -> None:
    told: list[int] = []
    path = downloads.fetch(file, str(tmp_path / "new" / "folder"), told.append)
    assert Path(path).read_bytes() == served(index)
    assert os.listdir(tmp_path / "new" / "folder") == ["demo-1.0-py3-none-any.whl"]
    assert sum(told) == file.size


def test_a_file_that_is_there_and_right_is_not_asked_for(index: IndexServer, client: IndexClient, file: File, tmp_path: Path) -> None:
    client.fetch(file, str(tmp_path))
    asked = len(index.asked)
    client.fetch(file, str(tmp_path))
    assert len(index.asked) == asked
    (tmp_path / file.filename).write_bytes(b"x" * len(served(index)))
    client.fetch(file, str(tmp_path))
    assert (tmp_path / file.filename).read_bytes() == served(index)


@pytest.mark.parametrize("is_reset", ["reset", ""])
def test_it_goes_on_where_it_broke_off(index: IndexServer, client: IndexClient, file: File, tmp_path: Path, is_reset: str) -> None:
    index.fail("/files/", cut(100_000, is_reset=bool(is_reset)), times=3)
    client.fetch(file, str(tmp_path))
    assert (tmp_path / file.filename).read_bytes() == served(index)
    starts = [int(one.headers["range"][6:-1]) for one in index.asked[2:]]
    assert starts == sorted(starts)
    assert starts[-1] > 100_000


def test_it_begins_anew_where_the_server_gives_no_parts(index: IndexServer, client: IndexClient, file: File, tmp_path: Path) -> None:
    index.ranges = False
    index.fail("/files/", cut(100_000), times=1)
    client.fetch(file, str(tmp_path))
    assert (tmp_path / file.filename).read_bytes() == served(index)


def test_a_file_that_changes_meanwhile_comes_whole(index: IndexServer, client: IndexClient, file: File, tmp_path: Path) -> None:
    index.etags = True
    index.fail("/files/", cut(100_000), times=1)
    made = served(index)
    first = client.fetch(file, str(tmp_path / "same"))
    asked = index.asked[-1].headers
    assert asked["if-range"].startswith('"')
    assert asked["range"].startswith("bytes=")
    assert Path(first).read_bytes() == made


def break_off(downloads: Downloads, index: IndexServer, file: File, folder: Path) -> None:
    index.fail("/files/", cut(100_000), times=1)
    index.fail("/files/", cut(0), times=3)
    with pytest.raises(IndexUnavailableError):
        downloads.fetch(file, str(folder), resume=True)
    index.heal()


def test_the_next_run_goes_on_where_one_broke_off(index: IndexServer, downloads: Downloads, file: File, tmp_path: Path) -> None:
    break_off(downloads, index, file, tmp_path)
    (part,) = [name for name in os.listdir(tmp_path) if name.endswith(".part")]
    there = (tmp_path / part).stat().st_size
    assert there > 0
    path = downloads.fetch(file, str(tmp_path), resume=True)
    assert index.asked[-1].headers["range"] == f"bytes={there}-"
    assert Path(path).read_bytes() == served(index)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def name_edition(monkeypatch: pytest.MonkeyPatch, header: str, edition: str, *, heeds: bool = True) -> None:
    """Let the server say which edition its files are, and give another one whole."""
    plain = IndexServer._file  # noqa: SLF001

    def answer(index: IndexServer, asked: Asked, name: str, filename: str) -> Reply:
        if heeds and asked.headers.get("if-range") not in (None, edition):
            asked = Asked(asked.method, asked.path, {})
        reply = plain(index, asked, name, filename)
        reply.headers[header] = edition
        return reply

    monkeypatch.setattr(IndexServer, "_file", answer)


@pytest.mark.parametrize("named", [("ETag", '"a1"'), ("Last-Modified", "Sat, 21 Nov 2020 10:00:00 GMT")])
def test_the_next_run_asks_for_the_rest_of_the_same_edition(
    index: IndexServer, downloads: Downloads, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, str]
) -> None:
    name_edition(monkeypatch, *named)
    break_off(downloads, index, file, tmp_path / "to")
    (left,) = (tmp_path / "to").glob(".*.part")
    size = left.stat().st_size

    path = downloads.fetch(file, str(tmp_path / "to"), resume=True)

    asked = index.asked[-1].headers
    assert (asked["if-range"], asked["range"]) == (named[1], f"bytes={size}-")
    assert Path(path).read_bytes() == served(index)
    assert os.listdir(tmp_path / "to") == [file.filename]


@pytest.mark.parametrize("heeds", ["heeds", ""])
def test_a_file_that_changed_between_two_runs_comes_whole(
    index: IndexServer, downloads: Downloads, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heeds: str
) -> None:
    name_edition(monkeypatch, "ETag", '"new"', heeds=bool(heeds))
    break_off(downloads, index, file, tmp_path / "to")
    (left,) = (tmp_path / "to").glob(".*.part")
    left.write_bytes(b"x" * left.stat().st_size)
    Path(f"{left}.from").write_text('"old"')
    asked = len(index.asked)

    path = downloads.fetch(file, str(tmp_path / "to"), resume=True)

    assert Path(path).read_bytes() == served(index)
    assert len(index.asked) - asked == (1 if heeds else 2)
    assert os.listdir(tmp_path / "to") == [file.filename]


@pytest.mark.parametrize("said", ["x\r\nX-More: 1", 'W/"weak"', '"' + "x" * 5000 + '"', "\0", "é"])
def test_what_stands_beside_a_part_is_no_way_into_a_request(
    index: IndexServer, downloads: Downloads, file: File, tmp_path: Path, said: str
) -> None:
    break_off(downloads, index, file, tmp_path)
    (tmp_path / f".{file.filename}.part.from").write_text(said, encoding="utf-8")

    path = downloads.fetch(file, str(tmp_path), resume=True)

    assert not {"if-range", "x-more"} & set(index.asked[-1].headers)
    assert Path(path).read_bytes() == served(index)


@pytest.mark.parametrize("left", ["other", "longer", "whole"])
def test_what_an_earlier_run_left_is_judged_by_the_hash(
    index: IndexServer, downloads: Downloads, file: File, tmp_path: Path, left: str
) -> None:
    body_ = served(index)
    part = tmp_path / f".{file.filename}.part"
    part.write_bytes({"other": b"x" * 1000, "longer": body_ + b"x", "whole": body_}[left])
    asked = len(index.asked)
    path = downloads.fetch(file, str(tmp_path), resume=True)
    assert Path(path).read_bytes() == body_
    assert len(index.asked) - asked == {"other": 2, "longer": 1, "whole": 0}[left]
    assert not part.exists()


def test_a_part_does_not_stay_where_the_file_is_not_right(index: IndexServer, downloads: Downloads, file: File, tmp_path: Path) -> None:
    index.fail("/files/", altered)
    with pytest.raises(IndexUnavailableError):
        downloads.fetch(file, str(tmp_path / "to"), resume=True)
    assert os.listdir(tmp_path / "to") == []


def test_a_lock_without_sizes_is_bounded_by_the_index(index: IndexServer, client: IndexClient, file: File, tmp_path: Path) -> None:
    index.fail("/files/", body(bytes(500_000)))
    with pytest.raises(IndexUnavailableError, match=f"longer than the expected {file.size} bytes"):
        client.fetch(replace(file, size=None), str(tmp_path / "to"))


def altered(reply: Reply, _: IndexServer) -> None:
    reply.body = b"y" + reply.body[1:]


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (altered, "its sha256 is .* expected"),
        (body(b"short"), "has 5 bytes"),
        (body(bytes(500_000)), "longer than"),
        (status(404), "HTTP 404"),
        (status(500), "HTTP 500"),
        (cut(0), "ended early"),
    ],
)
def test_what_is_not_right_leaves_nothing_behind(
    index: IndexServer, client: IndexClient, file: File, tmp_path: Path, fault: Fault, word: str
) -> None:
    index.fail("/files/", fault)
    with pytest.raises(IndexUnavailableError, match=word):
        client.fetch(file, str(tmp_path / "to"))
    assert os.listdir(tmp_path / "to") == []


def test_a_full_disk_is_told_as_such(client: IndexClient, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    really = builtins.open

    class Full:
        def __init__(self, stream: IO[bytes]) -> None:
            self._stream = stream

        def __enter__(self) -> Full:  # noqa: PYI034 - for one test
            return self

        def __exit__(self, *_: object) -> None:
            self._stream.close()

        def read(self, _count: int) -> bytes:
            return b""

        def write(self, _raw: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(target: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        stream = really(target, mode, *rest, **more)
        return Full(stream) if mode == "r+b" else stream

    monkeypatch.setattr(builtins, "open", opened)
    with pytest.raises(WorldError, match="no space left") as caught:
        client.fetch(file, str(tmp_path / "to"))
    assert caught.value.code == "disk-full"
    assert os.listdir(tmp_path / "to") == []


def test_a_folder_that_cannot_be_written_is_told(client: IndexClient, file: File, tmp_path: Path) -> None:
    (tmp_path / "to").write_text("a file", "utf-8")
    with pytest.raises(WorldError, match="cannot be written"):
        client.fetch(file, str(tmp_path / "to"))


@pytest.mark.parametrize("name", ["../evil.whl", "/etc/evil.whl", "..", "", "a\0b.whl", "x" * 300 + ".whl"])
def test_a_name_that_leads_out_of_the_folder_is_refused(client: IndexClient, file: File, tmp_path: Path, name: str) -> None:
    with pytest.raises(IndexUnavailableError, match="offers a file with the invalid name"):
        client.fetch(replace(file, filename=name), str(tmp_path / "to"))


def test_a_local_file_is_copied_and_checked(client: IndexClient, tmp_path: Path) -> None:
    source = tmp_path / "demo-1.0-py3-none-any.whl"
    source.write_bytes(b"content")
    right = File(source.name, source.as_uri(), {"sha256": hashlib.sha256(b"content").hexdigest()})
    path = client.fetch(right, str(tmp_path / "to"))
    assert Path(path).read_bytes() == b"content"
    with pytest.raises(IndexUnavailableError, match=r"its sha256 is .* expected"):
        client.fetch(replace(right, hashes={"sha256": "0" * 64}), str(tmp_path / "again"))
