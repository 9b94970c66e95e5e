from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import is_dir, is_file, which


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a program, and links that lead somewhere, nowhere and to themselves."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/name").write_text("inside\n")
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "link").symlink_to("etc/name")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("/not/there")
    return tmp_path


def test_files_are_read_and_listed(folder: Path) -> None:
    host = LinuxHost()

    assert host.read_text(f"{folder}/link") == "inside\n"
    assert host.read_bytes(f"{folder}/etc/name", 2, 3) == b"sid"
    assert host.list_dir(f"{folder}/etc") == ("name",)


@pytest.mark.parametrize("path", ["/loop", "/nowhere", "/etc", "/none", "/etc/name/x", "bad\0"])
def test_what_cannot_be_read_is_none(folder: Path, path: str) -> None:
    assert LinuxHost().read_text(f"{folder}{path}") is None


def test_what_cannot_be_listed_is_empty(folder: Path) -> None:
    assert LinuxHost().list_dir(f"{folder}/etc/name") == ()
    assert LinuxHost().list_dir(f"{folder}/none") == ()


def test_a_path_says_what_is_there(folder: Path) -> None:
    host = LinuxHost()

    assert is_file(host, f"{folder}/link")
    assert is_dir(host, f"{folder}/bin")
    assert not is_file(host, f"{folder}/bin")
    assert host.stat(f"{folder}/nowhere") is None
    found = host.stat(f"{folder}/etc/name")
    assert found is not None
    assert (found.size, found.executable) == (7, False)


def test_programs_are_found_on_the_path_of_that_machine(folder: Path) -> None:
    host = LinuxHost(environ={"PATH": f"{folder}/bin:{folder}/etc"})

    assert which(host, "tool") == f"{folder}/bin/tool"
    assert which(host, f"{folder}/bin/tool") == f"{folder}/bin/tool"
    assert which(host, "name") is None
    assert which(host, f"{folder}/etc/name") is None


def test_a_pipe_in_the_place_of_a_file_does_not_stop_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert LinuxHost().read_text(str(tmp_path / "pipe")) is None


def test_the_kernels_files_are_read_whole() -> None:
    text = LinuxHost().read_text("/proc/self/status")

    assert text is not None
    assert "\nUid:\t" in text


def test_text_is_cut_and_bad_bytes_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xff" + b"x" * 100)

    assert LinuxHost().read_text(str(file), 5) == "\ufffdxxxx"


def test_the_real_machine_runs_programs_in_the_plain_locale() -> None:
    host = LinuxHost(environ={"PATH": os.environ["PATH"], "A": "1", "LC_ALL": "de_DE"})

    result = host.run([sys.executable, "-c", "import os; print(os.environ['A'], os.environ['LC_ALL'])"], timeout_seconds=20)

    assert result.stdout == "1 C\n"
    assert host.environ["LC_ALL"] == "de_DE"
    assert host.python == sys.executable


def test_links_are_resolved_on_the_real_machine(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "b").symlink_to("a")

    assert LinuxHost().realpath(str(tmp_path / "b")) == os.path.realpath(tmp_path / "a")
