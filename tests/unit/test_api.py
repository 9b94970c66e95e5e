"""`import cudnn_resolve`: the words of the options in, typed results out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import cudnn_resolve
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.model import Facts, Gpu
from cudnn_resolve.operations import plan
from cudnn_resolve.operations.options import Options, PlanRequest

NOTEBOOK = Path(__file__).parents[1] / "machines" / "notebook.json"


class SeenError(Exception):
    """Ends a plan before it begins."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that a plan is asked with."""
    found: list[Options] = []

    def plan_of(options: Options, listener: object) -> None:
        del listener
        found.append(options)
        raise SeenError

    monkeypatch.setattr(plan, "plan_of", plan_of)
    return found


def test_detect_gives_what_the_json_prints() -> None:
    found = cudnn_resolve.detect(facts=str(NOTEBOOK))

    assert found["schema"] == "cudnn-resolve/detect/1"
    assert found["packages"]["pip"]["numpy"] == "1.26.4"
    assert isinstance(found.packages.pip, Mapping)
    assert found.packages.pip["numpy"] == "1.26.4"
    assert cudnn_resolve.detect(facts=found) == found
    assert cudnn_resolve.detect(facts=found.to_json()) == found
    assert dict(found) == found.to_json()


def test_every_word_is_the_option_of_that_name(seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan(
            ["torch>=2.4", "jax"],
            requirement="a.txt",
            cuda=">=12",
            cudnn="9.3",
            driver="550.54.15",
            gpu=["T4", "sm_90"],
            python_version="3.11",
            platform="linux_x86_64",
            glibc="2.35",
            os="ubuntu22.04",
            prefer="newest",
            driver_policy="strict",
            strict_pins=True,
            channel="pip",
            matrix=["m"],
            index_url="-i",
            extra_index_url="j",
            find_links="k",
            offline=True,
        )

    assert seen == [
        PlanRequest(
            framework=("torch>=2.4", "jax"),
            requirement=("a.txt",),
            cuda=">=12",
            cudnn="==9.3.*",
            driver="550.54.15",
            gpu=("T4", "sm_90"),
            python_version="3.11",
            platform="linux_x86_64",
            glibc="2.35",
            os="ubuntu22.04",
            prefer="newest",
            driver_policy="strict",
            strict_pins=True,
            channel="pip",
            matrix=("m",),
            index_url="-i",
            extra_index_url=("j",),
            find_links=("k",),
            offline=True,
        )
    ]


def test_nothing_said_is_the_defaults(seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", device="gpu")

    assert seen == [PlanRequest(framework=("torch",), device="gpu")]


@pytest.mark.parametrize("facts", [{"gpus": [{"name": "T4"}]}])
def test_facts_may_be_an_object(facts: Mapping[str, Any], seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", facts=facts)

    assert seen[0].facts is None
    assert seen[0].given == Facts(gpus=(Gpu(name="T4"),))


def test_what_is_wrong_is_said_of_the_argument(seen: list[Options]) -> None:
    with pytest.raises(InputError, match="gpus: expected a list"):
        cudnn_resolve.plan("torch", facts={"gpus": 1})
    with pytest.raises(UsageError, match="channel cannot be 'ftp': it is one of auto, pip, apt"):
        cudnn_resolve.plan("torch", channel="ftp")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="driver cannot be 550: expected `str"):
        cudnn_resolve.plan("torch", driver=550)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device cpu and gpu contradict each other"):
        cudnn_resolve.plan("torch", device="cpu", gpu="T4")
    with pytest.raises(UsageError) as caught:
        cudnn_resolve.plan("torch", facts="f.json", python="python")
    assert caught.value.hint == "leave one of them out, or say python_version X.Y"
    assert seen == []


def test_the_functions_stay_when_folders_of_their_name_are_imported() -> None:
    import cudnn_resolve.planning.model

    assert callable(cudnn_resolve.plan)
    assert "cudnn_resolve.planning.model" in sys.modules


def test_importing_the_package_imports_nothing_else() -> None:
    before = "import __future__, sys, types; before = set(sys.modules)"
    script = f"{before}; import cudnn_resolve; print(sorted(set(sys.modules) - before))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "['cudnn_resolve', 'cudnn_resolve._version']\n"


def test_a_plan_has_attributes_prints_as_json_and_draws_itself() -> None:
    found = cudnn_resolve.plan("torch==2.6.0", driver="550.54.15", gpu="T4", python_version="3.11", offline=True)

    assert (found.status, found["status"], found.get("status"), "stack" in found) == ("ok", "ok", "ok", True)
    assert found.stack is not None
    assert found.stack.frameworks[0].version == found["stack"]["frameworks"][0]["version"]
    assert {one.name: one.version for one in found.pip}["nvidia-cudnn-cu12"] == "9.1.0.70"
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert found["schema"] == "cudnn-resolve/plan/1"
    assert "<td>nvidia-cudnn-cu12</td>" in found._repr_html_()


def test_why_gives_the_chain_behind_a_pin() -> None:
    found = cudnn_resolve.why("nvidia-cudnn-cu12", "torch==2.6.0", driver="550.54.15", gpu="T4", python_version="3.11", offline=True)

    assert found.chain is not None
    assert found.chain.chosen == found["chosen"] == "9.1.0.70"
    assert "torch" in found._repr_html_()


def test_every_result_draws_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(
        "ImportError: <libcudnn>.so.9: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    )
    facts, findings = cudnn_resolve.detect(facts=str(NOTEBOOK)), cudnn_resolve.doctor("a.log", no_facts=True)

    assert "535.104.05" in facts._repr_html_()
    assert "cudnn_missing" in findings._repr_html_()
    assert "&lt;libcudnn&gt;" in findings._repr_html_()
    assert findings.findings[0].cause == "cudnn_missing"
