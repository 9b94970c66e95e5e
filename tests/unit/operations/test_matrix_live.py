"""Rows of the tables against an index on the loopback interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.host.tables import DirectoryTables
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.matrix import LiveReport
from cudnn_resolve.operations.matrix_live import compare
from tests.elf_writer import write_elf
from tests.index_server import IndexServer, status
from tests.listening import Heard

TABLE = """
origin = "harvested"
script = "scripts/harvest.py"
read = 2024-01-01
package = "demo"
release = [{version = "1.0", requires_python = ">=3.8", tags = ["cp311-cp311-manylinux_2_28_x86_64"], metadata = 1}]
[[metadata]]
id = 1
requires = ["numpy>=2", 'colorama; extra == "shell"']
"""
EVIDENCE = """
origin = "harvested"
script = "scripts/harvest_evidence.py"
read = 2024-01-01
package = "demo"
wheel = [{version = ["1.0"], arch = ["x86_64"], needs = ["libcudart.so.12"], frameworks = ["torch"]}]
"""
LIBRARY = {"demo/_C.so": write_elf(needed=("libc10.so", "libcudart.so.12"))}
TAG = "cp311-cp311-manylinux_2_28_x86_64"


def report(folder: Path, index: IndexServer, **tables: str) -> LiveReport:
    for kind, text in tables.items():
        (folder / kind).mkdir()
        (folder / kind / "demo.toml").write_text(text)
    with IndexClient(index.settings()) as client:
        return compare(Book(DirectoryTables(folder, label="matrices")), client, 1, "a day")


def test_a_row_that_is_as_the_index_says(tmp_path: Path, index: IndexServer) -> None:
    index.add_wheel("demo", "1.0", tag=TAG, requires=["NumPy >=2", "winlib; sys_platform == 'win32'"], requires_python=">=3.8")
    assert report(tmp_path, index, wheel=TABLE) == LiveReport(rows=1, faults=(), unread=())


def test_rows_are_told_with_rate_and_time_left(tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.host.clock.seconds", iter((10.0, 10.0, 12.0)).__next__)
    index.add_wheel("demo", "1.0", tag=TAG, requires=["numpy>=2"])
    heard = Heard()
    more = TABLE.replace("release = [", "release = [" + "".join(f'{{version = "{one}", tags = ["sdist"]}}, ' for one in ("0.8", "0.9")))
    (tmp_path / "wheel").mkdir()
    (tmp_path / "wheel/demo.toml").write_text(more)

    with IndexClient(index.settings()) as client:
        compare(Book(DirectoryTables(tmp_path, label="matrices")), client, 2, "a day", heard)

    assert [line.partition(";")[0] for line in heard.lines] == ["0 of 2 rows", "1 of 2 rows, 0.5 a second, 0:02 left"]


@pytest.mark.parametrize(
    ("served", "said"),
    [
        ({"requires": ["numpy>=2"], "yanked": "broken", "tag": TAG}, "the index has withdrawn it"),
        ({"requires": ["numpy>=2"], "tag": "cp312-cp312-manylinux_2_28_x86_64"}, "does not have its wheel cp311-cp311-x86_64"),
        ({"requires": ["numpy>=2"], "tag": "cp312-cp312-manylinux_2_28_x86_64"}, "a wheel that is not in the row, cp312-cp312-x86_64"),
        ({"requires": ["numpy>=1"], "tag": TAG}, "the row requires numpy>=2"),
        ({"requires": ["numpy>=2", "pandas"], "tag": TAG}, "its metadata requires pandas"),
        ({"requires": ["numpy>=2"], "tag": TAG, "requires_python": ">=3.11"}, "Requires-Python is >=3.8 in the row, >=3.11 on the index"),
    ],
)
def test_what_the_index_says_otherwise(tmp_path: Path, index: IndexServer, served: dict[str, Any], said: str) -> None:
    index.add_wheel("demo", "1.0", **{"requires_python": ">=3.8", **served})
    found = report(tmp_path, index, wheel=TABLE)
    assert any(
        said in fault.message and "demo 1.0" in fault.message and fault.file.endswith("wheel/demo.toml") for fault in found.faults
    ), found


def test_a_release_that_went_and_a_package_that_nobody_serves(tmp_path: Path, index: IndexServer) -> None:
    assert "does not have the package" in report(tmp_path, index, wheel=TABLE).faults[0].message
    index.add_wheel("demo", "2.0")
    (tmp_path / "later").mkdir()
    assert "does not have the release" in report(tmp_path / "later", index, wheel=TABLE).faults[0].message


def test_an_index_that_does_not_answer_is_no_fault_of_the_tables(tmp_path: Path, index: IndexServer) -> None:
    index.fail("/simple/demo/", status(500))
    found = report(tmp_path, index, wheel=TABLE)
    assert (found.rows, found.faults) == (0, ())
    assert found.unread


def test_evidence_is_read_again(tmp_path: Path, index: IndexServer) -> None:
    index.add_wheel("demo", "1.0", tag=TAG, members=LIBRARY)
    assert report(tmp_path, index, evidence=EVIDENCE) == LiveReport(rows=1, faults=(), unread=())
    (tmp_path / "later").mkdir()
    other = report(tmp_path / "later", index, evidence=EVIDENCE.replace("so.12", "so.13"))
    assert other.faults[0].message.endswith("needs of x86_64 is ['libcudart.so.12'] in the wheel, ['libcudart.so.13'] in the row")
