"""`matrix` as its users run it, on the shipped tables and on overlays of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working directory without a project."""
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    return main(["matrix", *words])


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(*words) == 0
    return capsys.readouterr().out


def value(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text(capsys, *words, "--format", "json"))
    assert found["schema"] == "cudnn-resolve/matrix/1"
    return found


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(*words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, "list")
    for name in ("tensorflow", "torch", "jax", "onnxruntime", "ctranslate2", "cupy", "paddlepaddle", "mxnet", "cudnn", "driver"):
        assert name in shown
    found = value(capsys, "list")
    tensorflow = next(one for one in found["frameworks"] if one["name"] == "tensorflow")
    assert tensorflow["builds"] > 100
    assert "tensorflow-gpu" in tensorflow["packages"]
    assert found["version"] in shown


def test_show_answers_what_people_look_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    shown = text(capsys, "show", "tensorflow")
    line = next(line for line in shown.splitlines() if line.strip().startswith("2.15.0 - 2.15.1"))
    assert "  ".join(line.split()[3:]) == "tensorflow  3.9-3.11  12.2  8.9  525.60  535.54  5.0-8.0+PTX  extra  and-cuda"


def test_show_one_release(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, "show", "tensorflow", "2.15.1")
    for word in (
        "525.60.13 or newer; strict: 535.54.03",
        "nvidia-cudnn-cu12==8.9.4.25",
        "sm_75",
        "keras>=2.15.0, <2.16",
        "Sources",
        "read 20",
    ):
        assert word in shown or word.replace("keras>=2.15.0, <2.16", "keras<2.16, >=2.15.0") in shown, word
    found = value(capsys, "show", "tensorflow", "2.15.1")
    assert {one["version"] for one in found["builds"]} == {"2.15.1"}
    gpu = next(one for one in found["builds"] if one["variant"] == "gpu")
    assert (gpu["cuda_built"], gpu["cudnn_built"], gpu["extra"], gpu["delivery"]) == ("12.2", "8.9", "and-cuda", "wheel")
    assert gpu["driver_min"] == {"minor": "525.60.13", "strict": "535.54.03"}
    assert gpu["pythons"] == ["3.9", "3.10", "3.11"]
    assert found["sources"][gpu["source"][0]]["where"]


@pytest.mark.parametrize("which", ["2.6", "2.6.0", "==2.6.*", ">=2.6,<2.7"])
def test_show_a_version_however_it_is_written(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = value(capsys, "show", "torch", which)
    assert {one["version"] for one in found["builds"]} == {"2.6.0"}
    indexes = {one["variant"]: one["index"] for one in found["builds"]}
    assert indexes["cu118"] == "pytorch-cu118"
    assert all(one["companions"].get("torchvision") == "0.21.0" for one in found["builds"])


@pytest.mark.parametrize("width", ["60", "80", "100", "160"])
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "torch"),
        ("show", "tensorflow", "2.15"),
        ("show", "cudnn"),
        ("show", "cuda", "12"),
        ("show", "driver", "535"),
        ("show", "gpu"),
    ],
)
def test_no_line_is_wider_than_the_terminal(
    words: tuple[str, ...], width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    shown = text(capsys, *words).splitlines()
    assert [
        line for line in shown if len(line) > int(width) and len(line.lstrip(" -").split()) > 1
    ] == []  # one long path or address stays whole


def test_show_cudnn_cuda_driver_and_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert {one["wheel"] for one in value(capsys, "show", "cudnn", "9.3")["builds"]} == {"nvidia-cudnn-cu11", "nvidia-cudnn-cu12"}
    assert "libcudnn9-cuda-12=9.3.0.75-1" in text(capsys, "show", "cudnn", "9.3")
    assert len(value(capsys, "show", "cudnn")["builds"]) > 200
    found = value(capsys, "show", "cuda", "12.4")
    assert [one["cuda"] for one in found["releases"]] == ["12.4.0", "12.4.1"]
    assert found["floors"][0]["first"] == "525.60.13"
    assert "libcublas.so.12" in text(capsys, "show", "cuda", "12.4")
    shown = text(capsys, "show", "driver", "535.104.05")
    assert "CUDA 12.2 and older" in shown
    assert "cuda-compat-13-0" in shown
    assert "R550" in text(capsys, "show", "driver")
    assert value(capsys, "show", "driver", "R535")["branches"][0]["cuda"] == "12.2"
    shown = text(capsys, "show", "gpu", "RTX 4090")
    assert "8.9" in shown
    assert "R520+" in shown
    assert value(capsys, "show", "gpu", "sm_70")["architectures"][0]["name"] == "Volta"
    assert "Tesla T4" in text(capsys, "show", "gpu", "7.5")


def test_figures_that_nothing_confirms_are_told_as_such(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    for name, board, confidence in (("B200", "NVIDIA B200", "memory"), ("T4", "Tesla T4", None)):
        (peak,) = value(capsys, "show", "gpu", name)["peaks"]
        assert (peak["name"], peak["confidence"]) == (board, confidence)
        assert f"TFLOP/s ({board}{', from memory' if confidence else ''})\n" in text(capsys, "show", "gpu", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show",), "matrix show needs a name"),
        (("show", "torhc"), "did you mean torch?"),
        (("show", "zzz"), "the names are"),
        (("show", "torch", "9.9"), "no release of torch is 9.9"),
        (("show", "torch", "latest"), "'latest' is neither a version nor a version specifier"),
        (("show", "cudnn", "12"), "the matrix knows no cuDNN 12"),
        (("show", "cuda", "x"), "neither a version"),
        (("show", "driver", "new"), "'new' is not a driver version"),
        (("show", "gpu", "RTX 4091"), "did you mean NVIDIA GeForce RTX 4090"),
        (("show", "gpu", "sm_99"), "no compute capability 9.9"),
        (("list", "torch"), "matrix list takes no name"),
        (("shwo", "torch"), "cannot be 'shwo'"),
        (("list", "--format", "yaml"), "yaml"),
        (("list", "--matrix", "/nowhere"), "/nowhere: is not a readable directory"),
    ],
)
def test_what_cannot_be_answered(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in error(capsys, *words)


def test_hostile_words_stay_words(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("\x1b[31m", "x" * 5000, "\udcff", "../../etc", "%s{0}"):
        message = error(capsys, "show", word)
        assert "\x1b[31m" not in message
        assert "internal" not in message
        assert "internal" not in error(capsys, "show", "torch", word)
        assert "internal" not in error(capsys, "show", "gpu", word)


@pytest.mark.slow
def test_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert text(capsys, "check") == "matrices: all rows are well-formed and all rules hold\n"
    monkeypatch.setattr("cudnn_resolve.host.tables.check_tables", lambda *_: ())  # once is enough: it takes seconds
    assert value(capsys, "check") == {"schema": "cudnn-resolve/matrix/1", "status": "ok", "faults": []}


@pytest.mark.slow
def test_check_names_every_fault_of_an_overlay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "over" / "cudnn").mkdir(parents=True)
    (tmp_path / "over" / "cudnn" / "release.toml").write_text('[[build]]\nversion = "9.x"\ncuda_major = 12\nsoname = 9\nwheeel = "x"\n')
    (tmp_path / "over" / "index.toml").write_text("index = [")
    assert run("check", "--matrix", "over") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("over/index.toml: is not TOML")
    assert lines[1] == "over/cudnn/release.toml: build[0].version: '9.x' is not a cuDNN version such as 9.3.0.75"
    assert lines[2] == "over/cudnn/release.toml: build[0].wheeel: is not a column; did you mean wheel?"
    assert lines[3] == "3 faults"
    assert run("check", "--matrix", "over", "--format", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "faulty"
    assert found["faults"][1] == {
        "file": "over/cudnn/release.toml",
        "place": "build[0].version",
        "message": "'9.x' is not a cuDNN version such as 9.3.0.75",
    }
    message = error(capsys, "show", "torch", "--matrix", "over")
    assert "3 faults in the tables of over" in message
    assert "build[0].wheeel" in message


@pytest.mark.slow
def test_an_overlay_is_seen_in_every_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "over" / "framework").mkdir(parents=True)
    (tmp_path / "over" / "framework" / "house.toml").write_text(
        '[framework]\nname = "house"\ntitle = "House"\npackages = ["house-ai"]\n'
        '[[build]]\nversion = "1.0"\nvariant = "gpu"\ncuda = "12.4"\ncudnn = "9.1"\ndelivery = "system"\nrequires = ["numpy<2"]\n'
    )
    assert "House" in text(capsys, "list", "--matrix", "over")
    assert "12.4" in text(capsys, "show", "house-ai", "--matrix", "over")
    (tmp_path / "pyproject.toml").write_text('[tool.cudnn-resolve]\nmatrix = ["over"]\n')
    assert value(capsys, "show", "house")["builds"][0]["requires"] == ["numpy<2"]
    assert "over1" not in text(capsys, "show", "house", "1")
    assert value(capsys, "list")["overlays"] == value(capsys, "show", "house")["overlays"]
    for words in (("list",), ("show", "house"), ("show", "cudnn", "9.3")):
        assert "pyproject.toml names it" in text(capsys, *words).replace("\n  ", " ").replace("\n", " ")


def test_output_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("show", "gpu", "T4", "-o", "gpu.txt") == 0
    assert capsys.readouterr().out == ""
    assert "Tesla T4" in (tmp_path / "gpu.txt").read_text()


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "cudnn-resolve matrix show torch 2.6" in shown


def test_a_driver_says_which_cuda_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "CUDA 12.4 and older" in text(capsys, "show", "driver", "550")
