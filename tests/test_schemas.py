"""The JSON Schemas of docs/schema/ are current, and what `--format json` prints holds to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import schema

import cudnn_resolve
from cudnn_resolve.diagnosis.model import CheckedFramework, Verdict
from cudnn_resolve.execution.journal import PastApply
from cudnn_resolve.execution.model import Done, Execution, Trouble
from cudnn_resolve.host.bundle import BundledFile
from cudnn_resolve.locking.up_to_date import resolution_differences
from cudnn_resolve.operations.apply import ApplyResult, HistoryResult
from cudnn_resolve.operations.bundle import BundleResult
from cudnn_resolve.operations.check import CheckResult
from cudnn_resolve.operations.clean import CleanResult, Part
from cudnn_resolve.operations.lock import LockCheckResult, LockResult
from cudnn_resolve.operations.plan import PlanResult
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.operations.validate import ValidationResult
from cudnn_resolve.operations.why import WhyResult
from cudnn_resolve.report.document import history
from cudnn_resolve.resolution.chain import Chain, Link
from cudnn_resolve.validation.model import Check, VisibleGpu
from tests.lock_maker import answer, lock_of
from tests.schemas import fit
from tests.unit.report.test_plan import PLANS

jsonschema = pytest.importorskip("jsonschema", reason="the extra `dev` brings jsonschema")
FACTS = Path(__file__).parent / "machines" / "notebook.json"


@pytest.mark.slow
def test_the_schemas_are_current() -> None:
    assert schema.main(["--check"]) == 0
    for name in schema.DOCUMENTS:
        jsonschema.Draft202012Validator.check_schema(json.loads((schema.FOLDER / f"{name}.json").read_text("utf-8")))


def result(name: str) -> PlanResult:
    return recast(PlanResult, PLANS[name]())


def locked() -> LockResult:
    lock = lock_of(answer("north"))
    return LockResult(path="-", lock=lock, text="x", warnings=("w",))


def checked() -> LockCheckResult:
    lock, now = lock_of(answer("north")), answer("south")
    return LockCheckResult(lock=lock, differences=resolution_differences(lock, [now]), overlays=("o",))


RESULTS: dict[str, Callable[[], Result]] = {
    "detect": lambda: cudnn_resolve.detect(facts=FACTS),
    **{f"plan-{name}": lambda name=name: result(name) for name in PLANS},  # type: ignore[misc]
    "why": lambda: WhyResult(
        plan=result("joint"),
        chain=Chain(package="a", chosen="1", links=(Link(text="a", because="b", parent=None, obeyed=True, links=()),)),
    ),
    "lock": locked,
    "lock-conflict": lambda: LockResult(path="pylock.toml", plan=result("conflict")),
    "lock-check": checked,
    "apply": lambda: ApplyResult(
        execution=Execution(status="reverted", id=3, steps=(Done(what="x", seconds=0.12345),), trouble=Trouble(message="m", code="c")),
        plan=result("joint"),
    ),
    "apply-no-plan": lambda: ApplyResult(plan=result("conflict")),
    "apply-undone": lambda: ApplyResult(execution=Execution(status="undone")),
    "history": lambda: HistoryResult(
        applies=history([PastApply(folder="/j/1", id=1, state="committed", records=({"kind": "begin"},))], [1])
    ),
    "validate": lambda: ValidationResult(
        checks=(Check(id="torch/import", status="passed", seconds=1.5, gpu=0),), gpus=(VisibleGpu(index=0),), loaded={"cudnn": "9.1.0"}
    ),
    "doctor": lambda: cudnn_resolve.doctor(facts=FACTS),
    "check": lambda: CheckResult(
        verdicts=(Verdict(what="env", machine="here", status="runs", frameworks=(CheckedFramework(name="a", version="1", status="runs"),)),)
    ),
    "fleet": lambda: cudnn_resolve.fleet_detect(from_folder=FACTS),
    "bundle": lambda: BundleResult(path="b", files=(BundledFile(name="pylock.toml", sha256="0" * 64, bytes=3),), notes=("n",)),
    "clean": lambda: CleanResult(parts=(Part(what="w", path="/p", bytes=3, freed=True, why="y"),)),
    "matrix-list": cudnn_resolve.matrix_list,
    "matrix-framework": lambda: cudnn_resolve.matrix_show("torch", "2.6"),
    **{f"matrix-{name}": lambda name=name: cudnn_resolve.matrix_show(name) for name in ("cudnn", "cuda", "driver", "gpu")},  # type: ignore[misc]
    "matrix-card": lambda: cudnn_resolve.matrix_show("gpu", "T4"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_holds_to_its_schema(name: str) -> None:
    fit(RESULTS[name]().to_json())


@pytest.mark.parametrize(
    "words", [["plan", "-f", "tenserflow"], ["detect", "--facts", "gone.json"], ["lock", "--check", "--lock", "gone.toml"]]
)
def test_an_error_holds_to_its_schema(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from cudnn_resolve.cli.main import main

    code = main([*words, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    fit(found)
    assert (found["schema"], found["exit_code"]) == ("cudnn-resolve/error/1", code)


def test_settings_have_a_schema_for_editors() -> None:
    fit({"framework": ["torch>=2.4"], "driver-policy": "strict", "platform": "linux_x86_64", "offline": True}, "settings")
    for wrong in ({"frameworks": ["torch"]}, {"gpu": "T4"}, {"channel": "conda"}, {"offline": 1}):
        with pytest.raises(AssertionError):
            fit(wrong, "settings")
