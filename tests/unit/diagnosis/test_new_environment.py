"""A new environment: its Python, and its commands for the log's system and tool."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

NOT_FOUND = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\n"
OLD = NOT_FOUND.format("torch==1.13.1", "2.0.0, 2.0.1")
NONE = NOT_FOUND.format("onnxruntime-gpu", "none")


def commands(log: str) -> str:
    return "\n".join(one.command or "" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    "shown",
    [
        "[notice] To update, run: python.exe -m pip install --upgrade pip\n",
        "(venv) C:\\proj> pip install torch==1.13.1\n",
        "D:\\>pip.exe install torch==1.13.1\n",
    ],
)
def test_a_prompt_or_program_of_windows_is_enough_for_its_paths(shown: str) -> None:
    assert "&& .venv-3.9\\Scripts\\python -m pip install torch==1.13.1" in commands(shown + OLD)
    assert "/bin/python" not in commands(shown + OLD)


def test_where_the_system_is_not_shown_both_paths_are_named() -> None:
    text = judged(OLD).findings[0].remedy
    assert any("on Windows, with .venv-3.9\\Scripts\\python" in one.text for one in text)
    assert not any("on Windows" in one.text for one in judged("/home/me/v/lib/python3.12/site-packages/x.py\n" + OLD).findings[0].remedy)


def test_where_nothing_is_offered_bits_system_and_python_are_asked_first() -> None:
    first, second, *_ = judged(NONE).findings[0].remedy
    assert "platform.architecture()[0], platform.machine()" in str(first.command)
    assert "with 64 bits" in first.text
    assert "On macOS, which has no CUDA, install onnxruntime instead" in first.text
    assert "--python 3.12" in str(second.command)


@pytest.mark.parametrize(
    ("asked", "python"),
    [
        ("torch==1.4.0", "conda create -n py3.7"),
        ("torch==1.7.1", "uv venv --seed --python 3.8"),  # uv has no Python 3.7
        ("torch==1.13.1", "uv venv --seed --python 3.10"),
        ("torch==2.3.1", "uv venv --seed --python 3.12"),
    ],
)
def test_a_python_that_was_new_at_the_time_is_not_proposed(asked: str, python: str) -> None:
    log = NOT_FOUND.format(asked, "2.9.0")
    assert f"{python} " in commands("/home/me/v/lib/python3.14/site-packages/pip/x.py\n" + log)


MISSING = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("shown", "command"),
    [
        (
            '  File "/home/u/.local/share/uv/python/cpython-3.12.1-linux/lib/python3.12/ctypes/__init__.py", line 3, in a\n',
            "uv pip install ",
        ),
        ("$ uv pip install vllm\n", "uv pip install "),
        ("$ uv run train.py\n", "uv add "),
        ("$ uv sync\n/p/.venv/lib/python3.12/site-packages/torch/x.py\n", "uv add "),
        ("$ uv venv\n/p/.venv/lib/python3.12/site-packages/torch/x.py\n$ pip install vllm\n", "/p/.venv/bin/python -m pip install "),
        ("$ pip install vllm\n/root/.local/share/uv/python/cpython-3.12.1-linux/lib/python3.12/os.py\n", "python -m pip install "),
        ("To repair it, run uv pip install torch\n", "python -m pip install "),
    ],
)
def test_an_environment_of_uv_has_no_pip(shown: str, command: str) -> None:
    assert any(line.startswith(f"{command}nvidia-cublas-cu12 && ") for line in commands(shown + MISSING).splitlines())
