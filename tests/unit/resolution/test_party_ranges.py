"""Which versions each party of an answer allows."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.operations.options import PlanRequest
from cudnn_resolve.operations.plan import PlanResult, plan
from cudnn_resolve.resolution.model import Range


def pictured(*targets: str, driver: str = "550.54.15", gpu: str = "T4", python: str = "3.11", **words: Any) -> PlanResult:
    """The plan of targets on a machine, with its ranges."""
    request = PlanRequest(framework=targets, driver=driver, gpu=(gpu,), python_version=python, offline=True, ranges=True, **words)
    return plan(request)


def named(found: PlanResult, name: str) -> Range:
    """The range of that name."""
    return next(one for one in found.ranges if one.name == name)


def allowed(one: Range) -> dict[str, set[str]]:
    """Every version that each party allows."""
    places = {version: place for place, version in enumerate(one.versions)}
    return {
        bar.who: {version for first, last in bar.spans for version in one.versions[places[first] : places[last] + 1]} for bar in one.bars
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("torch==2.6.0", "tensorflow==2.18.0"), {}),
        (("torch==2.3.1",), {"cuda": "<12.5", "cudnn": ">=8.9"}),
        (("tensorflow==2.15.1",), {"driver": "535.104.05", "channel": "apt", "os": "ubuntu22.04"}),
        (("jax[cuda12]==0.5.2", "torch==2.6.0"), {"gpu": "H100"}),
        (("onnxruntime-gpu==1.20.0",), {}),
    ],
)
def test_what_is_chosen_is_allowed_by_every_party(targets: tuple[str, ...], words: dict[str, Any]) -> None:
    found = pictured(*targets, **words)

    assert found.is_satisfiable
    assert {"driver", "CUDA", "cuDNN"} <= {one.name for one in found.ranges}
    for one in found.ranges:
        for who, versions in allowed(one).items():
            assert one.chosen in versions, (one.name, who)


def test_the_oldest_cudnn_is_that_of_the_framework_that_was_built_with_the_newest() -> None:
    of = allowed(named(pictured("torch==2.6.0", "tensorflow==2.18.0"), "cuDNN"))

    assert min(of["torch 2.6.0"], key=_number) == "9.1.0.70"
    assert min(of["tensorflow 2.18.0"], key=_number) == "9.3.0.75"


def test_the_driver_ends_the_cuda_that_it_runs() -> None:
    cuda = named(pictured("torch==2.6.0", driver="550.54.15"), "CUDA")

    driver = allowed(cuda)["driver 550.54.15"]
    assert "12.9" in driver
    assert {"13.0", "13.1"}.isdisjoint(driver)
    assert "13.0" in cuda.versions


@pytest.mark.slow
def test_in_a_conflict_the_bars_of_cudnn_do_not_meet() -> None:
    found = pictured("torch==2.6.0", "tensorflow==2.15.1")

    assert not found.is_satisfiable
    cudnn = allowed(named(found, "cuDNN"))
    assert not cudnn["torch==2.6.0"] & cudnn["tensorflow==2.15.1"]
    assert named(found, "cuDNN").chosen is None
    assert set.intersection(*allowed(named(found, "CUDA")).values())


@pytest.mark.slow
def test_only_builds_that_the_machine_allows_count_in_a_conflict() -> None:
    found = pictured("torch==2.6.0", "onnxruntime-gpu", driver="470.57.02")

    assert not found.is_satisfiable
    assert {version.partition(".")[0] for version in allowed(named(found, "cuDNN"))["onnxruntime-gpu"]} == {"8"}


def test_a_limit_of_the_user_is_a_party() -> None:
    of = allowed(named(pictured("torch==2.6.0", cudnn="<9.6"), "cuDNN"))

    assert max(of["limit <9.6"], key=_number).startswith("9.5.")


def test_nothing_is_worked_out_that_was_not_asked_for() -> None:
    request = PlanRequest(framework=("torch==2.6.0",), driver="550.54.15", gpu=("T4",), python_version="3.11", offline=True)

    found = plan(request)

    assert found.ranges == ()
    assert "ranges" not in found.to_json()


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
