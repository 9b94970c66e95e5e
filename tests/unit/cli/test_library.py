"""`import cudnn_resolve`: the words of the options in, the objects of the JSON out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import cudnn_resolve
from cudnn_resolve.cli import library, plan
from cudnn_resolve.cli.options import Options
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts, Gpu

NOTEBOOK = Path(__file__).parents[2] / "machines" / "notebook.json"


class SeenError(Exception):
    """Ends a plan before it begins."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that a plan is asked with."""
    found: list[Options] = []

    def plan_of(options: Options) -> None:
        found.append(options)
        raise SeenError

    monkeypatch.setattr(plan, "plan_of", plan_of)
    return found


def test_detect_gives_what_the_json_prints() -> None:
    found = cudnn_resolve.detect(facts=str(NOTEBOOK))

    assert found["schema"] == "cudnn-resolve/detect/1"
    assert found["packages"]["pip"]["numpy"] == "1.26.4"
    assert cudnn_resolve.detect(facts=found) == found


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
        Options(
            frameworks=("torch>=2.4", "jax"),
            requirement_files=("a.txt",),
            cuda=">=12",
            cudnn="==9.3.*",
            assumptions=Assumptions(
                driver="550.54.15",
                gpus=("T4", "sm_90"),
                python_version="3.11",
                platform="linux_x86_64",
                glibc="2.35",
                os="ubuntu22.04",
            ),
            prefer="newest",
            driver_policy="strict",
            strict_pins=True,
            channel="pip",
            matrices=("m",),
            index_url="-i",
            extra_index_urls=("j",),
            find_links=("k",),
            offline=True,
        )
    ]


def test_nothing_said_is_the_defaults(seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", device="gpu")

    assert seen == [Options(frameworks=("torch",), device="gpu")]


@pytest.mark.parametrize("facts", [{"gpus": [{"name": "T4"}]}])
def test_facts_may_be_an_object(facts: Mapping[str, Any], seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", facts=facts)

    assert seen[0].facts is None
    assert seen[0].given == Facts(gpus=(Gpu(name="T4"),))


def test_what_is_wrong_is_said_as_on_the_command_line(seen: list[Options]) -> None:
    with pytest.raises(InputError, match="gpus: expected a list"):
        cudnn_resolve.plan("torch", facts={"gpus": 1})
    with pytest.raises(UsageError, match="--channel"):
        library.plan({"channel": "ftp"})
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
