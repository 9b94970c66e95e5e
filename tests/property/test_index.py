"""Pages, metadata, wheels and kept answers: whatever comes in, there is an answer or our error; what was written is read back."""

from __future__ import annotations

import json
import os
import string
import tempfile
from html import escape
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from cudnn_resolve.index import address, filename
from cudnn_resolve.index.cache import FOLDER, Cache
from cudnn_resolve.index.metadata import MetadataError, read_fields
from cudnn_resolve.index.page import HTML, LinkPage, PageError, files_of, read_page
from cudnn_resolve.index.page_cache import CachedPage
from cudnn_resolve.index.remote_wheel import TAIL_BYTES, RangeFile, WheelError, read_wheel_metadata
from cudnn_resolve.index.sdist import read_archive_metadata
from cudnn_resolve.masking import redacted, shown
from cudnn_resolve.requirement.source import Metadata
from tests.index_server import build_wheel, metadata_text

BASE = "https://host.invalid/simple/demo/"
SCRAPS = [
    b"<a ",
    b"<a\n",
    b"<A ",
    b"href=",
    b'"',
    b"'",
    b">",
    b"</a>",
    b"<!--",
    b"-->",
    b"<base ",
    b"demo-1.0",
    b"-py3-none-any.whl",
    b"#sha256=",
    b"&gt;",
]
soup = st.lists(st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=6)), max_size=60).map(b"".join)
version = st.builds(
    lambda epoch, numbers, before, after: epoch + ".".join(map(str, numbers)) + before + after,
    st.sampled_from(["", "", "", "1!"]),
    st.lists(st.sampled_from([0, 0, 1, 2, 10]), min_size=1, max_size=3),
    st.sampled_from(["", "", "a1", "b2", "rc1"]),
    st.sampled_from(["", "", ".post1", ".dev3", "+cu124", ".post2.dev1+local", ".post0", "+1.a", "+01", "+a.b"]),
)
versions = st.lists(version, min_size=1, max_size=10, unique_by=Version)
printable = st.text(string.ascii_letters + string.digits + " <>&\"'=./#-é", max_size=20)


def read_all(body: bytes, kind: str) -> None:
    try:
        page = read_page(body, kind, BASE, "demo")
    except PageError:
        return
    for number in range(len(page.versions)):
        for file in files_of(page, number, None):
            assert "@" not in file.url.partition("//")[2].partition("/")[0]
            assert isinstance(file.filename, str)


@given(st.one_of(st.binary(), soup))
def test_any_bytes_are_a_page_or_an_error(body: bytes) -> None:
    read_all(body, "text/html")


ODD: list[object] = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "http://[",
    "\ud800",
    [],
    ["x"],
    {},
    {"sha256": "0" * 64},
    {"sha256": 5},
    {"x": []},
]
anything = st.sampled_from(ODD)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "filename": st.one_of(anything, st.just("demo-1.0-py3-none-any.whl")),
                "url": anything,
                "hashes": anything,
                "size": anything,
                "yanked": anything,
                "requires-python": anything,
                "upload-time": anything,
                "core-metadata": anything,
            },
        ),
        max_size=4,
    ),
    anything,
)
def test_any_json_is_a_page_or_an_error(files: list[object], meta: object) -> None:
    read_all(json.dumps({"files": files, "meta": meta}).encode(), "application/vnd.pypi.simple.v1+json")
    read_all(json.dumps(meta).encode(), "application/json")


@given(st.lists(version, max_size=8))
def test_versions_stand_in_the_order_of_pep_440(listed: list[str]) -> None:
    ordered = filename.newest_first(listed)
    assert sorted(text for same in ordered for text in same) == sorted(listed)
    assert [Version(same[0]) for same in ordered] == sorted({Version(text) for text in listed}, reverse=True)
    assert all(Version(text) == Version(same[0]) for same in ordered for text in same)


@given(versions, printable, printable, st.sampled_from(['"', "'"]), st.sampled_from([" ", "\n", "  \t"]), st.permutations([0, 1, 2]))
def test_a_page_is_read_as_it_was_written(listed: list[str], yanked: str, requires: str, mark: str, space: str, order: list[int]) -> None:
    lines = []
    for version in listed:
        name = f"demo-{version}-py3-none-any.whl"
        attributes = [
            f"href={mark}../../files/{quote(name)}#sha256={'0' * 64}{mark}",
            f"data-yanked={mark}{escape(yanked)}{mark}",
            f"data-requires-python={mark}{escape(requires)}{mark}",
        ]
        lines.append(f"<a{space}{space.join(attributes[one] for one in order)}>{name}</a><br>")
    page = read_page(("<html>" + "\n".join(lines)).encode(), "text/html", BASE, "demo")
    assert [Version(one) for one in page.versions] == sorted(map(Version, listed), reverse=True)
    for number, version in enumerate(page.versions):
        (file,) = files_of(page, number, "x")
        assert file.filename == f"demo-{version}-py3-none-any.whl"
        assert file.url == f"https://host.invalid/files/{quote(file.filename)}"
        assert (file.yanked, file.requires_python) == (yanked, requires or None)
        assert file.hashes == {"sha256": "0" * 64}


@given(
    st.one_of(
        st.binary(),
        st.lists(st.sampled_from([b"Name: x\n", b"Version: 1\n", b"Requires-Dist: ", b"\n", b" ", b":", b"\xff"])).map(b"".join),
    )
)
def test_any_bytes_are_metadata_or_an_error(raw: bytes) -> None:
    try:
        fields = read_fields(raw)
    except MetadataError:
        return
    assert filename.is_version(fields.version)


@given(st.lists(st.text(string.ascii_letters + string.digits + " ;<>=.'\"[],()é", min_size=1).map(str.strip).filter(bool), max_size=10))
def test_metadata_is_read_as_it_was_written(requires: list[str]) -> None:
    fields = read_fields(metadata_text("demo", "1.0", requires=requires, extras=["a", "b"], requires_python=">=3"))
    assert (fields.name, fields.version) == ("demo", "1.0")
    assert fields.metadata == Metadata(tuple(requires), ">=3", ("a", "b"))


def part_of(raw: bytes) -> Any:
    return RangeFile(len(raw), raw[-TAIL_BYTES:], lambda start, count: raw[start : start + count])


@given(st.binary(), st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=6), st.integers(0, 60))
def test_a_damaged_wheel_is_an_error_or_right(front: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    metadata = metadata_text("demo", "1.0", requires=["other"])
    whole = build_wheel("demo", "1.0", metadata, {"demo/data": front})
    raw = bytearray(whole)
    for place, value in changes:
        raw[-1 - place % len(raw)] = value
    damaged = bytes(raw[: len(raw) - cut])
    try:
        found = read_wheel_metadata(part_of(damaged), 1 << 20)
    except WheelError:
        return
    assert found == metadata


@given(st.binary(max_size=300))
def test_any_bytes_are_a_wheel_or_an_error(raw: bytes) -> None:
    try:
        read_wheel_metadata(part_of(raw), 1 << 20)
    except WheelError:
        return


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x1f\x8b\x08\x00", b"PK\x03\x04"]),
    st.sampled_from(["demo-1.0.tar.gz", "demo-1.0.zip"]),
)
def test_any_bytes_are_an_archive_or_an_error(raw: bytes, front: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as stream:
            stream.write(front + raw)
        try:
            read_archive_metadata(path, name, "demo")
        except MetadataError:
            return


@given(
    st.lists(st.sampled_from(["demo", "Demo", "-", "_", ".", "1", "2", "v1.0", "x"]), max_size=8).map("".join),
    st.sampled_from([".tar.gz", ".zip", "-py3-none-any.whl"]),
)
def test_a_file_is_found_under_every_name_that_it_may_have(stem: str, ending: str) -> None:
    names = set(filename.projects_in(stem + ending))
    for name in ("demo", "demo-1", "demo-x", "demo-2-demo", "x"):
        if filename.version_in(stem + ending, name) is not None:
            assert name in names
            assert LinkPage(f'<p><A class="x" href=x/{stem}{ending}>'.encode(), BASE).of(name).versions


@given(st.text())
def test_a_filename_says_a_version_or_nothing(text: str) -> None:
    for name in (text, f"demo-{text}-py3-none-any.whl", f"demo-{text}.tar.gz"):
        version = filename.version_in(name, "demo")
        if version is not None:
            Version(version)


@given(
    st.text(string.ascii_letters + string.digits + "!$%-._~é", min_size=1),
    st.text(string.ascii_letters + string.digits + ":!$%-._~é@", min_size=1),
)
def test_no_credentials_are_left_in_an_address(user: str, password: str) -> None:
    for scheme in ("https", "http"):
        url = f"{scheme}://{user}q:{password}secret@host.invalid:8443/simple/x?token=secret2#md5=1"
        assert "secret" not in redacted(url).replace("token=secret2", "")
        assert "secret" not in shown(url)
        assert "secret" not in address.split_login(url)[0].partition("?")[0]


@given(versions, st.binary(max_size=50), st.integers(0, 3000), st.integers(0, 255))
def test_what_was_kept_comes_back_or_is_dropped(listed: list[str], front: bytes, place: int, value: int) -> None:
    page = front.replace(b"<", b"") + b"".join(f'<a href="demo-{one}-py3-none-any.whl">x</a>'.encode() for one in listed)
    kept = CachedPage(page=read_page(page, HTML, BASE, "demo"), etag='"tag"', digest="digest", fresh_until=5.0)
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder)
        cache.put("pages", BASE, kept)
        assert cache.get("pages", BASE, CachedPage) == kept
        (name,) = os.listdir(os.path.join(folder, FOLDER, "pages"))
        path = os.path.join(folder, FOLDER, "pages", name)
        with open(path, "r+b") as stream:
            raw = stream.read()
            place %= len(raw)
            stream.seek(place)
            stream.write(bytes([value]))
        again = cache.get("pages", BASE, CachedPage)
        assert again is None or again == kept
