"""The daily harvest against an index on this machine: new releases are taken in, and no wheel of an old one is read again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harvest_daily import main
from harvest_text import expanded

from tests.elf_writer import write_elf
from tests.index_server import build_wheel, metadata_text
from tests.unit.scripts.loopback_index import LoopbackIndex, serving

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]
TAG = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.fixture
def served() -> Iterator[LoopbackIndex]:
    with serving(LoopbackIndex()) as running:
        yield running


def add(served: LoopbackIndex, version: str, library: str) -> None:
    raw = build_wheel("toy", version, metadata_text("toy", version), {"toy/_C.so": write_elf(needed=("libc10.so", library))}, tag=TAG)
    served.add(f"toy-{version}-{TAG}.whl", data=raw, beside=metadata_text("toy", version).decode())


def table(folder: Path, kind: str) -> dict[str, Any]:
    return tomllib.loads((folder / "out" / kind / "toy.toml").read_text())


def test_what_is_new_is_shown_and_taken_in(tmp_path: Path, served: LoopbackIndex, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harvest_packages.toml").write_text('drop_extras = []\n[[group]]\npackages = ["toy"]\n')
    (tmp_path / "harvest_evidence.toml").write_text('[[group]]\npackages = ["toy"]\n')
    words = ["--index-url", served.url, "--lists", str(tmp_path), "--out", str(tmp_path / "out"), "--cache"]
    add(served, "1.0", "libcudart.so.12")
    assert main([*words, str(tmp_path / "first")]) == 0
    assert main([*words, str(tmp_path / "first"), "--check"]) == 0
    capsys.readouterr()

    add(served, "1.1", "libcudart.so.13")
    asked = len(served.asked)
    assert main([*words, str(tmp_path / "second"), "--check"]) == 1
    assert "toy: 1 new (1.1)" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "second")]) == 0
    assert "toy: 1 new (1.1)" in capsys.readouterr().out
    files = [path for path, _, _ in served.asked[asked:] if ".whl" in path]
    assert {path.rpartition(".")[2] for path in files} == {"whl", "metadata"}
    assert all("1.1" in path for path in files), "with an empty cache, releases that are known stay unread"
    assert [row["version"] for row in expanded(table(tmp_path, "wheel"))["release"]] == ["1.0", "1.1"]
    assert [(row["version"], row["needs"]) for row in table(tmp_path, "evidence")["wheel"]] == [
        (["1.0"], ["libcudart.so.12"]),
        (["1.1"], ["libcudart.so.13"]),
    ]


def test_a_release_with_other_files_than_then_is_read_again(tmp_path: Path, served: LoopbackIndex) -> None:
    (tmp_path / "harvest_packages.toml").write_text('drop_extras = []\n[[group]]\npackages = ["toy"]\n')
    (tmp_path / "harvest_evidence.toml").write_text("group = []\n")
    words = ["--index-url", served.url, "--lists", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    served.add("toy-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", requires=["numpy"])
    served.add("toy-1.1-cp311-cp311-manylinux_2_28_x86_64.whl", requires=["numpy"])
    assert main(words) == 0

    served.add("toy-1.1-cp312-cp312-manylinux_2_28_x86_64.whl", requires=["numpy>=2"])
    assert main(words) == 0
    found = expanded(table(tmp_path, "wheel"))
    entries = {entry["id"]: entry["requires"] for entry in found["metadata"]}
    assert [entries[row["metadata"]] for row in found["release"]] == [["numpy"], ["numpy>=2"]]


def test_what_is_read_is_told(
    tmp_path: Path, served: LoopbackIndex, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harvest_progress.LINE_SECONDS", 0)
    (tmp_path / "harvest_packages.toml").write_text('drop_extras = []\n[[group]]\npackages = ["toy"]\n')
    (tmp_path / "harvest_evidence.toml").write_text('[[group]]\npackages = ["toy"]\n')
    add(served, "1.0", "libcudart.so.12")
    add(served, "1.1", "libcudart.so.12")
    words = ["--index-url", served.url, "--lists", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    assert re.search(r"^harvest: 1 of 2 files, [\d.]+/\w+, \d+ s left$", capsys.readouterr().err, re.MULTILINE)


def test_a_wheel_that_was_too_large_is_read_where_the_limit_is_higher(tmp_path: Path, served: LoopbackIndex) -> None:
    (tmp_path / "harvest_packages.toml").write_text("drop_extras = []\ngroup = []\n")
    add(served, "1.0", "libcudart.so.12")
    words = ["--index-url", served.url, "--lists", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    for limit, is_there in ((0, False), (0, False), (1, True)):
        (tmp_path / "harvest_evidence.toml").write_text(f'[[group]]\npackages = ["toy"]\nlargest_mb = {limit}\n')
        asked = len(served.asked)
        assert main(words) == 0
        assert (tmp_path / "out" / "evidence" / "toy.toml").exists() == is_there
        assert len(served.asked) - asked == (1 if asked and not is_there else 2)  # the page, and the wheel


def test_what_cannot_be_read_stays(tmp_path: Path, served: LoopbackIndex) -> None:
    (tmp_path / "harvest_packages.toml").write_text('drop_extras = []\n[[group]]\npackages = ["toy", "gone"]\n')
    (tmp_path / "harvest_evidence.toml").write_text('[[group]]\npackages = ["gone", "toy"]\n')
    add(served, "1.0", "libcudart.so.12")
    words = ["--index-url", served.url, "--lists", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(words) == 2
    assert table(tmp_path, "wheel")["package"] == table(tmp_path, "evidence")["package"] == "toy"


def test_the_job_runs_commands_that_there_are() -> None:
    text = (ROOT / ".github" / "workflows" / "harvest.yml").read_text()
    assert "python scripts/harvest_daily.py" in text
    assert "cudnn-resolve matrix check --live --sample 60" in text
