from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.project import read_group, read_project

PROJECT = {"project": {"dependencies": ["numpy"], "optional-dependencies": {"Dev_Tools": ["pytest>=8"]}}}
GROUPS = {
    "dependency-groups": {"all": ["torch", {"include-group": "Test"}], "test": ["pytest"], "round": [{"include-group": "round"}], "odd": 5}
}


def names(found: Any) -> list[str]:
    lines = list(found)
    assert all(isinstance(line, RequirementLine) for line in lines)
    return [line.name for line in lines]


def test_extras_and_groups_are_found_by_their_normal_names_and_groups_include_others() -> None:
    assert names(read_project(PROJECT, "p", ["dev.tools"])) == ["numpy", "pytest"]
    assert names(read_group(GROUPS, "p", "ALL")) == ["torch", "pytest"]


@pytest.mark.parametrize(
    ("found", "code", "says"),
    [
        (read_project({}, "p"), "project-invalid", "has no [project] table"),
        (read_project({"project": {"dynamic": ["dependencies"]}}, "p"), "project-dynamic", "only the build backend knows them"),
        (read_project({"project": {"dependencies": "numpy"}}, "p"), "project-invalid", "is not a list of strings"),
        (read_project(PROJECT, "p", ["docs"]), "project-extra", "there is no extra `docs`"),
        (read_group(PROJECT, "p", "dev"), "project-group", "there is no dependency group `dev`"),
        (read_group(GROUPS, "p", "round"), "project-group", "includes itself"),
        (read_group(GROUPS, "p", "odd"), "project-invalid", "is not a list"),
    ],
)
def test_what_a_file_does_not_define_is_said(found: Any, code: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        list(found)
    assert error.value.code == code
    assert says in error.value.message
