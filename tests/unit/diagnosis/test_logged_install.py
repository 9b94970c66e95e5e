"""A remedy repeats the command that failed, with one change: its tool, its packages and its index stay."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

NONE = "ERROR: Could not find a version that satisfies the requirement {} (from versions: none)\n"
LISTED = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\n"
NO_VERSION = "  ╰─▶ Because there is no version of torch==2.5.1 and you require torch==2.5.1, we can conclude that\n"
WHL = "https://download.pytorch.org/whl"
UV = (
    "error: Distribution `{0}=={1} @ registry` can't be installed because it doesn't have a source distribution or wheel for the current "
    "platform\n\nhint: You're using CPython 3.13 (`cp313`), but `{0}` (v{1}) only has wheels with the following Python ABI tag: `cp311`\n"
)
UV_SYSTEM = (
    "error: Distribution `torch==2.7.0 @ registry` can't be installed because it doesn't have a source distribution or wheel for the "
    "current platform\n\nhint: You're on Linux (`{}`), but `torch` (v2.7.0) only has wheels for the following platforms: "
    "`manylinux_2_28_aarch64`, `manylinux_2_28_x86_64`, `win_amd64`\n"
)


def first(log: str) -> tuple[str, list[str]]:
    """Cause and commands of the first finding."""
    found = judged(log).findings[0]
    return found.cause, [one.command for one in found.remedy if one.command]


@pytest.mark.parametrize(
    ("log", "cause", "command"),
    [
        (
            f"pip install torch==2.10.0 torchvision torchaudio --index-url {WHL}/cu131\n" + NONE.format("torch==2.10.0"),
            "pip_pin_unavailable",
            f"python -m pip install torch==2.10.0 torchvision torchaudio --index-url {WHL}/cu130",
        ),
        (
            f"Looking in indexes: {WHL}/cu128\n" + LISTED.format("torch==2.5.1", "2.7.0+cu128, 2.7.1+cu128"),
            "pip_pin_unavailable",
            f"python -m pip install torch==2.5.1 --index-url {WHL}/cu124",
        ),
        (
            f"pip3 install torch==2.1.2 torchvision==0.16.2 --index-url {WHL}/cu118\n"
            + LISTED.format("torch==2.1.2", "2.2.0+cu118, 2.2.1+cu118"),
            "pip_wheel_unavailable_for_python",
            f"-m pip install torch==2.1.2 torchvision==0.16.2 --index-url {WHL}/cu118",
        ),
        (
            f"Looking in indexes: {WHL}/cu121\n" + NONE.format("onnxruntime-gpu==1.18.0"),
            "pip_pin_unavailable",
            f"python -m pip install onnxruntime-gpu==1.18.0 --extra-index-url {WHL}/cu121",
        ),
        (
            f"$ uv pip install torch==2.5.1 --index-url {WHL}/cu131\n" + NO_VERSION,
            "pip_pin_unavailable",
            f"uv pip install torch==2.5.1 --index-url {WHL}/cu124",
        ),
        (UV.format("tensorflow", "2.15.0"), "pip_wheel_unavailable_for_python", "uv sync --python 3.11"),
        (
            "  - Installing torch (2.5.1+cu124): Failed\n\n    | Unable to find installation candidates for torch (2.5.1+cu124)\n",
            "pip_wheel_unavailable_for_python",
            "poetry env use 3.11 && poetry install",
        ),
        (
            "pdm.exceptions.CandidateNotFound: No candidate is found for `torch` that matches the environment or hashes\n",
            "pip_wheel_unavailable_for_python",
            "pdm lock && pdm install",
        ),
        (UV_SYSTEM.format("manylinux_2_27_x86_64"), "glibc_too_old", "uv add torch==2.6.0"),
        (UV_SYSTEM.format("linux_riscv64"), "pip_wheel_unavailable_for_python", "uv lock --upgrade-package torch && uv sync"),
    ],
)
def test_the_command_is_repeated_with_one_change(log: str, cause: str, command: str) -> None:
    found = first(log)
    assert found[0] == cause
    assert found[1][0].endswith(command), found[1]


def test_no_index_that_only_a_log_names_is_used() -> None:
    log = "pip install torch==2.1.2 --index-url https://example.org/whl/cu118\n" + LISTED.format("torch==2.1.2", "2.2.0, 2.2.1")
    assert not any("example.org" in command for command in first(log)[1])


def test_a_release_for_another_python_is_no_pin_without_an_index() -> None:
    ignored = "ERROR: Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7,<3.11\n"
    assert first(ignored + LISTED.format("numpy==1.21.2", "1.3.0, 1.26.0, 2.0.0"))[0] == "pip_wheel_unavailable_for_python"
    findings = judged(ignored + LISTED.format("torch==2.4.1+cu121", "2.3.1, 2.4.1, 2.5.0")).findings
    assert [one.cause for one in findings] == ["pip_pin_unavailable"]


@pytest.mark.parametrize("system", ["hint: The wheel is compatible with Linux (`linux_x86_64`), but you're on Windows (`win_amd64`)\n", ""])
def test_a_wheel_for_one_pytorch_is_not_asked_for_by_its_version(system: str) -> None:
    file = "https://example.org/flash_attn-2.8.3%2Bcu12torch2.8-cp312-cp312-linux_x86_64.whl"
    log = f"  Caused by: A URL dependency is incompatible with the current platform: {file}\n"
    cause, commands = first(log + system)
    assert cause == "pip_wheel_unavailable_for_python"
    assert not any("cu12torch2.8" in command for command in commands)


BITS = "Python 3.10.6 (tags/v3.10.6:9c7b4bd, Aug  1 2022, 21:38:17) [MSC v.1932 {} bit ({})]\n"


def test_a_32_bit_python_is_replaced_by_a_64_bit_one() -> None:
    found = judged(BITS.format(32, "Intel") + NONE.format("torch==2.0.1") + "ERROR: No matching distribution found for torch==2.0.1\n")
    assert "32-bit" in found.findings[0].summary
    assert [one.command for one in found.findings[0].remedy] == ["winget install --exact --id Python.Python.3.10 --architecture x64"]


def test_the_python_that_has_wheels_is_not_proposed_again() -> None:
    cause, commands = first(BITS.format(64, "AMD64") + NONE.format("torch==2.0.1"))
    assert cause == "pip_wheel_unavailable_for_python"
    assert "platform.architecture()" in commands[0]
    assert not any("--python 3.10" in one for one in commands)


@pytest.mark.parametrize("asked", ["torch===1.4.0", "torch==1.4.0", "torch"])
def test_stubs_are_no_releases(asked: str) -> None:
    cause, commands = first(LISTED.format(asked, "0.1.2, 0.1.2.post1, 0.1.2.post2"))
    assert cause == "pip_wheel_unavailable_for_python"
    assert "platform.architecture()" in commands[0]
    assert not any("0.1.2" in one for one in commands)


def test_a_file_of_requirements_is_installed_from_the_index_that_has_its_pin() -> None:
    listed = LISTED.format("torch==2.7.1+cu128", "2.6.0, 2.7.0, 2.7.1, 2.8.0")
    cause, commands = first("$ pip install -r requirements.txt\n" + listed)
    assert (cause, commands[0]) == ("pip_pin_unavailable", f"python -m pip install -r requirements.txt --extra-index-url {WHL}/cu128")
    assert judged(listed).findings[0].undecided is None
