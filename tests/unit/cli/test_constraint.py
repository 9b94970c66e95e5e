"""Limits that the environment hands to pip and uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.cli.constraint import configured
from cudnn_resolve.errors import InputError


def test_limits_are_read_with_who_names_them_and_addresses_are_told(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("protobuf<5\n", "utf-8")
    file = tmp_path / "constraint.txt"
    file.write_text("numpy==1.26.4  # as@built\ntorch @ file:///opt/torch.whl\n-c more.txt\n", "utf-8")
    notes: list[str] = []
    found = list(configured([(str(file), "PIP_CONSTRAINT"), ("https://index.invalid/c.txt", "UV_CONSTRAINT")], notes))

    assert [(one.text, one.constraint) for one in found] == [("numpy==1.26.4", True), ("protobuf<5", True)]
    assert found[0].origin == f"{file}:1, which PIP_CONSTRAINT names"
    assert [one.partition(" ")[2] for one in notes] == [
        "(PIP_CONSTRAINT) pins torch to an address: such limits do not count here",
        f"limits of {file} count, as for pip (PIP_CONSTRAINT)",
        "names limits on a server, which are not read; fetch the file, and name it with --constraint",
    ]


def test_a_file_that_is_not_there_is_an_error_that_says_who_names_it() -> None:
    with pytest.raises(InputError) as caught:
        list(configured([("/nowhere/c.txt", "/etc/pip.conf")], []))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("/etc/pip.conf names it")
