"""What loads against what a lock or a plan says, over what real frameworks told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Driver, Facts, Packages
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.locking.model import Environment, Framework, LockedRequest, Stack, Tool
from cudnn_resolve.operations.validate import pinned_by_lock, read_plan
from cudnn_resolve.validation.against_lock import PinnedEnvironment, judge_against, with_preload_hint
from cudnn_resolve.validation.model import Check
from tests.lock_maker import entry, lock_with
from tests.unit.validation.recordings import TENSORFLOW, TORCH, facts, recorded

WHEELS = {
    "nvidia-cublas-cu12": "12.4.5.8",
    "nvidia-cuda-nvrtc-cu12": "12.4.127",
    "nvidia-cuda-runtime-cu12": "12.4.127",
    "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-cufft-cu12": "11.2.1.3",
    "nvidia-curand-cu12": "10.3.5.147",
    "nvidia-cusparse-cu12": "12.3.1.170",
    "nvidia-nccl-cu12": "2.21.5",
    "nvidia-nvjitlink-cu12": "12.4.127",
    "torch": "2.6.0",
}
"""What torch 2.6.0 was installed with when it was recorded."""


def plan(wheels: dict[str, str] = WHEELS, **more: Any) -> str:
    pip = [{"name": name, "version": version, "action": "install"} for name, version in wheels.items()]
    stack = {"cudnn": "9.1.0.70", "driver_min": "525.60.13", "frameworks": []}
    return json.dumps({"schema": "cudnn-resolve/plan/1", "status": "ok", "stack": stack, "pip": pip, **more})


def planned(text: str) -> PinnedEnvironment:
    return read_plan(text, "plan.json", open_book(()))


def judged(pinned: PinnedEnvironment, known: Facts, recording: str = "torch") -> dict[str, Check]:
    return {check.id: check for check in judge_against(pinned, known, (TORCH,), (recorded(recording),))}


def with_packages(**pip: str) -> Facts:
    return replace(facts(), packages=Packages(pip=pip or WHEELS))


def test_what_was_planned_is_what_loads() -> None:
    checks = judged(planned(plan()), with_packages())

    assert {name: check.status for name, check in checks.items()} == {"plan/packages": "passed", "plan/torch": "passed"}
    words = checks["plan/torch"].observed or ""
    assert words.startswith("cuDNN 9.1.0 from /env/site-packages/nvidia/cudnn/lib, cublas 12.4.5, ")
    for word in ("cudart 12.4", "cufft 11.2.1", "curand 10.3.5", "cusparse 12.3.1", "nccl 2.21.5", "nvjitlink 12.4", "nvrtc 12.4"):
        assert word in words


@pytest.mark.parametrize("package", [name for name in WHEELS if name.startswith("nvidia-") and name != "nvidia-cudnn-cu12"])
def test_each_library_that_is_of_another_version_fails(package: str) -> None:
    """A planted difference in every one of them is seen."""
    major, minor, *rest = WHEELS[package].split(".")
    other = ".".join([major, str(int(minor) + 1), *rest])

    check = judged(planned(plan({**WHEELS, package: other})), with_packages())["plan/torch"]

    assert check.status == "failed"
    assert (check.observed or "").count(" from ") == 1
    assert f"{package} {other}" in (check.expected or "")


def test_another_cudnn_fails_and_is_told_with_its_place() -> None:
    check = judged(planned(plan()), with_packages(), "torch-newer-first")["plan/torch"]

    assert check.status == "failed"
    assert check.observed == "cuDNN 9.2.1 from /new/cudnn/lib and /env/site-packages/nvidia/cudnn/lib"


def test_each_framework_may_have_a_cudnn_of_its_own() -> None:
    stack = {"cudnn": "8.9.7.29", "frameworks": [{"name": "torch", "cudnn": "9.1.0.70"}, {"name": "tensorflow", "cudnn": "9.3.0.75"}]}
    pinned = planned(plan(stack=stack))
    told = (recorded("torch"), recorded("tensorflow"))

    found = {check.id: check.status for check in judge_against(pinned, with_packages(), (TORCH, TENSORFLOW), told)}

    assert found["plan/torch"] == "passed"
    wrong = replace(pinned, libraries=(), cudnns={})
    assert [one.status for one in judge_against(wrong, with_packages(), (TORCH,), told[:1])][-1] == "failed"


@pytest.mark.parametrize(
    ("variant", "needs", "status"),
    [("cu121", (), "passed"), ("cu121", ("nvidia-cudnn-cu12",), "failed"), ("cu99", (), "failed")],
    ids=["inside", "beside", "unknown"],
)
def test_a_wheel_of_a_lock_may_bring_a_cudnn_of_its_own(variant: str, needs: tuple[str, ...], status: str) -> None:
    framework = Framework(name="torch", version="2.5.1+cu121", variant=variant, cudnn_built="9.1.0.70")
    stack = Stack(platform="linux_x86_64", cudnn="9.3.0.75", frameworks=(framework,))
    torch = entry("torch", "2.5.1+cu121", dependencies=[{"name": one} for one in needs])
    lock = lock_with(torch, tool=Tool(request=LockedRequest(), python="3.11", matrix=None, stacks=(stack,)))

    pinned = pinned_by_lock(lock, "x", Facts(), open_book())

    assert judged(pinned, with_packages())["lock/torch"].status == status


@pytest.mark.parametrize(("version", "status"), [("9", "passed"), ("9.1", "passed"), ("9.2", "failed"), ("8", "failed")])
def test_a_cudnn_of_which_the_beginning_is_known(version: str, status: str) -> None:
    assert judged(PinnedEnvironment(packages={}, cudnn=version), with_packages())["lock/torch"].status == status


def test_packages_that_differ_lack_or_should_be_gone() -> None:
    pip = [{"name": "torch", "version": "2.6.0", "action": "keep"}, {"name": "numpy", "version": "2.0.2", "action": "install"}]
    pip.append({"name": "onnxruntime", "version": "1.20.0", "action": "remove"})
    known = with_packages(torch="2.5.0", onnxruntime="1.20.0")

    check = judged(planned(plan(pip=pip)), known)["plan/packages"]

    assert check.status == "failed"
    assert check.observed == (
        "numpy 2.0.2 is not installed; onnxruntime 1.20.0 is installed, which the plan removes; torch 2.5.0 instead of 2.6.0"
    )


@pytest.mark.parametrize(("here", "status"), [("9.1.0.70-1", "passed"), ("9.2.0.82-1", "failed"), (None, "failed")])
def test_packages_of_the_system(here: str | None, status: str) -> None:
    apt = [{"name": "libcudnn9-cuda-12", "version": "9.1.0.70-1", "repository": "cuda", "action": "keep"}]
    known = replace(facts(), packages=Packages(pip=WHEELS, apt={"libcudnn9-cuda-12": here} if here else {}))

    assert judged(planned(plan(apt=apt)), known)["plan/apt"].status == status


@pytest.mark.parametrize(("driver", "status"), [("550.54.15", "passed"), ("525.60.13", "passed"), ("470.82.01", "failed")])
def test_the_driver(driver: str, status: str) -> None:
    known = replace(with_packages(), driver=Driver(version=driver))

    assert judged(planned(plan()), known)["plan/driver"].status == status


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "plan-invalid"),
        ("[" * 100_000, "plan-invalid"),
        ("[]", "plan-invalid"),
        ('{"schema": "cudnn-resolve/detect/1"}', "plan-invalid"),
        (plan(pip=3), "plan-invalid"),
        (plan(pip=[{"name": "torch"}]), "plan-invalid"),
        (plan(status="unsatisfiable"), "plan-unsatisfiable"),
        (plan(status="error"), "plan-invalid"),
        (plan(status=None), "plan-invalid"),
        (plan({}), "plan-invalid"),
        (plan(stack={"cudnn": "rubbish"}), "plan-invalid"),
        (plan(stack={"cudnn": 9}), "plan-invalid"),
        (plan(stack={"driver_min": "new"}), "plan-invalid"),
        (plan(stack={"frameworks": [{"name": "torch", "cudnn": "x"}]}), "plan-invalid"),
    ],
)
def test_what_is_no_plan(text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(text)
    assert caught.value.code == code


def test_what_nobody_knows_is_not_missed() -> None:
    pinned = planned(plan(apt=[{"name": "libcudnn9-cuda-12", "version": "9.1.0.70-1", "repository": "cuda", "action": "keep"}]))

    checks = judged(pinned, replace(facts(), packages=Packages()))

    assert {name: checks[name].status for name in ("plan/packages", "plan/apt")} == {"plan/packages": "skipped", "plan/apt": "skipped"}
    assert checks["plan/packages"].observed == "the installed packages are unknown"
    assert checks["plan/apt"].observed == "the installed apt packages are unknown"


@pytest.mark.parametrize(
    ("pinned", "here", "status"),
    [
        ("2.6", "2.6.0", "passed"),
        ("2.6.0", "2.6.0+cu124", "failed"),
        ("1.0rc1", "1.0.rc.1", "passed"),
        ("odd version", "odd version", "passed"),
        ("odd version", "2.6.0", "failed"),
    ],
)
def test_versions_are_those_of_packages(pinned: str, here: str, status: str) -> None:
    check = judged(PinnedEnvironment(packages={"torch": pinned}), with_packages(torch=here))["lock/packages"]

    assert (check.status, check.expected) == (status, "the package of the lock")


def test_a_lock_whose_cudnn_is_no_version() -> None:
    with pytest.raises(msgspec.ValidationError, match="cudnn"):
        msgspec.convert({"platform": "linux_x86_64", "cudnn": "rubbish"}, Stack)


@pytest.mark.parametrize("source", ["lock", "plan"])
def test_a_preload_that_is_missing_is_named_with_what_sets_it_up(source: str) -> None:
    step = Environment(kind="preload", value="onnxruntime", why="it does not look into NVIDIA's wheels")
    if source == "lock":
        tool = Tool(request=LockedRequest(), python="3.11", matrix=None, stacks=(Stack(platform="linux_x86_64", environment=(step,)),))
        pinned = pinned_by_lock(lock_with(tool=tool), "my lock.toml", facts(), open_book())
        command = ": `cudnn-resolve apply 'my lock.toml'` sets it up"
    else:
        pinned = planned(plan(environment=[{"kind": "preload", "value": "onnxruntime", "why": "x"}]))
        command = ""
    onnxruntime = replace(TORCH, name="onnxruntime-gpu", module="onnxruntime")
    lost = Check(id="onnxruntime-gpu/cudnn", framework="onnxruntime-gpu", status="failed", detail="it runs on the CPU then")

    assert (
        with_preload_hint(lost, pinned, onnxruntime).detail
        == f"the {source} has a preload for it, which is missing here{command}; {lost.detail}"
    )
    assert with_preload_hint(replace(lost, status="passed"), pinned, onnxruntime).detail == lost.detail
    assert with_preload_hint(lost, replace(pinned, preload=()), onnxruntime) == lost
    assert with_preload_hint(replace(lost, id="torch/cudnn", framework="torch"), pinned, TORCH).detail == lost.detail
