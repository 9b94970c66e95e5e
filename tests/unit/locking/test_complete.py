"""Sizes and hashes that an index does not give, and locks that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.index.cache import Cache
from cudnn_resolve.index.fetch_error import FetchError
from cudnn_resolve.index.metadata_cache import MetadataCache
from cudnn_resolve.index.session import Answer as Reply
from cudnn_resolve.locking.merge import Answer, incomplete_files, with_file_details
from cudnn_resolve.requirement.source import File, Offer
from tests.lock_maker import changed, lock_of, pinned, with_packages

URL = "https://h.example/a-1-py3-none-any.whl"


class Server:
    """Answers to requests for the head of a file."""

    def __init__(self, answer: Reply | FetchError) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    def ask(self, url: str, *, limit: int, method: str) -> Reply:
        assert limit < 1 << 20
        self.asked.append((method, url))
        if isinstance(self._answer, FetchError):
            raise self._answer
        return self._answer


def never(what: str) -> Any:
    """Nothing is to be noted."""
    pytest.fail(what)


def asked(file: File, answer: Reply | FetchError, *, offline: bool = False, cache: str | None = None) -> tuple[File, Server]:
    server: Any = Server(answer)
    statements = MetadataCache(lambda: server, Cache(cache), never, offline=offline)
    return statements.completed(file), server


def reply(length: str, status: int = 200, encoding: str = "identity") -> Reply:
    return Reply(status, {"Content-Length": length, "Content-Encoding": encoding}, b"", URL)


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (reply("1234"), 1234),
        (reply("1234", 404), None),
        (reply("-1"), None),
        (reply("9" * 30), None),
        (reply("1234", encoding="gzip"), None),
        (Reply(200, {}, b"", URL), None),
        (FetchError("it does not answer"), None),
    ],
)
def test_a_server_is_asked_for_the_size_and_believed_where_it_makes_sense(answer: Reply | FetchError, size: int | None) -> None:
    found, server = asked(File("a-1-py3-none-any.whl", URL, {}), answer)

    assert found.size == size
    assert server.asked == [("HEAD", URL)]


def test_nobody_is_asked_offline_or_where_the_size_is_known() -> None:
    file = File("a-1-py3-none-any.whl", URL, {})
    for one, offline in ((file, True), (replace(file, size=5), False)):
        found, server = asked(one, reply("1234"), offline=offline)
        assert found == one
        assert not server.asked


def test_a_size_is_asked_for_once(tmp_path: Path) -> None:
    proven = File("a-1-py3-none-any.whl", URL, {"sha256": "a" * 64})
    for file, offline, count in (
        (proven, False, 1),
        (proven, True, 0),
        (replace(proven, hashes={}), False, 1),  # another file, for all that is known
    ):
        found, server = asked(file, reply("1234"), offline=offline, cache=str(tmp_path))
        assert (found.size, len(server.asked)) == (1234, count)
    other, _ = asked(replace(proven, hashes={"sha256": "b" * 64}), reply("5"), offline=True, cache=str(tmp_path))
    assert other.size is None


def test_a_file_on_this_machine_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    path.write_bytes(b"abc")
    found, _ = asked(File(path.name, path.as_uri(), {}), reply("0"))
    missing, _ = asked(File(path.name, path.as_uri() + "x", {}), reply("0"))

    assert found.size == 3
    assert found.hashes == {"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    assert not missing.hashes


def without_sizes(answer: Answer) -> Answer:
    """The answer of an index that gives no sizes."""
    out = []
    for pin in answer.resolution.pip:
        assert pin.offer is not None
        files = tuple(replace(file, size=None) for file in pin.offer.files)
        chosen = next(one for one, file in zip(files, pin.offer.files, strict=True) if file is pin.file)
        out.append(replace(pin, offer=Offer(version=pin.offer.version, files=files), file=chosen))
    return replace(answer, resolution=replace(answer.resolution, pip=tuple(out)))


def test_only_files_that_the_lock_will_hold_are_asked_for_and_those_of_the_old_lock_are_not() -> None:
    wheels = "cp311-cp311-manylinux_2_17_x86_64 cp312-cp312-manylinux_2_17_x86_64 sdist"
    whole = pinned(f"app==1.0 {wheels}", "lib==1.0")
    bare = without_sizes(whole)

    known, lacking = incomplete_files([bare], None)
    assert not known
    assert [file.filename for file in lacking] == ["app-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", "lib-1.0-py3-none-any.whl"]
    known, lacking = incomplete_files([bare], lock_of(whole))
    assert not lacking
    assert lock_of(*with_file_details([bare], known)) == lock_of(whole)
    assert incomplete_files([whole], None) == ({}, [])


def test_a_size_of_another_file_of_the_same_name_does_not_count() -> None:
    whole = pinned("lib==1.0")
    old = lock_of(whole)
    wheel = changed((old.packages[0].wheels or ())[0], hashes={"sha256": "0" * 64})
    _, lacking = incomplete_files([without_sizes(whole)], with_packages(old, changed(old.packages[0], wheels=[wheel])))

    assert len(lacking) == 1
