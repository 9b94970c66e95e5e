"""Results and messages: where they go, and who hears them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from cudnn_resolve import api
from cudnn_resolve.cli import apply, matrix
from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.printing import emit, say, style_of, width_of
from cudnn_resolve.errors import WorldError
from cudnn_resolve.operations.matrix import LiveReport, MatrixCheckResult
from cudnn_resolve.report.text import UNBROKEN


def test_a_result_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    emit("x\n", Output())
    emit("y\n", Output(output="-"))

    assert capsys.readouterr() == ("x\ny\n", "")


def test_a_result_goes_to_the_file_that_was_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out"

    emit("x\n", Output(output=str(path)))
    assert path.read_text() == "x\n"
    assert capsys.readouterr() == ("", f"wrote {path}\n")

    emit("y\n", Output(output=str(path), quiet=1))
    assert path.read_text() == "y\n"
    assert capsys.readouterr() == ("", "")


def test_both_parts_of_a_check_of_the_tables_go_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = MatrixCheckResult(faults=(), tables=("matrices",), live=LiveReport(rows=3, faults=(), unread=()))
    monkeypatch.setattr(api, "check_matrix", lambda *_: checked)
    parser = Parser(prog="x", description="")
    matrix.add_arguments(parser)

    assert matrix.run(parser.parse(["check", "--live", "-o", str(tmp_path / "out")])) == 0
    assert (tmp_path / "out").read_text().splitlines() == [
        "matrices: all rows are well-formed and all rules hold",
        "3 rows compared with the index: all match",
    ]


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="x", description="")
    apply.add_arguments(parser)
    return parser.parse(words)


def test_a_closed_standard_output_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    with pytest.raises(WorldError, match="closed"):
        emit("x", Output())


@pytest.mark.parametrize("name", ["", "missing/result.json"])
def test_apply_does_nothing_whose_result_has_no_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(api, "apply", never)
    with pytest.raises(WorldError) as refused:
        apply.run(parsed("-f", "torch", "-o", str(tmp_path / name)))
    assert refused.value.code == "output-unwritable"
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(WorldError, match="closed"):
        apply.run(parsed("-f", "torch"))


@pytest.mark.parametrize(("options", "heard"), [(Output(), "a\\x1bb\n"), (Output(quiet=1), ""), (Output(verbose=1), "a\\x1bb\n")])
def test_messages_are_heard_by_who_wants_them(options: Output, heard: str, capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1bb", options)

    assert capsys.readouterr() == ("", heard)


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert style_of(Output()).color
    assert not style_of(Output(color=False)).color
    assert not style_of(Output(output="f")).color
    monkeypatch.setenv("TERM", "dumb")
    assert not style_of(Output()).color
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not style_of(Output()).color


def test_no_colours_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")

    assert not style_of(Output()).color


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("10", 60), ("", UNBROKEN), ("x", 100), ("9" * 50, 100)])
def test_the_width_is_what_the_user_says(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    assert width_of(Output()) == width
    assert width_of(Output(output="f")) == UNBROKEN


def test_a_message_gives_no_command_to_a_runner_of_github(capsys: pytest.CaptureFixture[str]) -> None:
    say("bad:\n::error::x\n  ::set-output name=a::b\n::1 is an address, torch::cuda a name", Output())

    said = capsys.readouterr().err
    assert said == "bad:\n\\x3a:error::x\n  \\x3a:set-output name=a::b\n::1 is an address, torch::cuda a name\n"
