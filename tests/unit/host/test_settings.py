"""The project's own defaults: found upward, checked, and never in the way of a project that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.errors import ExitCode, InputError
from cudnn_resolve.host.settings import read_project_settings


def project(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(text)
    return directory


def test_found_from_the_directory_upward(tmp_path: Path) -> None:
    project(
        tmp_path,
        '[tool.cudnn-resolve]\nchannel = "apt"\nmatrix = ["m", "/abs"]\nframework = ["torch"]\nstrict-pins = true\ncuda = "12.4"\n',
    )
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert read_project_settings(deep) == {
        "channel": "apt",
        "matrix": [f"{tmp_path}/m", "/abs"],
        "framework": ["torch"],
        "strict-pins": True,
        "cuda": "12.4",
        "path": f"{tmp_path}/pyproject.toml",
    }


def test_the_nearest_one_that_speaks_of_the_program_counts(tmp_path: Path) -> None:
    project(tmp_path, '[tool.cudnn-resolve]\nchannel = "apt"\n')
    middle = project(tmp_path / "a", "[project]\nname = 'a'\n")
    assert read_project_settings(middle)["channel"] == "apt"
    inner = project(middle / "b", "[tool.cudnn-resolve]\n")
    assert read_project_settings(inner) == {"path": f"{inner}/pyproject.toml"}


def test_none(tmp_path: Path) -> None:
    assert read_project_settings(tmp_path) == {}


@pytest.mark.parametrize("text", ["[", "\x00", "dependencies = ['cudnn-resolve']", "tool = 3 # cudnn-resolve"])
def test_a_project_without_the_table(text: str, tmp_path: Path) -> None:
    assert read_project_settings(project(tmp_path, text)) == {}


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    assert read_project_settings(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.cudnn-resolve\n", "is not TOML"),
        ("tool.cudnn-resolve = 3", "[tool.cudnn-resolve] is not a table"),
        ("[tool.cudnn-resolve]\nchanel = 'pip'", "chanel: is not a setting; did you mean channel?"),
        ("[tool.cudnn-resolve]\nchannel = 'conda'", "channel: 'conda' is not one of pip, apt, auto"),
        ("[tool.cudnn-resolve]\ndriver-policy = ['minor']", "driver-policy: a list is not one of minor, strict"),
        ("[tool.cudnn-resolve]\nmatrix = 'm'", "matrix: 'm' is not a list of texts"),
        ("[tool.cudnn-resolve]\nmatrix = ['a', 3]", "matrix: a list is not a list of texts"),
        ("[tool.cudnn-resolve]\noffline = 1", "offline: 1 is not true or false"),
        ("[tool.cudnn-resolve]\ncuda = 12.4", "cuda: 12.4 is not a text"),
        ("[tool.cudnn-resolve]\n'\\u001b' = 1\noffline = 2", "offline: 2 is not true or false"),
    ],
)
def test_wrong(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_project_settings(project(tmp_path, text))
    assert message in str(caught.value)
    assert f"{tmp_path}/pyproject.toml" in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.cudnn-resolve]\n# \xff")
    with pytest.raises(InputError):
        read_project_settings(tmp_path)
