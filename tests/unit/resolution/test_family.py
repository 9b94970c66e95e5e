"""One major of CUDA and of cuDNN in one process, wherever that can be had."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.planning.model import Plan
from tests.worlds.load import changed, facts, plan, request, texts, versions, world

BOOK = world()
PYTHON = {"version": "3.10.9", "path": "/env/bin/python"}


def planned(*targets: str, book: Any = BOOK, pip: dict[str, str] | None = None, **options: Any) -> Plan:
    parts = {"packages": {"pip": pip or {}, "apt": {}}, "driver": {"version": "580.65.06"}, "python": PYTHON}
    return plan(book, facts(**parts), request(book, *targets, **options))


def north(*, cuda: str = "11.8", cudnn: str = "8.7") -> Any:
    """The world whose north 2.0+cu118 is of other majors, its libraries inside."""
    text = texts()["framework/north"]
    head, _, rest = text.partition('local = "cu118"')
    return changed({"framework/north": head + 'local = "cu118"' + rest.replace('"11.8"', f'"{cuda}"', 1).replace('"8.7"', f'"{cudnn}"', 1)})


def test_a_bundled_build_of_the_same_majors_comes_before_a_newer_one_of_others() -> None:
    found = planned("south==1.1", "north")

    assert found.stack is not None
    assert [one.version for one in found.stack.frameworks] == ["1.1", "2.0+cu118"]


def test_two_cuda_majors_are_no_plan_even_where_one_is_inside_a_wheel() -> None:
    found = planned("north==2.0+cu118", "south==2.0")

    assert found.conflict is not None
    assert "cannot share one environment" in found.conflict.message
    assert any("CUDA 11 with cuDNN 8" in one.what for one in found.conflict.causes)


def test_two_cudnn_majors_are_a_plan_where_one_is_inside_a_wheel_and_told_first() -> None:
    book = north(cuda="12.4", cudnn="8.9")
    found = planned("north==2.0+cu118", "south==2.0", book=book)

    assert found.conflict is None
    assert found.warnings[0].code == "cudnn-majors"


def test_one_cudnn_major_comes_before_two() -> None:
    book = north(cuda="12.4", cudnn="8.9")
    found = planned("north==2.0", "south==2.0", book=book)

    assert found.stack is not None
    assert {one.name: one.variant for one in found.stack.frameworks}["north"] == "cu124"
    assert "cudnn-majors" not in {one.code for one in found.warnings}


def test_what_is_installed_stays_although_its_majors_are_two() -> None:
    book = north(cuda="12.4", cudnn="8.9")
    pip = {"north": "2.0+cu118", "numpy": "1.26.4"}
    found = planned("north", "south==2.0", book=book, pip=pip)

    assert {one.name: one.action for one in found.pip}["north"] == "keep"
    assert versions(found)["nvidia-cudnn-cu12"] == "9.3.0.75"


def test_builds_without_gpu_stand_beside_every_major() -> None:
    south = texts()["framework/south"] + '\n[[build]]\nversion = "2.0"\nvariant = "cpu"\nsource = "made"\n'
    wheel = texts()["wheel/south"].replace('extras = ["cuda"]', 'extras = ["cuda", "cpu"]')
    book = changed({"framework/south": south, "wheel/south": wheel})
    found = planned("south[cpu]", "north==2.0", book=book)

    assert found.stack is not None
    assert {one.name: one.variant for one in found.stack.frameworks} == {"south": "cpu", "north": "cu124"}
