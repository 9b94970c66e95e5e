"""The user's defaults: found upward, checked, below variables and options, and never in the way of a project that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.plan import add_arguments
from cudnn_resolve.errors import ExitCode, InputError, UsageError
from cudnn_resolve.operations.options import LockRequest, Options, PlanRequest
from cudnn_resolve.operations.settings import KEYS, for_this_machine, project_settings, with_settings


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def read(directory: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.chdir(directory)
    return project_settings()


def project(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(text)
    return directory


def test_found_from_the_directory_upward(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    project(
        tmp_path,
        '[tool.cudnn-resolve]\nchannel = "apt"\nmatrix = ["m", "/abs"]\nframework = ["torch"]\nstrict-pins = true\ncuda = "12.4"\n',
    )
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert read(deep, here) == {
        "channel": "apt",
        "project-matrix": [f"{tmp_path}/m", "/abs"],
        "framework": ["torch"],
        "strict-pins": True,
        "cuda": "12.4",
    }


def test_the_nearest_one_that_speaks_of_the_program_counts(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    project(tmp_path, '[tool.cudnn-resolve]\nchannel = "apt"\n')
    middle = project(tmp_path / "a", "[project]\nname = 'a'\n")
    assert read(middle, here)["channel"] == "apt"
    inner = project(middle / "b", "[tool.cudnn-resolve]\n")
    assert read(inner, here) == {}


def test_none(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, here) == {}


@pytest.mark.parametrize("text", ["[", "\x00", "dependencies = ['cudnn-resolve']", "tool = 3 # cudnn-resolve"])
def test_a_project_without_the_table(text: str, tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    assert read(project(tmp_path, text), here) == {}


def test_what_cannot_be_read_is_passed_over(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    assert read(tmp_path, here) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.cudnn-resolve\n", "is not TOML"),
        ("tool.cudnn-resolve = 3", "[tool.cudnn-resolve] is not a table"),
        ("[tool.cudnn-resolve]\nchanel = 'pip'", "chanel: is not a setting; did you mean channel?"),
        ("[tool.cudnn-resolve]\nchannel = 'conda'", "channel: 'conda' is not one of auto, pip, apt"),
        ("[tool.cudnn-resolve]\ndriver-policy = ['minor']", "driver-policy: a list is not one of minor, strict"),
        ("[tool.cudnn-resolve]\nmatrix = 'm'", "matrix: 'm' is not a list of texts"),
        ("[tool.cudnn-resolve]\nmatrix = ['a', 3]", "matrix: a list is not a list of texts"),
        ("[tool.cudnn-resolve]\noffline = 1", "offline: 1 is not true or false"),
        ("[tool.cudnn-resolve]\ncuda = 12.4", "cuda: 12.4 is not a text"),
        ("[tool.cudnn-resolve]\n'\\u001b' = 1\noffline = 2", "offline: 2 is not true or false"),
    ],
)
def test_wrong(text: str, message: str, tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as caught:
        read(project(tmp_path, text), here)
    assert message in str(caught.value)
    assert f"{tmp_path}/pyproject.toml" in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_not_utf8(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.cudnn-resolve]\n# \xff")
    with pytest.raises(InputError):
        read(tmp_path, here)


def test_wrong_keys_list_the_right_ones(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as caught:
        read(project(tmp_path, "[tool.cudnn-resolve]\nframeworks = ['torch']\npython-version = 3.11\n"), here)
    assert "frameworks: is not a setting; did you mean framework?" in caught.value.message
    assert "python-version: 3.11 is not a text; write it in quotes" in caught.value.message
    assert caught.value.hint == f"the settings are {', '.join(KEYS)}"


def test_settings_take_everything_that_the_options_of_plan_take() -> None:
    parser = Parser(prog="cudnn-resolve plan", description="")
    add_arguments(parser)
    once = {
        "lock",
        "help",
        "help_all",
        "format",
        "output",
        "quiet",
        "verbose",
        "no_color",
        "reinstall_package",
        "packages",
        "env",
        "kernel",
    }

    assert set(vars(parser.parse([]))) - once == {name.replace("-", "_") for name in KEYS}
    assert {name.replace("-", "_") for name in KEYS} == set(Options.__struct_fields__) - {
        "given",
        "ranges",
        "reinstall_package",
        "project_matrix",
        "packages",
        "env",
        "kernel",
    }


def test_files_are_relative_to_the_project(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    text = (
        "[tool.cudnn-resolve]\nrequirement = ['r.txt', '/abs/r.txt']\nconstraint = ['c.txt']\ngroup = ['gpu', 'x/pyproject.toml:y']\n"
        "find-links = ['wheels', 'https://example.org/wheels']\nfacts = 'f.json'\npython = '.venv/bin/python'\n"
    )
    project(tmp_path, text)
    (tmp_path / "src").mkdir()

    assert read(tmp_path, here)["requirement"] == ["r.txt", "/abs/r.txt"]
    assert read(tmp_path / "src", here) == {
        "requirement": [f"{tmp_path}/r.txt", "/abs/r.txt"],
        "constraint": [f"{tmp_path}/c.txt"],
        "group": [f"{tmp_path}/pyproject.toml:gpu", f"{tmp_path}/x/pyproject.toml:y"],
        "find-links": [f"{tmp_path}/wheels", "https://example.org/wheels"],
        "facts": f"{tmp_path}/f.json",
        "python": f"{tmp_path}/.venv/bin/python",
    }


def test_variables_lie_over_the_project(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    project(tmp_path, "[tool.cudnn-resolve]\nframework = ['torch']\noffline = true\ncuda = '12'\n")
    here.setenv("CUDNN_RESOLVE_FRAMEWORK", "jax 'torch >= 2.4'")
    here.setenv("CUDNN_RESOLVE_OFFLINE", "no")
    here.setenv("CUDNN_RESOLVE_GPU", "'RTX 4090' sm_90")
    here.setenv("CUDNN_RESOLVE_DRIVER", "550.54.15")
    here.setenv("CUDNN_RESOLVE_INDEX_URL", "")
    here.setenv("CUDNN_RESOLVE_DEBUG", "1")

    assert read(tmp_path, here) == {
        "framework": ["jax", "torch >= 2.4"],
        "offline": False,
        "cuda": "12",
        "gpu": ["RTX 4090", "sm_90"],
        "driver": "550.54.15",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CHANEL", "pip", "chanel: is not a setting; did you mean channel?"),
        ("CHANNEL", "conda", "channel: 'conda' is not one of auto, pip, apt"),
        ("OFFLINE", "maybe", "offline: 'maybe' is not true or false"),
        ("GPU", "'T4", 'gpu: "\'T4" is not a list of texts'),
    ],
)
def test_a_wrong_variable(name: str, value: str, message: str, tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    here.setenv(f"CUDNN_RESOLVE_{name}", value)
    with pytest.raises(InputError) as caught:
        read(tmp_path, here)
    assert message in str(caught.value)
    assert caught.value.context == "the environment"


def test_an_option_takes_the_place_of_what_the_settings_say_of_the_same_thing() -> None:
    settings = {"python-version": "3.11", "gpu": ["T4"], "glibc": "2.35"}

    assert with_settings(PlanRequest(python="p"), settings) == PlanRequest(python="p")
    assert with_settings(PlanRequest(facts="f"), settings) == PlanRequest(facts="f")
    assert with_settings(PlanRequest(platform="linux_aarch64"), {"python": "p"}) == PlanRequest(platform="linux_aarch64")
    assert with_settings(PlanRequest(device="cpu"), {"gpu": ["T4"], "cuda": "12"}) == PlanRequest(device="cpu")
    assert with_settings(PlanRequest(gpu=("T4",)), {"device": "cpu"}) == PlanRequest(gpu=("T4",))
    with pytest.raises(UsageError) as caught:
        with_settings(PlanRequest(), {"python": "p", "python-version": "3.11"})
    assert "settings" in (caught.value.context or "")


def test_several_platforms_are_for_a_lock() -> None:
    assert with_settings(PlanRequest(), {"platform": ["linux_x86_64"]}).platform == "linux_x86_64"
    assert with_settings(PlanRequest(platform="linux_aarch64"), {"platform": ["a", "b"]}).platform == "linux_aarch64"
    with pytest.raises(UsageError, match="2 platforms"):
        with_settings(PlanRequest(), {"platform": ["a", "b"]})


def test_a_lock_takes_the_platforms_of_the_project(tmp_path: Path, here: pytest.MonkeyPatch) -> None:
    from cudnn_resolve.operations.lock_settings import with_lock_settings

    project(tmp_path, "[tool.cudnn-resolve]\nplatform = ['linux_x86_64', 'linux_aarch64']\npython-version = '3.11'\n")
    here.chdir(tmp_path)

    assert with_lock_settings(LockRequest(), None).platforms == ("linux_x86_64", "linux_aarch64")
    assert with_lock_settings(LockRequest(platforms=("linux_aarch64",)), None).platforms == ("linux_aarch64",)
    assert with_lock_settings(LockRequest(python="p"), None) == LockRequest(python="p")


def test_a_target_elsewhere_is_not_this_machine() -> None:
    assert for_this_machine({"python-version": "3.11", "facts": "f", "gpu": ["T4"], "cuda": "12", "python": "p"}) == {
        "cuda": "12",
        "python": "p",
    }
