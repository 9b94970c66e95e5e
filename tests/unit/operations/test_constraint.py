"""Limits that the environment hands to pip and uv."""

from __future__ import annotations

from pathlib import Path

from cudnn_resolve.operations.request import configured_constraints


def test_limits_are_read_with_who_names_them_and_the_rest_is_told(tmp_path: Path) -> None:
    (tmp_path / "sub@dir").mkdir()
    more = tmp_path / "sub@dir" / "more.txt"
    more.write_text("protobuf<5\n-c more.txt\n-c ../none.txt\n", "utf-8")
    file = tmp_path / "constraint.txt"
    file.write_text(
        "numpy==1.26.4  # as@built\n"
        "scipy==1.11.4 --hash=sha256:00\n"
        "torch \\\n @ file:///opt/torch.whl\n"
        "-c sub@dir/more.txt\n"
        "--extra-index-url https://user:hunter2@host.invalid/simple\n"
        "-c https://user:hunter2@host.invalid/c.txt\n"
        "not a requirement\n",
        "utf-8",
    )
    notes: list[str] = []
    found = list(configured_constraints([(file.as_uri(), "PIP_CONSTRAINT"), ("-", "UV_CONSTRAINT")], notes))

    assert [(one.text, one.constraint) for one in found] == [("numpy==1.26.4", True), ("scipy==1.11.4", True), ("protobuf<5", True)]
    assert found[0].origin == f"{file}:1, named by PIP_CONSTRAINT"
    server = "constraints on a server are not read; download the file, and name it with --constraint"
    assert notes == [
        f"PIP_CONSTRAINT: {file}:3 pins torch to a URL, which is ignored here",
        f"PIP_CONSTRAINT: there is no file {tmp_path / 'sub@dir'}/../none.txt: its constraints are ignored",
        f"PIP_CONSTRAINT: {file}:6: options are ignored here",
        f"PIP_CONSTRAINT: {server}",
        f"PIP_CONSTRAINT: {file}:8 is not a valid requirement",
        f"applied 3 constraints from {file.as_uri()} (PIP_CONSTRAINT)",
        f"UV_CONSTRAINT: {server}",
    ]
