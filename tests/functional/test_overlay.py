"""The tables of a project: named in every answer, and never on the way to root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.cli.main import main
from tests.lock_project import ELSEWHERE, TARGET, Project

_MACHINE = ("--python-version", "3.11", "--driver", "550.54.15", "--gpu", "T4", "--os", "ubuntu22.04", "--glibc", "2.35", "--offline")
_ASKED = ("-f", "torch==2.6.0", *_MACHINE)
_SOURCE = '[source.x]\nwhere = "here"\nread = "2026-01-01"\n'
_REPOSITORY = (
    '[[repository]]\nos = "ubuntu22.04"\nname = "ubuntu2204"\narch = "x86_64"\nurl = "https://mirror.example/"\n'
    f'key = "{"A" * 40}"\nkey_file = "evil.pub"\nsource = ["x"]\n'
)


@pytest.fixture(autouse=True)
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "over" / "apt").mkdir(parents=True)
    (tmp_path / "over" / "apt" / "repository.toml").write_text(_SOURCE + _REPOSITORY)
    (tmp_path / "over" / "trap.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.cudnn-resolve]\nmatrix = ["over"]\n')
    (tmp_path / "log").write_text("nothing to see\n")
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(list(words))
    seen = capsys.readouterr()
    return " ".join(seen.out.replace("    ", "").split())


VERBS = [
    ("plan", *_ASKED),
    ("plan", "-f", "torch==2.6.0", *_MACHINE[2:], "--python-version", "3.6"),
    ("why", "nvidia-cudnn-cu12", *_ASKED),
    ("doctor", "--no-facts", "log"),
    ("matrix", "list"),
    ("matrix", "show", "torch", "2.6.0"),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", VERBS, ids=["plan", "conflict", "why", "doctor", "list", "show"])
def test_an_answer_names_the_tables_of_the_project(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    said = "override the shipped tables for plans made in this folder, because pyproject.toml names it"
    assert said in answer(capsys, *words)
    assert said in answer(capsys, *words, "--format", "json")


def test_a_repository_of_the_project_is_not_the_one_that_root_trusts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "-f", "tensorflow==2.15", *_MACHINE, "--channel", "apt", "--format", "json")
    main([*words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["apt"], found["warnings"]
    assert "mirror.example" not in json.dumps(found["steps"])
    assert "apt/repository.toml" in next(one["message"] for one in found["warnings"] if one["code"] == "overlay")
    main([*words, "--matrix", "over"])
    assert "mirror.example" in json.dumps(json.loads(capsys.readouterr().out)["steps"])


@pytest.mark.slow
def test_a_lock_says_so_when_it_is_made_and_when_it_is_checked(project: Project) -> None:
    (project.folder / "over" / "trap.toml").write_text("")
    (project.folder / "pyproject.toml").write_text('[tool.cudnn-resolve]\nmatrix = ["over"]\n')
    said = "because pyproject.toml names it"
    assert said in project(*TARGET, *ELSEWHERE).stderr
    assert said in project("--check").stdout.replace("\n", " ")
    assert said in project("--check", "--format", "json").stdout
    assert said in project("--format", "json").stdout
