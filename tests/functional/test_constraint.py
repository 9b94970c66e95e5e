"""Limits that the environment hands to pip and uv, in a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudnn_resolve.cli.main import main

PLAN = ["plan", "--offline", "-f", "torch==2.6.0", "--device", "cpu", "--format", "json"]


@pytest.mark.slow
def test_a_plan_for_this_environment_keeps_them_and_one_for_another_machine_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "constraint.txt").write_text("torch==2.7.0a0+nv25.1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_CONSTRAINT", "constraint.txt")
    assert main(PLAN) == 1
    conflict = json.loads(capsys.readouterr().out)["conflict"]
    assert "constraint.txt:1, named by PIP_CONSTRAINT" in json.dumps(conflict)
    assert main([*PLAN, "--python-version", "3.11", "--platform", "linux_x86_64"]) == 0
