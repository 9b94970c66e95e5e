from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.port import CommandResult, is_dir, is_file, which


@pytest.fixture
def below(tmp_path: Path) -> LinuxHost:
    """A machine whose root is a directory of the test."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/name").write_text("inside\n")
    (tmp_path / "usr/bin").mkdir(parents=True)
    tool = tmp_path / "usr/bin/tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "bin").symlink_to("/usr/bin")
    (tmp_path / "link").symlink_to("/etc/name")
    (tmp_path / "up").symlink_to("../../../../etc/name")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("/not/there")
    return LinuxHost(str(tmp_path), environ={"PATH": "/bin"}, commands={("tool", "-v"): CommandResult(returncode=0, stdout="1\n")})


def test_files_are_those_below_the_root(below: LinuxHost) -> None:
    assert below.read_text("/etc/name") == "inside\n"
    assert below.read_bytes("/etc/name", 2, 3) == b"sid"
    assert below.list_dir("/etc") == ("name",)


@pytest.mark.parametrize("link", ["/link", "/up"])
def test_no_link_leads_out_of_the_root(below: LinuxHost, link: str) -> None:
    assert below.read_text(link) == "inside\n"
    assert below.realpath(link) == "/etc/name"


@pytest.mark.parametrize("path", ["/loop", "/nowhere", "/etc", "/none", "/etc/name/x", "bad\0"])
def test_what_cannot_be_read_is_none(below: LinuxHost, path: str) -> None:
    assert below.read_text(path) is None


def test_what_cannot_be_listed_is_empty(below: LinuxHost) -> None:
    assert below.list_dir("/etc/name") == ()
    assert below.list_dir("/none") == ()


def test_a_path_says_what_is_there(below: LinuxHost) -> None:
    assert is_file(below, "/link")
    assert is_dir(below, "/bin")
    assert not is_file(below, "/bin")
    assert below.stat("/nowhere") is None
    found = below.stat("/etc/name")
    assert found is not None
    assert (found.size, found.executable) == (7, False)


def test_programs_are_found_on_the_path_of_that_machine(below: LinuxHost) -> None:
    assert which(below, "tool") == "/bin/tool"
    assert which(below, "/usr/bin/tool") == "/usr/bin/tool"
    assert which(below, "name") is None
    assert which(below, "/etc/name") is None


def test_nothing_is_executed_below_another_root(below: LinuxHost) -> None:
    assert below.run(["tool", "-v"], timeout_seconds=1).stdout == "1\n"
    assert below.run([sys.executable, "-c", ""], timeout_seconds=1).missing


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
