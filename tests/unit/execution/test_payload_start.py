"""The start script of a bundle: what it says where apt fails in the middle."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from cudnn_resolve.execution import payload_start

DEB = {"name": "libcudnn8", "version": "8.9.7.29-1+cuda12.2", "file": "debs/libcudnn8.deb"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the programs that are found, where the user is root."""
    (tmp_path / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def program(folder: Path, name: str, code: int) -> None:
    (folder / name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_apt_that_fails_is_told_with_what_shows_its_state(tools: Path) -> None:
    program(tools, "apt-get", 100)
    with pytest.raises(payload_start.RefusedError, match="apt-get install failed; `dpkg --audit` shows what it left"):
        payload_start.install_debs([DEB])


def test_packages_that_cannot_be_held_are_installed_all_the_same(tools: Path) -> None:
    program(tools, "apt-get", 0)
    program(tools, "apt-mark", 1)
    assert payload_start.install_debs([DEB]) == ["the system packages are installed but not held: apt-mark failed"]


def test_a_package_that_is_not_in_the_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_start, "read_sums", dict)
    monkeypatch.setattr(payload_start, "verify", lambda _: None)
    monkeypatch.setattr(payload_start, "choose_lock", lambda *_: ("pylock.toml", {"packages": [], "apart": [], "debs": [DEB]}, "python3"))
    asked = argparse.Namespace(folder=str(tmp_path / "made"), lock=None, python=None)
    with pytest.raises(payload_start.RefusedError, match=r"debs/libcudnn8\.deb is not listed"):
        payload_start.make(asked)
    assert not (tmp_path / "made").exists()
