"""A user's words to targets, limits and needs."""

from __future__ import annotations

import pytest

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement.target import accepts, parse_limit, parse_target
from tests.worlds.load import world

BOOK = world()


@pytest.mark.parametrize(
    ("text", "framework", "specifier", "package", "extras"),
    [
        ("north", "north", "", None, ()),
        (" North == 2.0 ", "north", "==2.0", None, ()),
        ("south-gpu>=1,<2", "south", "<2,>=1", "south-gpu", ()),
        ("South_GPU", "south", "", "south-gpu", ()),
        ("south[cuda]==2.0", "south", "==2.0", None, ("cuda",)),
        ("north~=2.0", "north", "~=2.0", None, ()),
    ],
)
def test_a_target(text: str, framework: str, specifier: str, package: str | None, extras: tuple[str, ...]) -> None:
    found = parse_target(text, BOOK)

    assert (found.framework, str(found.specifier), found.package, found.extras) == (framework, specifier, package, extras)
    assert found.text == text.strip()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nroth", ["no framework is called `nroth`", "did you mean `north`", "south"]),
        ("left-pad", ["no framework", "--requirement"]),
        ("north==", ["is not a framework requirement", "tensorflow==2.15"]),
        ("north==abc", ["is not a framework requirement"]),
        ("", ["is not a framework requirement"]),
        ("north 2.0", ["is not a framework requirement"]),
        ("north @ https://files.example/north.whl", ["names a file"]),
        ("-f", ["is not a framework requirement"]),
    ],
)
def test_a_target_that_is_none(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text, BOOK)

    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("12.4", ["12.4", "12.4.1"], ["12.5", "12"]),
        ("12", ["12", "12.8.1"], ["13.0"]),
        ("9.3.0.75", ["9.3.0.75"], ["9.3.0", "9.3.1"]),
        (">=12,<13", ["12.0", "12.9.1"], ["13.0", "11.8"]),
        ("!=9.20.0.48", ["9.20.0.49"], ["9.20.0.48"]),
        (" <12 ", ["11.8"], ["12.0"]),
    ],
)
def test_a_limit(text: str, inside: list[str], outside: list[str]) -> None:
    found = parse_limit(text, "--cuda")

    assert all(found.specifier.contains(one) for one in inside)
    assert not any(found.specifier.contains(one) for one in outside)
    assert found.text == text.strip()


@pytest.mark.parametrize("text", ["", " ", "new", "12.x", ">=", "12.4;", "=12"])
def test_a_limit_that_is_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_limit(text, "--cudnn")

    assert "--cudnn" in str(caught.value)
    assert "such as --cudnn 9.3 or --cudnn '>=9,<10'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("north==2.0", ["2.0", "2.0+cpu", "2.0+cu118"]),
        ("north==2.0+cu118", ["2.0+cu118"]),
        ("north==2.0+cu124", ["2.0"]),
        ("north>2", ["3.0"]),
        ("north<3", ["1.0", "2.0", "2.0+cpu", "2.0+cu118"]),
        ("north!=2.0", ["1.0", "3.0"]),
        ("north==4", []),
        ("south==1.0", ["1.0"]),
        ("south<2", ["1.1", "1.1"]),
        ("south-gpu", ["1.1"]),
        ("north===2.0", ["2.0"]),
        ("north===2.0.0", []),
    ],
)
def test_the_builds_that_a_target_accepts(text: str, accepted: list[str]) -> None:
    target = parse_target(text, BOOK)
    builds = BOOK.framework(target.framework).builds

    assert sorted(build.wheel_version for build in builds if accepts(target, build, BOOK)) == accepted
