"""What is kept on disk: private, whole or not there, shared by processes that know nothing of each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.index.cache import FOLDER, IndexCache, Kept
from cudnn_resolve.index.page import Shelf, read_page

URL = "https://host.invalid/simple/demo/"
WRITER = """
import sys
from cudnn_resolve.index.cache import IndexCache, Kept
from cudnn_resolve.index.page import read_page
page = b"".join(b'<a href="demo-1.%d.tar.gz">%s</a>' % (number, sys.argv[2].encode() * 2000) for number in range(300))
kept = Kept(200, read_page(page, "text/html", sys.argv[3], "demo"), sys.argv[2], None, "", 0.0)
cache = IndexCache(sys.argv[1])
print("ready", flush=True)
while True:
    cache.keep_page(sys.argv[3], kept)
    cache.keep_metadata("key", [sys.argv[2] * 1000])
"""


def shelf(*versions: str) -> Shelf:
    return read_page("".join(f'<a href="demo-{one}.tar.gz">x</a>' for one in versions).encode(), "text/html", URL, "demo")


def kept(cache: IndexCache) -> Kept:
    found = cache.page(URL)
    assert found is not None
    return found


def test_a_page_comes_back(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path))
    assert cache.page(URL) is None
    cache.keep_page(URL, Kept(200, shelf("1.0", "2.0"), '"e"', "then", "digest", 7.0))
    found = kept(cache)
    assert found._replace(shelf=None) == Kept(200, None, '"e"', "then", "digest", 7.0)
    assert found.shelf is not None
    assert list(found.shelf.versions) == ["2.0", "1.0"]
    assert found.shelf.blocks[1:] == shelf("2.0", "1.0").blocks[1:]


def test_an_index_without_the_package_is_kept_too(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path))
    cache.keep_page(URL, Kept(404, None, None, None, "", 0.0))
    assert kept(cache).status == 404


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path / "cache"))
    cache.keep_page(URL, Kept(200, shelf("1.0"), None, None, "", 0.0))
    cache.keep_metadata("key", [1])
    for path in (tmp_path / "cache" / FOLDER).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path))
    cache.keep_metadata("key", [1])
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file())
    path.chmod(0o666)
    assert cache.metadata("key") is None
    path.chmod(0o600)
    assert cache.metadata("key") == [1]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.metadata("key") is None


def test_a_copy_of_another_page_is_not_believed(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path))
    cache.keep_page("https://host.invalid/simple/other/", Kept(200, shelf("9.0"), None, None, "", 0.0))
    (other,) = (one for one in tmp_path.rglob("*") if one.is_file())
    cache.keep_page(URL, Kept(200, shelf("1.0"), None, None, "", 0.0))
    (mine,) = (one for one in tmp_path.rglob("*") if one.is_file() and one != other)
    mine.write_bytes(other.read_bytes())
    assert cache.page(URL) is None


@pytest.mark.parametrize("folder", [None, "/proc/nowhere", "/dev/null"])
def test_without_a_folder_nothing_is_kept_and_nothing_fails(folder: str | None) -> None:
    cache = IndexCache(folder)
    cache.keep_page(URL, Kept(200, shelf("1.0"), None, None, "", 0.0))
    cache.keep_metadata("key", [1])
    cache.drop_page(URL)
    assert cache.page(URL) is None
    assert cache.metadata("key") is None


def test_more_pages_than_a_process_may_have_open(tmp_path: Path) -> None:
    cache = IndexCache(str(tmp_path))
    large = shelf(*(f"1.{number}" for number in range(1200)))
    urls = [f"https://host.invalid/simple/demo-{number}/" for number in range(260)]
    for url in urls:
        cache.keep_page(url, Kept(200, large, None, None, "", 0.0))
    before = len(os.listdir("/proc/self/fd"))
    pages = [cache.page(url) for url in urls]
    assert len(os.listdir("/proc/self/fd")) - before <= 200
    assert all(page is not None and page.shelf is not None and page.shelf.blocks[1199] == large.blocks[1199] for page in pages)


def test_writers_that_are_killed_leave_whole_files(tmp_path: Path) -> None:
    """Two processes write the same entries over and over; one is killed again and again; a reader never sees anything else than theirs."""
    cache = IndexCache(str(tmp_path))
    seen = set()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    for _ in range(3):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), word, URL], stdout=subprocess.PIPE, env=environment)
            for word in ("one", "two")
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            found = cache.page(URL)
            if found is not None and found.shelf is not None:
                assert {block.count(str(found.etag).encode()) for block in found.shelf.blocks} == {2000}
                seen.add(found.etag)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        assert kept(cache).etag in ("one", "two")
        assert cache.metadata("key") in (["one" * 1000], ["two" * 1000])
    assert seen
