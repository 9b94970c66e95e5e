"""Floors of the dependencies against what notebook images hold: installing the program there moves nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
IMAGES: list[dict[str, Any]] = tomllib.loads((HERE / "images.toml").read_text("utf-8"))["image"]
PROJECT: dict[str, Any] = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]
WITHOUT_NEEDS = frozenset({"msgspec", "pyelftools", "tomli-w"})
"""What images do not hold and need not: it requires nothing, so that it brings nothing that could move anything."""


def needed(python: str) -> list[Requirement]:
    """What an installation of the program asks for on a Python."""
    environment = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    requirements = map(Requirement, PROJECT["dependencies"])
    return [one for one in requirements if one.marker is None or one.marker.evaluate(environment)]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: f"{image['name']}-{image['date']}")
def test_an_installation_moves_nothing_that_an_image_holds(image: dict[str, Any]) -> None:
    held = image["packages"]
    asked = {canonicalize_name(one.name): one.specifier for one in needed(image["python"])}

    moved = [f"{name} {held[name]} is not {wanted}" for name, wanted in asked.items() if name in held and held[name] not in wanted]

    assert not moved
    assert asked.keys() - held.keys() <= WITHOUT_NEEDS


def test_every_dependency_has_a_floor() -> None:
    assert all(one.specifier for one in map(Requirement, PROJECT["dependencies"]))


def test_a_floor_that_is_too_high_is_seen() -> None:
    assert IMAGES[0]["packages"]["requests"] not in Requirement("requests>=2.28").specifier
