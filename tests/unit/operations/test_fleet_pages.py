"""The snippets of the page on many machines are at least what their languages read."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest
import yaml

from tests.program import ROOT, run

PAGE = (ROOT / "docs/situations/fleet.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("language", "text"), SNIPPETS, ids=lambda value: value.split("\n")[0][:30])
def test_a_snippet_is_read(language: str, text: str) -> None:
    if language == "python":
        ast.parse(text)
    elif language == "yaml":
        found = yaml.safe_load(text)
        assert json.dumps(found)
    elif language == "bash":
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert language == "dockerfile"
        words = {line.split()[0] for line in text.splitlines() if line}
        assert words <= {"FROM", "COPY", "RUN", "ENV"}


def test_its_commands_have_these_options() -> None:
    verbs = re.findall(r"^cudnn-resolve fleet (\w+)", PAGE, re.MULTILINE)
    options = set(re.findall(r"(?<=\s)--?[a-z-]+(?=[\s`])", "\n".join(line for line in PAGE.splitlines() if "cudnn-resolve fleet" in line)))
    text = run("fleet", "--help").stdout

    assert set(verbs) == {"detect", "lock", "apply", "validate", "undo"}
    assert {"--env", "--serial", "--limit", "-i", "-o"} <= options
    assert [one for one in sorted(options) if one not in text] == []


def test_without_the_extra_it_is_said_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ansible_runner", None)
    done = run("fleet", "detect", "-i", "hosts.ini")
    assert done.returncode == 2
    assert "pip install 'cudnn-resolve[fleet]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-i", "nowhere/hosts"), "there is no inventory nowhere/hosts"),
        (("-i", "localhost,", "--limit", "nobody"), "no host was asked of --limit nobody: Could not match"),
    ],
)
def test_an_inventory_that_names_no_host(words: tuple[str, ...], told: str) -> None:
    pytest.importorskip("ansible_runner")
    done = run("fleet", "detect", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {told}"), done.stderr
    assert "hint:" in done.stderr
