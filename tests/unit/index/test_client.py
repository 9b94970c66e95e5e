"""The client against a loopback index: what comes back, what goes out, and what is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.settings import IndexAddress
from cudnn_resolve.requirement.source import File, IndexLocation
from tests.index_server import IndexServer, body, redirect, status

Opener = Callable[..., IndexClient]


@pytest.fixture
def opened(index: IndexServer, tmp_path: Path) -> Iterator[Opener]:
    """Opens clients of the index, which keep their cache in one folder; closes them."""
    clients: list[IndexClient] = []

    def open_it(*, offline: bool = False, **changes: Any) -> IndexClient:
        clients.append(IndexClient(index.settings(**changes), cache_folder=str(tmp_path / "cache"), offline=offline))
        return clients[-1]

    yield open_it
    for client in clients:
        client.close()


def versions(client: IndexClient, name: str, place: IndexLocation | None = None) -> list[str]:
    listing = client.listing(name, place)
    assert listing is not None
    return [offer.version for offer in listing.offers]


def newest(client: IndexClient, name: str) -> File:
    listing = client.listing(name)
    assert listing is not None
    return listing.offers[0].files[0]


@pytest.mark.parametrize("form", ["html", "json", "both"])
def test_a_listing_has_every_release_newest_first(index: IndexServer, opened: Opener, form: str) -> None:
    index.form = form
    for version in ("1.10", "1.9", "2.0rc1", "1.9.post1", "1.0.dev3"):
        index.add_wheel("some-thing", version, requires_python=">=3.9,<4")
    index.add_sdist("some-thing", "1.10")
    client = opened()
    assert versions(client, "some-thing") == ["2.0rc1", "1.10", "1.9.post1", "1.9", "1.0.dev3"]
    listing = client.listing("some-thing")
    assert listing is not None
    assert not listing.only_prereleases
    wheel, archive = listing.offers[1].files
    assert (wheel.filename, archive.filename) == ("some_thing-1.10-py3-none-any.whl", "some_thing-1.10.tar.gz")
    assert wheel.url == f"{index.root}/files/some-thing/some_thing-1.10-py3-none-any.whl"
    assert wheel.hashes == {"sha256": index.files["some-thing"][wheel.filename].digest}
    assert wheel.requires_python == ">=3.9,<4"
    assert wheel.origin == index.url
    if form != "html":
        assert wheel.size == len(index.files["some-thing"][wheel.filename].body)
        assert wheel.uploaded == "2024-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_withdrawn_release_says_why(index: IndexServer, opened: Opener, form: str) -> None:
    index.form = form
    index.add_wheel("demo", "1.0", yanked="broken <on> & off")
    index.add_wheel("demo", "0.9", yanked="")
    client = opened()
    listing = client.listing("demo")
    assert listing is not None
    assert [offer.files[0].yanked for offer in listing.offers] == ["broken <on> & off", ""]


def test_a_package_that_no_index_has_is_an_empty_listing(opened: Opener) -> None:
    assert versions(opened(), "nobody") == []


def test_only_prereleases_are_told(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0a1")
    listing = opened().listing("demo")
    assert listing is not None
    assert listing.only_prereleases


@pytest.mark.parametrize("beside", ["beside", ""])
@pytest.mark.parametrize("first", ["first", ""])
@pytest.mark.parametrize("payload", [0, 3_000_000])
def test_metadata_comes_without_the_wheel(index: IndexServer, opened: Opener, beside: str, first: str, payload: int) -> None:
    index.metadata_beside = bool(beside)
    members = {f"demo/{number}.py": os.urandom(payload // 300) for number in range(300)} if payload else {}
    index.add_wheel(
        "demo",
        "1.0",
        requires=["other>=2", 'more; extra == "x"'],
        extras=["x"],
        requires_python=">=3.9",
        members=members,
        metadata_first=bool(first),
    )
    client = opened()
    found = client.metadata("demo", newest(client, "demo"))
    assert found is not None
    assert found.requires == ("other>=2", 'more; extra == "x"')
    assert found.requires_python == ">=3.9"
    assert found.extras == ("x",)
    assert found.guessed is None
    assert client.received < 60_000
    assert len(index.asked) <= (2 if beside else 4)


def test_metadata_is_kept_for_ever_and_pages_for_as_long_as_the_index_says(index: IndexServer, opened: Opener) -> None:
    index.cache_control = "max-age=600"
    index.add_wheel("demo", "1.0", requires=["other"])
    first = opened()
    first.metadata("demo", newest(first, "demo"))
    asked = len(index.asked)
    second = opened()
    assert second.metadata("demo", newest(second, "demo")) == first.metadata("demo", newest(first, "demo"))
    assert len(index.asked) == asked


def test_a_page_without_a_lifetime_is_asked_for_again_and_validated(index: IndexServer, opened: Opener) -> None:
    index.etags = True
    index.add_wheel("demo", "1.0")
    versions(opened(), "demo")
    assert versions(opened(), "demo") == ["1.0"]
    assert [bool(one.headers.get("if-none-match")) for one in index.asked] == [False, True]
    index.add_wheel("demo", "2.0")
    assert versions(opened(), "demo") == ["2.0", "1.0"]


@pytest.mark.parametrize("control", ["no-store", "no-cache, max-age=600", "max-age=0", "max-age=nonsense"])
def test_a_page_that_may_not_be_reused_is_asked_for_each_time(index: IndexServer, opened: Opener, control: str) -> None:
    index.cache_control = control
    index.add_wheel("demo", "1.0")
    versions(opened(), "demo")
    versions(opened(), "demo")
    assert len(index.asked) == 2


def test_offline_answers_from_the_cache_whatever_its_age(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0", requires=["other"])
    client = opened()
    client.metadata("demo", newest(client, "demo"))
    client.listing("nobody")
    asked = len(index.asked)
    offline = opened(offline=True)
    assert versions(offline, "demo") == ["1.0"]
    assert versions(offline, "nobody") == []
    found = offline.metadata("demo", newest(offline, "demo"))
    assert found is not None
    assert found.requires == ("other",)
    assert offline.listing("never-asked-for") is None
    assert len(index.asked) == asked


def test_requests_is_imported_with_the_first_request_only(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    index.add_wheel("demo", "1.0")
    opened().listing("demo")
    code = f"""
import sys
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.settings import IndexAddress, Settings
settings = Settings(indexes=(IndexAddress(url={index.url!r}, source=""),))
with IndexClient(settings, cache_folder={str(tmp_path / "cache")!r}, offline=True) as client:
    assert client.listing("demo").offers[0].files
assert not {{"requests", "urllib3", "http.client", "zipfile"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_offline_metadata_that_is_not_kept_is_not_known(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    client = opened()
    client.listing("demo")
    offline = opened(offline=True)
    assert offline.metadata("demo", newest(offline, "demo")) is None


def test_offline_the_copy_of_a_file_that_lies_on_this_machine_is_read(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    served = index.add_wheel("demo", "1.0", requires=["other"])
    here = tmp_path / "tree" / "demo"
    here.mkdir(parents=True)
    (here / served.filename).write_bytes(served.body)
    ways = {"indexes": (IndexAddress(url=index.url, source="a"), IndexAddress(url=here.parent.as_uri(), source="b"))}
    assert newest(opened(**ways), "demo").url.startswith("http")
    offline = opened(offline=True, **ways)
    found = offline.metadata("demo", newest(offline, "demo"))
    assert found is not None
    assert found.requires == ("other",)


@pytest.mark.slow
def test_what_is_expected_is_asked_for_once_and_side_by_side(index: IndexServer, opened: Opener) -> None:
    names = [f"demo-{number}" for number in range(12)]
    for name in names:
        index.add_wheel(name, "1.0", requires=["other"])
    index.delay = 0.1
    client = opened()
    began = time.monotonic()
    client.prefetch(names)
    client.prefetch(names)
    for name in names:
        client.prefetch_metadata(name, newest(client, name))
    for name in names:
        assert client.metadata(name, newest(client, name)) is not None
    assert len(index.asked) == 24
    assert time.monotonic() - began < 24 * 0.1


def test_an_error_of_what_was_expected_shows_when_it_is_asked_for(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("good", "1.0")
    index.fail("/simple/bad/", status(500))
    client = opened()
    client.prefetch(["bad", "good"])
    assert versions(client, "good") == ["1.0"]
    with pytest.raises(IndexUnavailableError, match=r"bad.*HTTP 500"):
        client.listing("bad")


def test_a_place_of_the_matrix_is_asked_alone(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("torch", "9.9")
    with IndexServer() as variant:
        variant.add_wheel("torch", "2.6.0+cu124")
        client = opened()
        assert versions(client, "torch", IndexLocation(variant.url, "simple")) == ["2.6.0+cu124"]
        assert index.asked == []
        listing = client.listing("torch", IndexLocation(variant.url, "simple"))
        assert listing is not None
        assert listing.offers[0].files[0].filename == "torch-2.6.0+cu124-py3-none-any.whl"
        assert listing.offers[0].files[0].origin == variant.url


def test_a_place_that_is_a_page_of_links_holds_many_packages(index: IndexServer, opened: Opener) -> None:
    names = [
        "torch-1.0.0%2Bcu92-cp36-cp36m-linux_x86_64.whl",
        "cu100/torchvision-0.2.1-py2.py3-none-any.whl",
        "torch-0.4.1-cp36-cp36m-linux_x86_64.whl",
    ]
    index.others["/whl/torch_stable.html"] = ("text/html", "".join(f'<a href="{one}">{one}</a><br>\n' for one in names).encode())
    place = IndexLocation(f"{index.root}/whl/torch_stable.html", "find-links")
    client = opened()
    assert versions(client, "torch", place) == ["1.0.0+cu92", "0.4.1"]
    assert versions(client, "torchvision", place) == ["0.2.1"]
    assert len(index.asked) == 1
    assert versions(opened(offline=True), "torch", place) == ["1.0.0+cu92", "0.4.1"]


def test_under_pips_rule_all_indexes_count_and_shared_names_are_noted(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    with IndexServer() as other:
        other.add_wheel("demo", "2.0")
        other.add_wheel("demo", "1.0.0")
        both = (IndexAddress(url=index.url, source="a"), IndexAddress(url=other.url, source="b"))
        client = opened(indexes=both)
        assert versions(client, "demo") == ["2.0", "1.0.0"]
        listing = client.listing("demo")
        assert listing is not None
        assert listing.origins == (index.url, other.url)
        assert [file.origin for file in listing.offers[1].files] == [index.url, other.url]


def test_under_uvs_rule_the_first_index_that_has_the_name_is_the_only_one(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("mine", "1.0")
    with IndexServer() as other:
        other.add_wheel("mine", "2.0")
        other.add_wheel("yours", "3.0")
        both = (IndexAddress(url=index.url, source="a"), IndexAddress(url=other.url, source="b"))
        client = opened(indexes=both, rule="uv")
        assert versions(client, "mine") == ["1.0"]
        assert versions(client, "yours") == ["3.0"]
        listing = client.listing("mine")
        assert listing is not None
        assert listing.origins == (index.url,)


def test_settings_leave_files_out_and_say_how_many(index: IndexServer, opened: Opener) -> None:
    index.form = "json"
    index.add_wheel("demo", "1.0", uploaded="2023-05-01T00:00:00Z")
    index.add_sdist("demo", "1.0", uploaded="2023-05-01T00:00:00Z")
    index.add_wheel("demo", "2.0", uploaded="2024-05-01T00:00:00Z")
    listing = opened(exclude_newer="2024-01-01T00:00:00.000000Z", only_binary=frozenset({"demo"})).listing("demo")
    assert listing is not None
    assert [offer.version for offer in listing.offers] == ["1.0"]
    assert [file.tag for file in listing.offers[0].files] == ["py3-none-any"]
    assert listing.left_out == ("1 file uploaded after 2024-01-01T00:00:00", "1 source archive (--only-binary)")


def test_an_index_without_times_has_nothing_old_enough(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    listing = opened(exclude_newer="2024-01-01T00:00:00.000000Z").listing("demo")
    assert listing is not None
    assert listing.offers == []
    assert "without an upload time" in listing.left_out[0]


def test_an_index_that_moved_is_followed(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    index.fail("/simple/old/", redirect("/simple/demo/", 301))
    client = opened()
    assert versions(client, "old") == []
    assert index.paths() == ["/simple/old/", "/simple/demo/"]


def test_links_are_relative_to_where_the_page_really_was(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    index.others["/deep/down/demo/"] = ("text/html", b'<a href="../files/demo-3.0-py3-none-any.whl">x</a>')
    index.fail("/simple/demo/", redirect("/deep/down/demo/"))
    assert newest(opened(), "demo").url == f"{index.root}/deep/down/files/demo-3.0-py3-none-any.whl"


def test_a_page_may_come_packed(index: IndexServer, opened: Opener) -> None:
    index.packs = True
    for number in range(50):
        index.add_wheel("demo", f"1.{number}")
    client = opened()
    assert len(versions(client, "demo")) == 50
    assert client.received < len(index.html_page("demo"))


def test_a_damaged_cache_is_dropped_and_asked_for_again(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    index.cache_control = "max-age=600"
    index.add_wheel("demo", "1.0", requires=["other"])
    client = opened()
    client.metadata("demo", newest(client, "demo"))
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 0xFF
            path.write_bytes(raw)
    again = opened()
    found = again.metadata("demo", newest(again, "demo"))
    assert found is not None
    assert found.requires == ("other",)


def test_no_credentials_reach_what_is_kept_or_said(index: IndexServer, tmp_path: Path) -> None:
    index.login = ("me", "s3cret-word")
    index.add_wheel("demo", "1.0")
    address = index.url.replace("//", "//me:s3cret-word@")
    from cudnn_resolve.index.read_settings import Options, read_settings

    settings = read_settings(Options(index_url=address), {"HOME": str(tmp_path)}, prefix=None)
    with IndexClient(settings, cache_folder=str(tmp_path / "cache")) as client:
        file = newest(client, "demo")
        assert client.metadata("demo", file) is not None
        index.fail("/simple/other/", body(b"\x00\x01", "image/png"))
        with pytest.raises(IndexUnavailableError) as caught:
            client.listing("other")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    said = repr((settings, file, client.notes, str(caught.value), caught.value.__context__, caught.value.__cause__))
    assert b"s3cret" not in kept
    assert "s3cret" not in said


def test_credentials_go_to_no_other_host(index: IndexServer, opened: Opener) -> None:
    from cudnn_resolve.index.address import Login

    with IndexServer() as other:
        other.add_wheel("demo", "1.0")
        index.fail("/simple/demo/", redirect(f"{other.url}/demo/"))
        client = opened(indexes=(IndexAddress(url=index.url, source="", login=Login("me", "secret")),))
        assert versions(client, "demo") == ["1.0"]
        assert index.asked[0].headers["authorization"]
        assert "authorization" not in other.asked[0].headers


def test_netrc_has_the_last_word_for_an_address_without_credentials(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    index.login = ("me", "from-netrc")
    index.add_wheel("demo", "1.0")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password from-netrc\n", "utf-8")
    netrc.chmod(0o600)
    assert versions(opened(netrc=str(netrc)), "demo") == ["1.0"]


def test_missing_credentials_are_told_with_where_they_were_looked_for(index: IndexServer, opened: Opener) -> None:
    index.login = ("me", "x")
    with pytest.raises(IndexUnavailableError, match=r"HTTP 401.*credentials in.*netrc") as caught:
        opened().listing("demo")
    assert caught.value.code == "index-denied"


def test_storage_that_refuses_what_it_does_not_have_counts_as_not_having_it(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("demo", "1.0")
    with IndexServer() as storage:
        storage.fail("/simple/", status(403))
        both = (IndexAddress(url=index.url, source="a"), IndexAddress(url=storage.url, source="b"))
        client = opened(indexes=both)
        assert versions(client, "demo") == ["1.0"]
        assert [note for note in client.notes if storage.url in note and "treated as not having" in note]
        with pytest.raises(IndexUnavailableError, match="HTTP 403"):
            client.listing("other")


def test_a_block_that_was_damaged_on_disk_is_asked_for_again(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    index.cache_control = "max-age=600"
    for number in range(400):
        index.add_wheel("demo", f"1.{number}", members={})
    versions(opened(), "demo")
    path = next(one for one in (tmp_path / "cache").rglob("*") if one.is_file())
    raw = path.read_bytes()
    path.write_bytes(raw[:-60] + bytes(10) + raw[-50:])
    listing = opened().listing("demo")
    assert listing is not None
    assert [offer.files[0].filename for offer in (listing.offers[0], listing.offers[-1])] == [
        "demo-1.399-py3-none-any.whl",
        "demo-1.0-py3-none-any.whl",
    ]
    assert len(index.asked) == 2


def test_a_damaged_block_of_a_page_that_has_not_changed_is_asked_for_again(index: IndexServer, opened: Opener, tmp_path: Path) -> None:
    for number in range(400):
        index.add_wheel("demo", f"1.{number}", members={})
    versions(opened(), "demo")
    path = next(one for one in (tmp_path / "cache").rglob("*") if one.is_file())
    path.write_bytes(path.read_bytes()[:-60] + bytes(10) + path.read_bytes()[-50:])
    listing = opened().listing("demo")

    assert listing is not None
    assert listing.offers[-1].files[0].filename == "demo-1.0-py3-none-any.whl"


def test_a_package_with_an_index_of_its_own_comes_from_there_alone(index: IndexServer, opened: Opener) -> None:
    index.add_wheel("torch", "9.0")
    with IndexServer() as variant:
        variant.add_wheel("torch", "2.6.0")
        client = opened(assigned=(("torch", IndexAddress(url=variant.url, source="")),))
        client.prefetch(["torch"])
        assert versions(client, "torch") == ["2.6.0"]
        assert index.asked == []
