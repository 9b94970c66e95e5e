"""What is kept on disk: private, whole or not there, shared by processes that know nothing of each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.index.cache import FOLDER, Cache
from cudnn_resolve.index.page import Page, read_page
from cudnn_resolve.index.page_cache import CachedPage

URL = "https://host.invalid/simple/demo/"
WRITER = """
import sys
from cudnn_resolve.index.cache import Cache
from cudnn_resolve.index.page import read_page
from cudnn_resolve.index.page_cache import CachedPage
page = b"".join(b'<a href="demo-1.%d.tar.gz">%s</a>' % (number, sys.argv[2].encode() * 2000) for number in range(300))
kept = CachedPage(page=read_page(page, "text/html", sys.argv[3], "demo"), etag=sys.argv[2])
cache = Cache(sys.argv[1])
print("ready", flush=True)
while True:
    cache.put("pages", sys.argv[3], kept)
    cache.put("metadata", "key", [sys.argv[2] * 1000])
"""


def page(*versions: str) -> Page:
    return read_page("".join(f'<a href="demo-{one}.tar.gz">x</a>' for one in versions).encode(), "text/html", URL, "demo")


def kept(cache: Cache) -> CachedPage:
    found = cache.get("pages", URL, CachedPage)
    assert found is not None
    return found


def test_a_page_comes_back(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    assert cache.get("pages", URL, CachedPage) is None
    said = CachedPage(page=page("1.0", "2.0"), etag='"e"', modified="then", digest="digest", fresh_until=7.0)
    cache.put("pages", URL, said)
    assert kept(cache) == said


def test_an_index_without_the_package_is_kept_too(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.put("pages", URL, CachedPage(page=None))
    assert kept(cache).page is None


def test_a_value_of_another_form_is_not_used(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.put("pages", URL, {"page": 5})
    assert cache.get("pages", URL, CachedPage) is None
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"))
    cache.put("pages", URL, CachedPage(page=page("1.0")))
    cache.put("metadata", "key", [1])
    for path in (tmp_path / "cache" / FOLDER).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.put("metadata", "key", [1])
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file())
    path.chmod(0o666)
    assert cache.get("metadata", "key", list) is None
    path.chmod(0o600)
    assert cache.get("metadata", "key", list) == [1]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get("metadata", "key", list) is None


def test_a_copy_of_another_page_is_not_believed(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.put("pages", "https://host.invalid/simple/other/", CachedPage(page=page("9.0")))
    (other,) = (one for one in tmp_path.rglob("*") if one.is_file())
    cache.put("pages", URL, CachedPage(page=page("1.0")))
    (mine,) = (one for one in tmp_path.rglob("*") if one.is_file() and one != other)
    mine.write_bytes(other.read_bytes())
    assert cache.get("pages", URL, CachedPage) is None


@pytest.mark.parametrize("folder", [None, "/proc/nowhere", "/dev/null"])
def test_without_a_folder_nothing_is_kept_and_nothing_fails(folder: str | None) -> None:
    cache = Cache(folder)
    cache.put("pages", URL, CachedPage(page=page("1.0")))
    cache.put("metadata", "key", [1])
    cache.drop("pages", URL)
    assert cache.get("pages", URL, CachedPage) is None
    assert cache.get("metadata", "key", list) is None


@pytest.mark.slow
def test_writers_that_are_killed_leave_whole_files(tmp_path: Path) -> None:
    """Two processes write the same entries over and over; one is killed again and again; a reader never sees anything else than theirs."""
    cache = Cache(str(tmp_path))
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
            found = cache.get("pages", URL, CachedPage)
            if found is not None and found.page is not None:
                assert {bytes(block).count(str(found.etag).encode()) for block in found.page.blocks} == {2000}
                seen.add(found.etag)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        assert kept(cache).etag in ("one", "two")
        assert cache.get("metadata", "key", list) in (["one" * 1000], ["two" * 1000])
    assert seen
