"""Compiled tables that come with the program: used where they are of the very table beside them, passed over everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.host.shippedcopy import ShippedCopies
from cudnn_resolve.host.tables import DirectoryTables
from tests.unit.matrix.toy import WORLD

NAME = "framework/alpha"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in WORLD.items():
        (tmp_path / "world" / f"{name}.toml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "world" / f"{name}.toml").write_text(text)
    return tmp_path / "world"


@pytest.fixture
def copies(source: Path, tmp_path: Path) -> ShippedCopies:
    for name, content in DirectoryTables(source, label="w").copies():
        (tmp_path / "copies" / f"{name}.json").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copies" / f"{name}.json").write_bytes(content)
    return ShippedCopies(str(tmp_path / "copies"))


def test_a_copy_is_the_table(source: Path, copies: ShippedCopies) -> None:
    for name in WORLD:
        assert copies.table(name, str(source / f"{name}.toml")) == DirectoryTables(source, label="w").load(name)
    assert copies.head(NAME, str(source / f"{NAME}.toml")) == DirectoryTables(source, label="w").head(NAME)


def test_tables_with_copies_are_not_read_as_toml(source: Path, copies: ShippedCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.host.tables.decode", lambda _: pytest.fail("a table was read"))
    tables = DirectoryTables(source, label="w", copies=copies)

    assert tables.load(NAME)["head"] == tables.head(NAME)
    assert tables.faults() == []


def test_a_table_that_was_changed_counts_itself(source: Path, copies: ShippedCopies) -> None:
    path = source / f"{NAME}.toml"
    path.write_text(path.read_text("utf-8").replace('title = "Alpha"', 'title = "Alpho"'))

    assert copies.head(NAME, str(path)) is None
    assert DirectoryTables(source, label="w", copies=copies).head(NAME)["title"] == "Alpho"


@pytest.mark.parametrize("damage", [b"", b"[1, 2, 3]\n{}\n{}\n", b"\xff\n", b"[" * 5000])
def test_a_damaged_copy_is_passed_over(source: Path, copies: ShippedCopies, damage: bytes) -> None:
    Path(copies.directory, f"{NAME}.json").write_bytes(damage)

    assert copies.table(NAME, str(source / f"{NAME}.toml")) is None
    assert DirectoryTables(source, label="w", copies=copies).head(NAME)["title"] == "Alpha"


@pytest.mark.parametrize("rows", [b"[]", b"7", b"null", b"{"])
def test_a_copy_with_damaged_rows_is_passed_over(source: Path, copies: ShippedCopies, rows: bytes) -> None:
    path = Path(copies.directory, f"{NAME}.json")
    header, head, _ = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"\n".join((header, head, rows)))

    assert copies.table(NAME, str(source / f"{NAME}.toml")) is None


def test_a_copy_of_another_version_is_passed_over(source: Path, copies: ShippedCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.host.shippedcopy.__version__", "99.0")

    assert copies.table(NAME, str(source / f"{NAME}.toml")) is None
