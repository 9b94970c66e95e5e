"""Frameworks that an image's maker built: known as such by every command, and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose_facts
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.operations.check import check
from cudnn_resolve.operations.machine_facts import read_facts
from cudnn_resolve.operations.options import CheckRequest, PlanRequest
from cudnn_resolve.operations.plan import PlanResult, plan

IMAGES = Path(__file__).parents[1] / "own_builds"
OWN = {
    "aws-tf": ("tensorflow", "2.16.1"),
    "colab-2022-09": ("tensorflow", "2.8.2"),
    "jetson-lab": ("torch", "2.3.0"),
    "jetson-nv": ("torch", "2.5.0"),
    "local-cxx11": ("torch", "2.5.1"),
    "local-git": ("torch", "2.6.0"),
    "ngc-jax": ("jax", "0.4.36"),
    "ngc-tf-2501": ("tensorflow", "2.17.0"),
    "ngc-tf1": ("tensorflow", "1.15.5"),
    "ngc-torch-2501": ("torch", "2.6.0"),
    "onnx-local": ("onnxruntime-gpu", "1.20.1"),
    "paddle-local": ("paddlepaddle-gpu", "2.6.1"),
    "torch-nightly": ("torch", "2.7.0"),
}


def planned(name: str, *wanted: str) -> PlanResult:
    return plan(PlanRequest(facts=str(IMAGES / f"{name}.json"), framework=wanted, offline=True))


@pytest.mark.parametrize("name", sorted(OWN))
def test_it_runs(name: str) -> None:
    (verdict,) = check(CheckRequest(facts=(str(IMAGES / f"{name}.json"),))).verdicts
    assert verdict.status == "runs", verdict.findings
    book = open_book()
    found = diagnose_facts(read_facts(str(IMAGES / f"{name}.json"), book), book)
    assert not [one for one in found if one.severity == "error"]


@pytest.mark.parametrize("name", sorted(OWN))
def test_it_is_kept(name: str) -> None:
    package, version = OWN[name]
    installed = json.loads((IMAGES / f"{name}.json").read_text("utf-8"))["packages"]["pip"]
    whole = f"{package}=={installed[package]}"
    for wanted in (package, f"{package}=={version}", *([whole] if name.startswith("paddle") else [])):
        found = planned(name, wanted)
        assert found.conflict is None, wanted
        actions = {one.name: one for one in found.pip}
        assert actions[package].action == "keep", wanted
        assert not [one.name for one in found.pip if one.name.startswith("nvidia-") and one.action != "keep"], wanted


@pytest.mark.parametrize(("name", "wanted"), [("colab-2022-09", "tensorflow==2.9.1"), ("ngc-torch-2501", "torch==2.5.1")])
def test_what_is_lost_with_it_is_said(name: str, wanted: str) -> None:
    package = OWN[name][0]
    found = planned(name, wanted)
    assert next(one for one in found.pip if one.name == package).action in ("upgrade", "downgrade")
    (said,) = [one.message for one in found.warnings if one.code == "vendor-build"]
    assert "no index has it" in said
    assert f"{package}=={OWN[name][1]} keeps it" in said


def test_a_companion_of_its_own_is_kept_beside_it() -> None:
    found = planned("ngc-torch-2501", "torch", "torchvision")
    assert {one.name: one.action for one in found.pip}["torchvision"] == "keep"


def test_a_build_for_the_jetson_is_told_from_the_wheel_without_cuda() -> None:
    facts = json.loads((IMAGES / "jetson-lab.json").read_text("utf-8"))
    del facts["frameworks"]
    (verdict,) = check(CheckRequest(given=from_mapping(facts))).verdicts
    assert verdict.status != "runs"


@pytest.mark.parametrize(("version", "said"), [("2.6.0+rocm6.2.4", "AMD GPUs"), ("2.6.0+cpu.cxx11.abi", "the CPU with an ABI of its own")])
def test_a_build_for_another_device_is_not_replaced_without_a_word(version: str, said: str) -> None:
    facts = json.loads((IMAGES / "local-cxx11.json").read_text("utf-8"))
    facts["packages"] = {"pip": {"torch": version}}
    found = plan(PlanRequest(given=from_mapping(facts), framework=("torch==2.6.0",), offline=True))
    assert next(one for one in found.pip if one.name == "torch").action != "keep"
    assert [f"torch {version} is a build for {said}" in one.message for one in found.warnings if one.code == "vendor-build"] == [True]
    (verdict,) = check(CheckRequest(given=from_mapping(facts))).verdicts
    assert [one.command for one in verdict.remedy] == ["cudnn-resolve lock -f torch==2.6.0"]


def test_the_plain_build_for_the_cpu_is_replaced_as_ever() -> None:
    facts = json.loads((IMAGES / "local-cxx11.json").read_text("utf-8"))
    facts["packages"] = {"pip": {"torch": "2.6.0+cpu"}}
    found = plan(PlanRequest(given=from_mapping(facts), framework=("torch==2.6.0",), offline=True))
    assert not [one for one in found.warnings if one.code == "vendor-build"]
