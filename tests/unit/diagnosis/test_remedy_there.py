"""What is proposed where the machine is known: plans that it can have, places that its loader searches, modules that it has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.diagnosis.test_remedy import SITE, commands
from tests.written_logs import Case, judged, judged_there, of_machines, written


def test_the_preview_of_a_plan_keeps_to_the_options_of_its_command() -> None:
    triton = next(case for case in of_machines() if case.name == "torch-24-h100-ptx: triton-ptx")
    first = judged_there(triton).findings[0].remedy[0]
    assert first.command == "cudnn-resolve apply -f torch --driver-policy strict"
    assert "torch 2.5.1+cu121" in first.text  # the newest one whose CUDA driver 535 has itself; without the option nothing would change


@pytest.mark.parametrize("case", [case for case in written() if ".dll" in case.log or "WinError" in case.log], ids=lambda case: case.name)
def test_no_plan_is_proposed_on_windows(case: Case) -> None:
    remedies = [remedy for finding in judged(case.log).findings for remedy in finding.remedy]
    assert not [one.command for one in remedies if one.command and one.command.startswith(("cudnn-resolve apply", "cudnn-resolve plan"))]
    assert remedies or judged(case.log).findings[0].severity == "info"


def test_under_wsl_a_library_of_a_wheel_is_not_looked_for_beside_the_driver() -> None:
    log = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    copy = {"version": "9.1.0.70", "soname": 9, "path": f"{SITE}/nvidia/cudnn/lib", "source": "pip", "owner": "nvidia-cudnn-cu12"}
    told = commands(log, cudnn=[copy], container={"kind": "wsl"}, packages={"pip": {"nvidia-cudnn-cu12": "9.1.0.70"}})
    assert "glob" in told[0]
    assert not any("/usr/lib/wsl" in one for one in told)


def test_a_library_without_a_version_in_its_name_is_looked_for() -> None:
    log = "dynamic_loader.cc:179] Failed to find dynamic library: libcudnn.so ( libcudnn.so: cannot open shared object file )\n"
    seen = "W0830 15:39:10.331709  1746 device_context.cc:252] Please NOTE: device: 0, CUDA Capability: 75, Driver API Version: 10.2\n"
    found = judged(seen + log).findings[0]
    assert found.cause == "lib_not_on_path"
    assert next(one.command for one in found.remedy if one.command).startswith("find / -name 'libcudnn.so*'")


def test_a_module_that_is_not_loaded_is_loaded() -> None:
    (case,) = (case for case in of_machines() if case.name == "torch-module-not-loaded: no-gpus")
    told = [one.command for one in judged_there(case).findings[0].remedy]
    assert "sudo modprobe nvidia" in told
    assert "sudo ubuntu-drivers install" not in told


@pytest.mark.parametrize(
    ("machine", "wheel"),
    [
        ({"cuda_toolkits": [{"version": "13.0", "path": "/usr/local/cuda-13.0"}]}, "nvidia-cudnn-cu13"),
        ({"cuda_toolkits": [], "driver": {"version": "470.57.02", "cuda": "11.4"}}, "nvidia-cudnn-cu11"),
    ],
)
def test_the_wheel_of_cudnn_is_for_the_cuda_of_the_machine(machine: dict[str, Any], wheel: str) -> None:
    log = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    assert f"/v/bin/python -m pip install '{wheel}==9.*'" in commands(log, cudnn=[], packages={"pip": {}}, **machine)[0]


def test_what_the_facts_have_decided_is_one_failure() -> None:
    (case,) = (case for case in of_machines() if case.name == "tf-hidden: cuinit")
    assert [one.cause for one in judged_there(case).findings if one.severity == "error"] == ["gpu_hidden_by_env"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("torch-old-nccl-first: config", "unset LD_LIBRARY_PATH"),
        (
            "torch-two-nccl: window-register",
            "/home/user/env/bin/python -m pip uninstall -y nvidia-nccl-cu13 && /home/user/env/bin/python -m pip",
        ),
    ],
)
def test_of_two_nccls_the_one_that_nobody_requires_goes(name: str, first: str) -> None:
    (case,) = (case for case in of_machines() if case.name == name)
    assert (judged_there(case).findings[0].remedy[0].command or "").startswith(first)
