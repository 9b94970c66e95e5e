"""The setup cells of docs/notebooks.md, each planned for a machine of recorded facts: what they ask for can be had there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.program import ROOT, run

TEXT = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
CELLS = re.findall(r"<!-- place: ([^>]+) -->\n```python\n(.*?)```", TEXT, re.DOTALL)
OPTIONS = ("env", "kernel", "device")


def asked(cell: str) -> tuple[list[str], dict[str, Any]]:
    """The targets and keywords of the cell's `apply`."""
    source = "\n".join(line for line in cell.splitlines() if not line.startswith("%"))
    (call,) = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "cudnn_resolve.apply"
    )
    (targets,) = (ast.literal_eval(one) for one in call.args)
    return [targets] if isinstance(targets, str) else targets, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}


@pytest.mark.slow
@pytest.mark.parametrize(("place", "cell"), CELLS, ids=[f"{number} {place}" for number, (place, _) in enumerate(CELLS)])
def test_a_setup_cell_has_a_plan_where_it_is_for(place: str, cell: str, tmp_path: Path) -> None:
    targets, words = asked(cell)
    where = dict(one.split("=") for one in place.split())
    argv = [word for name, text in where.items() if name in ("machine", "python_version") for word in (f"--{name.replace('_', '-')}", text)]
    if "env" in words and "machine" in where:  # the Python of the place is too new or unknown: the environment has its own
        argv = ["--machine", where["machine"]]
    if "facts" in where:
        facts = json.loads((ROOT / "tests/images" / where["facts"]).read_text("utf-8"))
        if where.get("without") == "gpu":
            facts |= {"gpus": [], "driver": None}
        (tmp_path / "facts.json").write_text(json.dumps(facts))
        argv = ["--facts", "facts.json"]
    more = [f"--{name}={text}" for name, text in words.items() if name in OPTIONS]

    done = run("plan", *targets, *more, *argv, "--offline", "--format", "json", cwd=tmp_path)

    assert done.returncode == 0, done
    plan = json.loads(done.stdout)
    assert plan["status"] == "ok"
    assert {re.split("[=<>]", one)[0] for one in targets} <= {one["name"] for one in plan["stack"]["frameworks"]} | {"jax"}
    if "env" in words:
        assert plan["steps"][0]["kind"] == "venv"
    if targets == ["tensorflow==2.15"]:
        assert plan["facts"]["python"]["version"].startswith("3.11")


def test_every_place_is_there() -> None:
    assert len(CELLS) == 7
    assert re.findall(r"^## (.*)$", TEXT, re.MULTILINE) == [
        *("Colab, GPU runtime", "Colab, CPU runtime", "Kaggle", "SageMaker Studio", "A Jupyter server with conda"),
    ]
