"""Pages as indexes of all kinds write them."""

from __future__ import annotations

import json
import time

import pytest

from cudnn_resolve.index.filename import version_in
from cudnn_resolve.index.page import PageError, files_of, read_page
from cudnn_resolve.requirement.source import File

BASE = "https://host.invalid/simple/demo/"
HASH = "0123456789abcdef" * 4


def files(html: str | bytes, base: str = BASE) -> list[File]:
    page = read_page(html.encode() if isinstance(html, str) else html, "text/html", base, "demo")
    return [file for number in range(len(page.versions)) for file in files_of(page, number, None)]


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ('<a href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
        ("<a href='demo-1.0.tar.gz'>x</a>", f"{BASE}demo-1.0.tar.gz"),
        ("<A HREF=demo-1.0.tar.gz>x</A>", f"{BASE}demo-1.0.tar.gz"),
        ('<a\n  class="x"\n  href = "demo-1.0.tar.gz"\n>\nx', f"{BASE}demo-1.0.tar.gz"),
        ('<a data-requires-python=">=3" href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
        ('<a title=\'a "quoted" > b\' href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
        ('<a href="../../files/demo-1.0.tar.gz">x</a>', "https://host.invalid/files/demo-1.0.tar.gz"),
        ('<a href="/files/demo-1.0.tar.gz">x</a>', "https://host.invalid/files/demo-1.0.tar.gz"),
        ('<a href="//other.invalid/demo-1.0.tar.gz">x</a>', "https://other.invalid/demo-1.0.tar.gz"),
        ('<a href="https://other.invalid/demo-1.0.tar.gz">x</a>', "https://other.invalid/demo-1.0.tar.gz"),
        ('<a href="https://me:secret@other.invalid/demo-1.0.tar.gz#x">x</a>', "https://other.invalid/demo-1.0.tar.gz"),
        ('<a href="demo-1.0.tar.gz?a=1&amp;b=2">x</a>', f"{BASE}demo-1.0.tar.gz?a=1&b=2"),
        ('<a href="demo%2D1.0.tar.gz">x</a>', f"{BASE}demo%2D1.0.tar.gz"),
        ('<base href="https://other.invalid/x/"><a href="demo-1.0.tar.gz">x</a>', "https://other.invalid/x/demo-1.0.tar.gz"),
        ('<base href="../"><a href="demo-1.0.tar.gz">x</a>', "https://host.invalid/simple/demo-1.0.tar.gz"),
        ('<!-- <a href="demo-2.0.tar.gz">x</a> --><a href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
        ('<a href="demo-1.0.tar.gz">x</a><!-- <a href="demo-2.0.tar.gz">', f"{BASE}demo-1.0.tar.gz"),
        (
            '<a href="file:///x/demo-3.0.zip">x</a><a href="ftp://x/demo-3.0.zip">x</a><a href="demo-1.0.tar.gz">x</a>',
            f"{BASE}demo-1.0.tar.gz",
        ),
        ('<a name="top"><abbr><a href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
        ('<a href="http://[broken/demo-3.0.tar.gz">x</a><a href="demo-1.0.tar.gz">x</a>', f"{BASE}demo-1.0.tar.gz"),
    ],
)
def test_a_link(link: str, url: str) -> None:
    (file,) = files(f"<html>{link}</html>")
    assert (file.filename, file.url) == ("demo-1.0.tar.gz", url)


def test_hashes_and_metadata_of_a_link() -> None:
    html = f"""<html>
<a href="demo-1.0-py3-none-any.whl#sha256={HASH.upper()}" data-dist-info-metadata="sha256={HASH}">a</a>
<a href="demo-1.0-py2-none-any.whl#md5={HASH[:32]}&amp;egg=demo" data-core-metadata=true>b</a>
<a href="demo-1.0-1-py3-none-any.whl#sha256=short" data-dist-info-metadata="false">c</a>
<a href="demo-1.0.zip#sha256={"x" * 64}" data-core-metadata>d</a>"""
    first, second, third, fourth = files(html)
    assert (first.hashes, first.metadata) == ({"sha256": HASH}, {"sha256": HASH})
    assert (second.hashes, second.metadata) == ({"md5": HASH[:32]}, {})
    assert (third.hashes, third.metadata, third.tag) == ({}, None, "py3-none-any")
    assert (fourth.hashes, fourth.metadata, fourth.tag) == ({}, {}, "sdist")


def test_versions_that_mean_the_same_stand_together() -> None:
    page = read_page(
        b'<a href="demo-1.0.tar.gz"></a><a href="demo-2.0-py3-none-any.whl"></a><a href="demo-1.0.0-py3-none-any.whl"></a>',
        "",
        BASE,
        "demo",
    )
    assert list(page.versions) == ["2.0", "1.0"]
    assert [file.filename for file in files_of(page, 1, None)] == ["demo-1.0.tar.gz", "demo-1.0.0-py3-none-any.whl"]


def test_what_nobody_installs_is_left_out() -> None:
    names = [
        "demo-1.0.egg",
        "demo-1.0.exe",
        "demo-1.0.tar.bz2",
        "demo-1.0-py3-none-any.whl.asc",
        "other-1.0.tar.gz",
        "demo-x.tar.gz",
        "demo-1.0-a-b.whl",
    ]
    page = read_page("".join(f'<a href="{name}">x</a>' for name in names).encode(), "text/html", BASE, "demo")
    assert list(page.versions) == []


def test_an_empty_page_is_a_page() -> None:
    assert files("<html><body></body></html>") == []


@pytest.mark.parametrize("body", [b"", b"nothing", b'<base href="http://[x"><a href="demo-1.0.zip">'])
def test_what_is_no_page(body: bytes) -> None:
    with pytest.raises(PageError):
        files(body)


def test_a_json_page_with_everything() -> None:
    raw = {
        "meta": {"api-version": "1.3"},
        "files": [
            {
                "filename": "demo-1.0-py3-none-any.whl",
                "url": "../demo-1.0-py3-none-any.whl",
                "hashes": {"sha256": HASH, "evil": "x"},
                "size": 5,
                "yanked": "bad",
                "upload-time": "2024-01-01T00:00:00Z",
                "requires-python": ">=3",
                "core-metadata": {"sha256": HASH},
            },
            {"filename": "demo-0.9.tar.gz", "url": "demo-0.9.tar.gz", "yanked": False, "core-metadata": False, "size": -1},
            {"filename": "demo-0.8.tar.gz", "url": "http://[", "hashes": {}},
            {"filename": 5},
            "x",
        ],
    }
    page = read_page(json.dumps(raw).encode(), "application/vnd.pypi.simple.v1+json", BASE, "demo")
    assert list(page.versions) == ["1.0", "0.9", "0.8"]
    (file,) = files_of(page, 0, "origin")
    assert file == File(
        "demo-1.0-py3-none-any.whl",
        "https://host.invalid/simple/demo-1.0-py3-none-any.whl",
        {"sha256": HASH},
        5,
        ">=3",
        "bad",
        "2024-01-01T00:00:00Z",
        "origin",
        {"sha256": HASH},
    )
    (other,) = files_of(page, 1, None)
    assert (other.yanked, other.metadata, other.size) == (None, None, None)
    assert files_of(page, 2, None) == ()


@pytest.mark.parametrize("size", [b'"\xff"', b"1e999"])
def test_a_file_that_cannot_be_decoded_spoils_no_other(size: bytes) -> None:
    names = (b'"filename": "demo-%d.0.tar.gz", "url": "x"' % number for number in (1, 2))
    page = read_page(b'{"files": [{%s}, {%s, "size": %s}]}' % (*names, size), "application/vnd.pypi.simple.v1+json", BASE, "demo")
    assert [len(files_of(page, number, None)) for number in range(2)] == [0, 1]


@pytest.mark.parametrize(
    "scrap", [b"<a ", b'<a href="', b"<a href='x", b"<!--", b'<a href="' + b"/" * 50, b"<a \"'", b"<base ", b'<a href="x-1-', b"&#"]
)
def test_no_page_takes_long(scrap: bytes) -> None:
    began = time.process_time()
    files(b"<html>" + scrap * (400_000 // len(scrap)))
    assert time.process_time() - began < 20  # it takes a second at most; what grows with the square of the page takes minutes


@pytest.mark.parametrize(
    ("filename", "version"),
    [
        ("demo-1.0-py3-none-any.whl", "1.0"),
        ("DeMo-1.0-py3-none-any.whl", "1.0"),
        ("demo-1.0+cu_118-cp311-cp311-linux_x86_64.whl", "1.0+cu-118"),
        ("demo-1.0-2-py3-none-any.whl", "1.0"),
        ("demo-1.0-x-py3-none-any.whl", None),
        ("demo-1.0-post1.tar.gz", "1.0-post1"),
        ("demo-extra-1.0.tar.gz", None),
        ("demo.tar.gz", None),
        ("demo-.tar.gz", None),
        (".whl", None),
        ("", None),
    ],
)
def test_the_version_in_a_filename(filename: str, version: str | None) -> None:
    assert version_in(filename, "demo") == version


@pytest.mark.parametrize("filename", ["some-old.thing-1.0.zip", "some_old_thing-1.0.tar.gz", "Some.Old-Thing-1.0-py3-none-any.whl"])
def test_a_name_may_be_written_in_many_ways(filename: str) -> None:
    assert version_in(filename, "some-old-thing") == ("1.0" if not filename.endswith(".whl") else None)


@pytest.mark.parametrize("kind", ["application/vnd.pypi.simple.v1+json", "text/html"])
def test_a_page_without_end_is_refused_before_its_versions_are_read(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("cudnn_resolve.index.page.MOST_FILES", 3)
    names = [f"demo-{number}.0.tar.gz" for number in range(4)]
    page = json.dumps({"files": [{"filename": name, "url": name, "hashes": {}} for name in names]})
    body = page if kind != "text/html" else "".join(f'<a href="{name}">x</a>' for name in names)
    with pytest.raises(PageError, match="more than 3 files"):
        read_page(body.encode(), kind, BASE, "demo")
