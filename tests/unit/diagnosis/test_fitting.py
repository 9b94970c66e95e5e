"""Why no wheel fits is said as far as the message, the file's name, the facts and the releases of the matrix tell it."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book, judged

LINUX = {"system": "linux", "arch": "x86_64", "glibc": "2.35"}
NO_MATCH = "ERROR: No matching distribution found for {}\n"
REFUSED = "ERROR: {} is not a supported wheel on this platform.\n"
UV_REFUSED = (
    "error: Distribution `{} @ registry` can't be installed because it doesn't have a source distribution "
    "or wheel for the current platform\n"
)


def first(log: str, python: str | None = None, platform: dict[str, Any] | None = None) -> Finding:
    """The first finding, with the facts of that Python where one is told."""
    tree = {"platform": platform or LINUX, "python": {"version": python, "path": "/v/bin/python"}} if python else None
    facts = from_mapping(tree, "test") if tree is not None else None
    return diagnose(Reader(book().symptoms()).read([log.encode()]), facts, book()).findings[0]


def listed(requirement: str, versions: str) -> str:
    return f"ERROR: Could not find a version that satisfies the requirement {requirement} (from versions: {versions})\n"


@pytest.mark.parametrize(
    ("log", "python", "platform", "said"),
    [
        (
            NO_MATCH.format("torch==2.2.2"),
            "3.13.1",
            LINUX,
            "torch==2.2.2 has no wheel for Python 3.13: its wheels are for Python 3.8 to 3.12",
        ),
        (NO_MATCH.format("torch<1.5"), "3.10.12", LINUX, "torch<1.5 has no wheel for Python 3.10: its wheels are for Python 3.6 to 3.8"),
        (NO_MATCH.format("torch==2.2.2"), "3.11.2", {**LINUX, "arch": "ppc64le"}, "wheels for Python 3.11, but none for Linux on ppc64le"),
        (NO_MATCH.format("torch==2.15.0"), "3.12.2", {**LINUX, "glibc": "2.17"}, "but none for Linux on x86_64 (glibc 2.17)"),
        (NO_MATCH.format("torch==2.2.2"), "3.11.2", LINUX, "the configured index does not have them, or could not be reached"),
        (NO_MATCH.format("torch==2.2.2"), None, None, "pip finds no release of torch==2.2.2 for this Python and platform"),
        (NO_MATCH.format("jax==0.9.0"), "3.10.2", LINUX, "jax==0.9.0 has no wheel for Python 3.10"),
        (UV_REFUSED.format("torch==2.2.2"), "3.13.0", LINUX, "torch==2.2.2 has no wheel for Python 3.13"),
        (
            "Because torch==1.8.0 has no wheels with a matching Python ABI tag (e.g., `cp312`) and you require torch==1.8.0, we\n",
            None,
            None,
            "torch==1.8.0 has no wheel for Python 3.12: its wheels are for Python 3.6 to 3.9",
        ),
        (
            "hint: You're on Linux (`manylinux_2_17_x86_64`), but `torch` (v2.7.0) only has wheels for the following platform: `x`\n",
            None,
            None,
            "torch has no wheel for this platform",
        ),
        (
            REFUSED.format("torch-1.8.1-cp38-cp38-linux_x86_64.whl"),
            "3.11.1",
            LINUX,
            "built for Python 3.8 and Linux on x86_64, but this is Python 3.11",
        ),
        (REFUSED.format("torch-1.8.1-cp38-cp38-win_amd64.whl"), "3.8.1", LINUX, "but this is Linux on x86_64 (glibc 2.35)"),
        (REFUSED.format("torch-1.8.1-cp38-cp38-win_amd64.whl"), "3.9.1", LINUX, "but this is Python 3.9 and Linux on x86_64"),
        (REFUSED.format("torch-1.8.1-cp38-cp38-win_amd64.whl"), None, None, "but this is another Python or another system"),
        (
            REFUSED.format("x-1.8-cp37-abi3-win_amd64.whl"),
            "3.9.1",
            LINUX,
            "built for Python 3.7 to 3.15 and Windows on amd64, but this is Linux on",
        ),
        (
            "ERROR: Package 'six' requires a different Python: 3.8.18 not in '>=3.12'\n",
            None,
            None,
            "six requires Python >=3.12, but this is Python 3.8.18",
        ),
    ],
)
def test_python_or_system(log: str, python: str | None, platform: dict[str, Any] | None, said: str) -> None:
    found = first(log, python, platform)
    assert found.cause == "pip_wheel_unavailable_for_python"
    assert said in found.summary
    open_ = any(one in found.summary for one in (" or another", " or could", "this Python and platform"))
    assert (found.undecided is not None) == open_


@pytest.mark.parametrize(
    ("requirement", "versions", "cause", "said"),
    [
        (
            "torch<1.5",
            "1.11.0, 2.0.0",
            "pip_wheel_unavailable_for_python",
            "torch<1.5 asks for a release older than the first release for this Python, 1.11.0",
        ),
        ("torch<1.11", "1.11.0, 2.0.0", "pip_wheel_unavailable_for_python", "older than the first release"),
        ("torch>=1.4,<1.5", "1.11.0, 2.0.0", "pip_wheel_unavailable_for_python", "asks for a release older than the first release"),
        (
            "torch==1.5.0",
            "1.11.0, 2.0.0",
            "pip_wheel_unavailable_for_python",
            "torch==1.5.0 is older than the first release for this Python, 1.11.0",
        ),
        (
            "torch>2.0",
            "1.11.0, 2.0",
            "pip_wheel_unavailable_for_python",
            "torch>2.0 asks for a release newer than the last release for this Python, 2.0",
        ),
        ("torch>=1.13,<2", "1.11.0, 2.0.0", "pip_pin_unavailable", "is not among the releases of the configured index, 1.11.0 to 2.0.0"),
        ("torch==1.13.*", "1.11.0, 2.0.0", "pip_pin_unavailable", "is not among the releases"),
    ],
)
def test_where_the_wanted_ones_lie_in_the_list(requirement: str, versions: str, cause: str, said: str) -> None:
    found = first(listed(requirement, versions))
    assert (found.cause, said in found.summary) == (cause, True), found.summary


def test_a_range_is_not_answered_by_a_release_outside_it() -> None:
    """What keeps the limit comes first, and what gives it up says so."""
    found = first(listed("torch<1.5", "1.11.0, 2.0.0"), "3.10.1").remedy
    assert found[0].command is not None
    assert found[0].command.endswith("conda run -n py3.7 python -m pip install 'torch<1.5'")
    outside = [one for one in found if one.command and one.command.endswith("torch==1.11.0")]
    assert [one.text.startswith("or drop the limit") for one in outside] == [True]


def test_without_a_python_no_release_is_said_to_be_for_it() -> None:
    assert not [one for one in first(NO_MATCH.format("torch<1.5")).remedy if one.command and "torch==" in one.command]


def test_another_python_is_no_remedy_where_the_system_is_another() -> None:
    found = first(
        "Because onnxruntime-gpu==1.20.0 has no wheels with a matching platform tag (e.g., `manylinux_2_39_aarch64`) and you\n"
    ).remedy
    assert not [one for one in found if one.command and "--python" in one.command]
    assert any("on a system that it has wheels for" in one.text for one in found)
    assert not found[0].text.startswith("or ")


@pytest.mark.parametrize(
    ("wanted", "offered", "is_ported"),
    [
        ("tensorflow-gpu==1.10.1", "2.5.0, 2.6.0", True),
        ("tensorflow==1.15.0", "2.2.0, 2.3.0", True),
        ("tensorflow==2.3.0", "2.8.0, 2.9.0", False),
        ("torch==1.7.1", "2.0.0, 2.0.1", False),
    ],
)
def test_code_for_another_major_release_is_moved_last(wanted: str, offered: str, *, is_ported: bool) -> None:
    log = f"ERROR: Could not find a version that satisfies the requirement {wanted} (from versions: {offered})\n"
    steps = judged(f"{log}ERROR: No matching distribution found for {wanted}\n").findings[0].remedy
    name = wanted.partition("=")[0]
    moved = next(number for number, step in enumerate(steps) if f"pip install {name}=={offered[:5]}" in (step.command or ""))
    assert (moved > 0, "has to be changed" in steps[moved].text) == (is_ported, is_ported)


@pytest.mark.parametrize(
    ("log", "command", "absent"),
    [
        # Only pip knows the newest wheel for the Python of a program's own.
        (
            (
                "C:\\p\\system\\python\\lib\\site-packages\\torch\\cuda\\__init__.py:235: UserWarning:\n"
                "NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
                "The current PyTorch install supports CUDA capabilities sm_50 sm_90.\n"
            ),
            "-m pip install -U torch torchvision --index-url https://download.pytorch.org/whl/cu128",
            "PyTorch 2",
        ),
        (
            (
                "I0725 13:13:22.0 1 run_docker.py:200] W external/org_tensorflow/tensorflow/stream_executor/gpu/asm_compiler.cc:235] "
                "Falling back to the CUDA driver for PTX compilation; ptxas does not support CC 8.6\n"
                'E cuda_driver.cc:625] failed to get PTX kernel "s" from module: CUDA_ERROR_NOT_FOUND: named symbol not found\n'
            ),
            "with CUDA 11.1 or newer",
            "apply",
        ),
        ("W external/xla/asm_compiler.cc:225] ptxas does not support CC 12.0\n", "CUDA 12.8 or newer", "apply"),
    ],
)
def test_what_is_right_stays(log: str, command: str, absent: str) -> None:
    found = judged(log).findings
    said = "\n".join(f"{one.text} {one.command}" for one in found[0].remedy)
    assert (command in said, absent in said, "other_bug" in [one.cause for one in found]) == (True, False, False)


ORT = listed("onnxruntime==1.18.0", "1.12.0, 1.12.1, 1.13.1, 1.14.0, 1.15.0, 1.16.3")


@pytest.mark.parametrize(
    ("log", "python", "glibc", "cause"),
    [
        # Releases that all have wheels for one Python, of which only the later ones need a newer glibc.
        (ORT, None, None, "glibc_too_old"),
        (listed("torch==2.8.0", "1.13.0, 1.13.1, 2.0.0, 2.5.1, 2.6.0"), None, None, "glibc_too_old"),
        (ORT, "3.10.2", "2.17", "glibc_too_old"),
        (ORT, "3.10.2", "2.35", "pip_wheel_unavailable_for_python"),
        (f"C:\\Users\\me\\app> pip install onnxruntime\n{ORT}", None, None, "pip_wheel_unavailable_for_python"),
        (ORT, "3.20.1", "2.17", "pip_wheel_unavailable_for_python"),
        # The last one for that Python, whatever its glibc.
        (listed("torch==2.6.0", "1.4.0, 1.5.0, 2.4.0, 2.4.1"), None, None, "pip_wheel_unavailable_for_python"),
        (listed("onnxruntime==1.22.0", "1.7.0, 1.8.0, 1.19.0, 1.19.2"), None, None, "pip_wheel_unavailable_for_python"),
        # That of every system still in use: it is pip that does not know the tags.
        (listed("tensorflow==2.4.0", "1.13.1, 1.13.2, 1.14.0"), None, None, "pip_wheel_unavailable_for_python"),
    ],
)
def test_a_list_ends_where_wheels_need_a_newer_glibc(log: str, python: str | None, glibc: str | None, cause: str) -> None:
    assert first(log, python, {**LINUX, "glibc": glibc} if glibc else None).cause == cause


def test_what_an_old_glibc_can_install_is_named() -> None:
    commands = [one.command for one in first(ORT).remedy]
    assert commands[:2] == ["python -m pip --version; ldd --version", "python -m pip install onnxruntime==1.16.3"]
