"""Packages named by where they are: addresses, paths, folders of projects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudnn_resolve.errors import IndexUnavailableError, InputError
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.direct import read_direct
from tests.index_server import IndexServer, build_sdist, build_wheel, metadata_text, status


@pytest.fixture
def client(index: IndexServer, tmp_path: Path) -> Iterator[IndexClient]:
    with IndexClient(index.settings(), cache_folder=str(tmp_path / "cache")) as opened:
        yield opened


@pytest.mark.parametrize("form", ["whl", "tar.gz"])
def test_an_address_without_a_hash_is_downloaded_for_one(index: IndexServer, client: IndexClient, form: str) -> None:
    made = index.add_wheel("de-mo", "1.0", requires=["other"]) if form == "whl" else index.add_sdist("de-mo", "1.0", requires=["other"])
    url = f"{index.root}/files/de-mo/{made.filename}"
    found = read_direct(client, url)
    name, offer, metadata = found.name, found.offer, found.metadata
    assert (name, offer.version, metadata.requires, metadata.guessed) == ("de-mo", "1.0", ("other",), None)
    (file,) = offer.files
    assert (file.url, file.hashes, file.size, file.origin) == (url, {"sha256": made.digest}, len(made.body), None)


def test_an_address_with_a_hash_needs_only_parts(index: IndexServer, client: IndexClient) -> None:
    made = index.add_wheel("demo", "1.0", requires=["other"], members={"demo/data": bytes(range(256)) * 4000})
    found = read_direct(client, f"{index.root}/files/demo/{made.filename}#sha256={made.digest}")
    offer, metadata = found.offer, found.metadata
    assert metadata.requires == ("other",)
    assert offer.files[0].hashes == {"sha256": made.digest}
    assert all("range" in one.headers for one in index.asked)


def test_credentials_in_an_address_are_used_and_forgotten(index: IndexServer, client: IndexClient) -> None:
    index.login = ("me", "s3cret")
    made = index.add_wheel("demo", "1.0")
    url = f"{index.root}/files/demo/{made.filename}".replace("//", "//me:s3cret@", 1)
    for reference in (url, f"{url}#sha256={made.digest}"):
        assert "s3cret" not in repr(read_direct(client, reference))
    with pytest.raises(IndexUnavailableError) as caught:
        read_direct(client, url.replace("1.0", "2.0"))
    assert "s3cret" not in str(caught.value)


def test_a_wrong_hash_and_a_missing_file(index: IndexServer, client: IndexClient, tmp_path: Path) -> None:
    made = index.add_sdist("demo", "1.0")
    url = f"{index.root}/files/demo/{made.filename}"
    with pytest.raises(IndexUnavailableError, match=r"its sha256 is .* expected"):
        read_direct(client, f"{url}#sha256={'0' * 64}")
    index.fail("/files/", status(404))
    with pytest.raises(IndexUnavailableError, match="HTTP 404"):
        read_direct(client, url)
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(build_wheel("demo", "1.0", metadata_text("demo", "1.0"), {}))
    with pytest.raises(InputError, match="expected"):
        read_direct(client, f"{path}#sha256={'0' * 64}")
    with pytest.raises(InputError, match="cannot be read"):
        read_direct(client, str(tmp_path / "gone-1.0-py3-none-any.whl"))


@pytest.mark.parametrize("form", ["path", "uri"])
def test_a_file_on_disk(client: IndexClient, tmp_path: Path, form: str) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(build_wheel("demo", "1.0", metadata_text("demo", "1.0", requires=["other"]), {}))
    found = read_direct(client, str(path) if form == "path" else path.as_uri())
    name, offer, metadata = found.name, found.offer, found.metadata
    assert (name, offer.version, metadata.requires) == ("demo", "1.0", ("other",))
    assert offer.files[0].url == path.as_uri()


BAD_HOST = "https://me:s3cret@h]x.invalid/demo-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "reference", ["./demo.txt", "https://host.invalid/demo.exe", "file://elsewhere/demo-1.0.tar.gz", "demo-1.0.egg", BAD_HOST]
)
def test_what_is_no_package(client: IndexClient, reference: str) -> None:
    with pytest.raises(InputError) as refused:
        read_direct(client, reference)
    assert "s3cret" not in str(refused.value)


def test_an_archive_whose_build_may_change_it(client: IndexClient, tmp_path: Path) -> None:
    path = tmp_path / "old-1.0.tar.gz"
    text = b"one\n\n[extra]\ntwo>=2\n\n[:python_version < '3']\nthree\n\n[extra:os_name == 'nt']\nfour @ https://host.invalid/f.whl\n"
    info = metadata_text("old", "1.0", form="2.1")
    path.write_bytes(build_sdist({"old-1.0/PKG-INFO": info, "old-1.0/old.egg-info/requires.txt": text, "old-1.0/setup.py": b"1/0"}))
    metadata = read_direct(client, str(path)).metadata
    assert metadata.guessed
    assert metadata.extras == ("extra",)
    assert metadata.requires == (
        "one",
        'two>=2; extra == "extra"',
        "three; (python_version < '3')",
        "four @ https://host.invalid/f.whl ; (os_name == 'nt') and extra == \"extra\"",
    )


def test_a_project_says_what_it_needs(client: IndexClient, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """[project]
name = "My.App"
version = "0.3"
requires-python = ">=3.10"
dependencies = ["torch>=2", "numpy ; python_version < '3.13'"]
[project.optional-dependencies]
Dev_Tools = ["pytest", "mypy ; os_name == 'posix'"]
""",
        "utf-8",
    )
    found = read_direct(client, str(tmp_path))
    metadata = found.metadata
    assert (found.name, found.offer.version, found.offer.files) == ("my-app", "0.3", ())
    assert (found.url, found.folder) == (tmp_path.as_uri(), str(tmp_path))
    assert metadata.requires_python == ">=3.10"
    assert metadata.extras == ("dev-tools",)
    assert metadata.requires == (
        "torch>=2",
        "numpy ; python_version < '3.13'",
        'pytest ; extra == "dev-tools"',
        "mypy ; (os_name == 'posix') and extra == \"dev-tools\"",
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[project]\nname = "x"\ndynamic = ["dependencies"]\n', "leaves its dependencies to its build"),
        ("[tool.x]\n", "no \\[project\\] table"),
        ("not toml", "is not TOML"),
        (None, "no pyproject.toml"),
    ],
)
def test_a_project_that_says_too_little(client: IndexClient, tmp_path: Path, text: str | None, word: str) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(InputError, match=word):
        read_direct(client, str(tmp_path))
