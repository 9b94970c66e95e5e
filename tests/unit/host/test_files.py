"""Files that the user names: read within a limit, written whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from cudnn_resolve.errors import CudnnResolveError, ExitCode, InputError, WorldError
from cudnn_resolve.host.files import read_bounded, write_atomic


def test_reads_text_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf{\xc3\xa4}")

    assert read_bounded(str(path), 100, "facts file") == "{ä}"


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc")))

    assert read_bounded("-", 100, "facts file") == "abc"


def refused(path: object, limit: int = 100) -> InputError:
    with pytest.raises(InputError) as caught:
        read_bounded(str(path), limit, "facts file")
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_a_missing_file(tmp_path: Path) -> None:
    error = refused(tmp_path / "gone")

    assert error.code == "input-missing"
    assert str(tmp_path / "gone") in error.message


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "input-unreadable"
    assert refused("a\0b").code == "input-unreadable"
    assert refused(tmp_path / ("x" * 300)).code == "input-unreadable"
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file" / "below").code == "input-unreadable"


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it would take all memory

    assert refused(path, 1 << 20).code == "input-too-large"


def test_an_endless_file_is_given_up() -> None:
    assert refused("/dev/zero", 1 << 20).code == "input-too-large"


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x" * 10)

    assert read_bounded(str(path), 10, "facts file") == "x" * 10
    assert refused(path, 9).code == "input-too-large"


def test_a_closed_or_endless_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-").code == "input-unreadable"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 101)))
    assert refused("-").code == "input-too-large"


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ab\xff\xfe")

    error = refused(path)

    assert (error.code, error.context) == ("input-encoding", "byte 2")


def test_writes_a_new_file_with_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"

    write_atomic(str(path), "ä\ud800\n")

    assert path.read_bytes() == "ä\\ud800\n".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert os.listdir(tmp_path) == ["a"]


def test_replaces_a_file_and_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)

    write_atomic(str(link), "new")

    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def fails(path: object, code: str) -> None:
    with pytest.raises(WorldError) as caught:
        write_atomic(str(path), "new")
    assert caught.value.code == code
    assert caught.value.exit_code is ExitCode.WORLD


def test_what_cannot_be_written(tmp_path: Path) -> None:
    fails(tmp_path, "output-directory")
    fails(tmp_path / "gone" / "a", "output-missing")
    fails("/dev/full", "output-unwritable")
    fails("a\0b", "output-unwritable")
    fails(tmp_path / ("x" * 300), "output-unwritable")


def test_a_protected_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a mode would not stop root, which may run the tests

    fails(path, "output-unwritable")

    assert path.read_text() == "old"


def test_a_failure_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(CudnnResolveError, match="No space left"):
        write_atomic(str(path), "new")

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_writes_to_a_device() -> None:
    write_atomic("/dev/null", "x")

    assert Path("/dev/null").is_char_device()
