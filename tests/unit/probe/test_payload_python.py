"""The payload that describes an interpreter, called in this one; tests/functional runs it in others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudnn_resolve.probe import payload_python
from cudnn_resolve.probe.payload_python import distributions, egg_requires, headers, import_path, is_name, normalized

WHEEL = """Metadata-Version: 2.1
Name: Nvidia_cuDNN.cu12
Version: 9.1.0.70
Summary: cuDNN
Requires-Dist: nvidia-cublas-cu12
Requires-Dist: numpy (<2,>=1.17) ; extra
    == 'x'
Description: Name: not this
    Requires-Dist: nor this

Name: nor-this
Requires-Dist: nor-this
"""


def install(folder: Path, name: str, text: str | bytes, file: str = "METADATA") -> Path:
    metadata = folder / name
    metadata.mkdir(parents=True)
    (metadata / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return metadata


def found(*folders: Path) -> tuple[list[list[object]], list[list[str]]]:
    problems: list[list[str]] = []
    return distributions([str(folder) for folder in folders], problems), problems


def plain(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def test_a_wheel_is_read_up_to_its_description(tmp_path: Path) -> None:
    metadata = install(tmp_path, "nvidia_cudnn_cu12-9.1.0.70.dist-info", WHEEL)

    rows, problems = found(tmp_path)

    requires = ["nvidia-cublas-cu12", "numpy (<2,>=1.17) ; extra == 'x'"]
    assert rows == [["nvidia-cudnn-cu12", "9.1.0.70", str(tmp_path), str(metadata), requires]]
    assert problems == []


def test_line_ends_of_another_system_are_read(tmp_path: Path) -> None:
    install(tmp_path, "nvidia_cudnn_cu12-9.1.0.70.dist-info", WHEEL.replace("\n", "\r\n"))

    rows, _ = found(tmp_path)

    assert rows[0][4] == ["nvidia-cublas-cu12", "numpy (<2,>=1.17) ; extra == 'x'"]


def test_the_first_on_the_path_counts(tmp_path: Path) -> None:
    install(tmp_path / "a", "numpy-1.26.4.dist-info", plain("numpy", "1.26.4"))
    install(tmp_path / "b", "numpy-2.0.0.dist-info", plain("NumPy", "2.0.0"))
    install(tmp_path / "b", "six-1.16.dist-info", plain("six", "1.16"))

    rows, problems = found(tmp_path / "a", tmp_path / "b")

    assert [row[:2] for row in rows] == [["numpy", "1.26.4"], ["six", "1.16"]]
    assert problems == []


def test_the_one_written_last_counts_of_two_in_one_place(tmp_path: Path) -> None:
    newer = install(tmp_path, "numpy-1.26.4.dist-info", plain("numpy", "1.26.4"))
    older = install(tmp_path, "numpy-2.0.0.dist-info", plain("numpy", "2.0.0"))
    os.utime(older, (1, 1))
    os.utime(newer, (2, 2))

    rows, problems = found(tmp_path)

    assert [row[:2] for row in rows] == [["numpy", "1.26.4"]]
    assert problems[0][0] == f"numpy is installed twice in {tmp_path}"
    assert "1.26.4 and 2.0.0" in problems[0][1]


def test_two_descriptions_of_one_release_are_no_problem(tmp_path: Path) -> None:
    install(tmp_path, "six-1.16.0.dist-info", plain("six", "1.16.0"))
    install(tmp_path, "six-1.16.0.egg-info", plain("six", "1.16.0"), "PKG-INFO")

    rows, problems = found(tmp_path)

    assert [row[:2] for row in rows] == [["six", "1.16.0"]]
    assert problems == []


def test_what_an_interrupted_uninstall_left_is_named_and_does_not_count(tmp_path: Path) -> None:
    install(tmp_path, "~umpy-1.26.4.dist-info", plain("numpy", "1.26.4"))

    rows, problems = found(tmp_path)

    assert rows == []
    assert "interrupted uninstall" in problems[0][1]


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"Name: torch\n", b"Version: 2.6.0\n", b"\n\nName: torch\nVersion: 2.6.0\n"])
def test_broken_metadata_is_named_and_the_directory_tells_the_rest(tmp_path: Path, text: bytes) -> None:
    install(tmp_path, "torch-2.6.0+cu124.dist-info", text)

    rows, problems = found(tmp_path)

    assert rows[0][0] == "torch"
    assert rows[0][1] in ("2.6.0+cu124", "2.6.0")
    assert len(problems) == 1


def test_metadata_that_is_a_directory_or_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch-2.6.0.dist-info/METADATA").mkdir(parents=True)
    (tmp_path / "listed-1.0.dist-info").mkdir()
    (tmp_path / "listed-1.0.dist-info/RECORD").write_text("listed.py,,\n")

    rows, problems = found(tmp_path)

    assert [row[:2] for row in rows] == [["listed", "1.0"], ["torch", "2.6.0"]]
    assert len(problems) == 2


@pytest.mark.parametrize("file", [None, "INSTALLER"])
def test_a_folder_of_metadata_that_says_nothing_is_no_package(tmp_path: Path, file: str | None) -> None:
    (tmp_path / "empty-1.0.dist-info").mkdir()
    if file:
        (tmp_path / "empty-1.0.dist-info" / file).write_text("pip\n")

    rows, problems = found(tmp_path)

    assert rows == []
    assert problems == [[f"metadata in {tmp_path}/empty-1.0.dist-info", "is missing: the folder does not count as a package"]]


@pytest.mark.parametrize("name", ["../../etc", "a b", "", "$(reboot)", "-x", "ü"])
def test_impossible_names_do_not_count(tmp_path: Path, name: str) -> None:
    install(tmp_path, "x-1.dist-info", plain(name, "1"))

    rows, problems = found(tmp_path)

    assert rows == []
    assert len(problems) == 1
    assert not is_name(name)


@pytest.mark.parametrize("version", ["1; rm -rf /", "\x1b[31m1", "1\t2", "x" * 300])
def test_impossible_versions_do_not_count(tmp_path: Path, version: str) -> None:
    install(tmp_path, "x-1.dist-info", plain("x", version))

    assert found(tmp_path)[0] == []


def test_a_head_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_python, "MOST_BYTES", 1 << 18)
    install(tmp_path, "x-1.dist-info", plain("x", "1") + "Requires-Dist: y\n" * 1_000_000)

    (row,), _ = found(tmp_path)

    assert isinstance(row[4], list)
    assert len(row[4]) <= payload_python.MOST_REQUIRES


def test_a_pipe_in_the_place_of_metadata_does_not_stop_us(tmp_path: Path) -> None:
    (tmp_path / "x-1.dist-info").mkdir()
    os.mkfifo(tmp_path / "x-1.dist-info/METADATA")

    assert [row[:2] for row in found(tmp_path)[0]] == [["x", "1"]]


def test_eggs_of_all_kinds_count(tmp_path: Path) -> None:
    egg = install(tmp_path, "one-1.0-py3.8.egg-info", plain("one", "1.0"), "PKG-INFO")
    (egg / "requires.txt").write_text("six\n\n[gpu]\ncupy>=8\n\n[:python_version<'3.8']\ntyping\n\n[x:os_name=='nt']\nwin\n")
    (tmp_path / "two-2.0.egg-info").write_text(plain("two", "2.0"))
    install(tmp_path / "three-3.0-py3.8.egg", "EGG-INFO", plain("three", "3.0"), "PKG-INFO")

    rows, problems = found(tmp_path, tmp_path / "three-3.0-py3.8.egg")

    assert [row[:2] for row in rows] == [["one", "1.0"], ["two", "2.0"], ["three", "3.0"]]
    assert rows[0][4] == [
        "six",
        "cupy>=8 ; extra == 'gpu'",
        "typing ; (python_version<'3.8')",
        "win ; (os_name=='nt') and extra == 'x'",
    ]
    assert problems == []


def test_an_egg_without_requirements_has_none(tmp_path: Path) -> None:
    assert egg_requires(str(tmp_path / "requires.txt")) == []


def test_a_directory_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "gone") == ([], [])


def test_names_are_normalized() -> None:
    assert [normalized(name) for name in ("Foo.Bar", "foo_-_bar", "FOO-BAR")] == ["foo-bar"] * 3


def test_a_continued_line_after_a_field_that_does_not_matter_is_left_out() -> None:
    assert headers("Name: x\nSummary: a\n b\nVersion: 1") == {"name": ["x"], "version": ["1"]}


def test_the_import_path_leaves_out_the_standard_library_and_what_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = os.path.dirname(os.__file__)
    monkeypatch.setattr(sys, "path", ["", home, str(tmp_path), str(tmp_path / "gone"), f"{home}/lib-dynload", str(tmp_path)])

    assert import_path() == [str(tmp_path)]
