"""Some of the system calls of an `apply` fail, or are its last; `scripts/fault_apply.py` goes through all of them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault_world import FaultWorld, Point, Trial, place_of
from tests.index_server import IndexServer

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"),
]
_EACH = 1
"""Calls of each place that are tried."""


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with IndexServer() as served:
        world = FaultWorld(tmp_path, request.param, served)
        world.build()
        yield world
        world.close()


def some(points: list[Point], mode: str) -> list[Point]:
    """A few calls of each place, spread over the run."""
    out = []
    for place in ("environment", "journal", "staging", "cache"):
        found = [one for one in points if one.place == place and (one.room or mode != "ENOSPC")]
        out += [found[number * len(found) // _EACH + len(found) // (2 * _EACH)] for number in range(_EACH) if found]
    return out


@pytest.mark.parametrize(("world", "during"), [("uv", "apply"), ("uv", "undo"), ("uv", "resume"), ("pip", "apply")], indirect=["world"])
def test_a_call_that_fails_leaves_one_of_the_two_environments_or_says_so(world: FaultWorld, during: str) -> None:
    trial = Trial(world, during)
    assert len(trial.points) > 100
    for mode in ("kill", "EIO", "ENOSPC"):
        for number, point in enumerate(some(trial.points, mode)):
            then = ("undo", "apply", "recover.py")[number % 3]
            first, wrong = trial.strike(mode, point.number, then)
            assert first.reached or place_of(first.what) == "cache"
            assert not wrong, f"{mode} at call {point.number}, {first.what}, then {then}: {wrong}"


@pytest.mark.parametrize("world", ["uv"], indirect=True)
def test_an_image_of_the_world_at_a_call_is_what_a_kill_there_leaves(world: FaultWorld) -> None:
    trial = Trial(world, "undo", images=True)
    changed = [one.number for one in trial.points if one.place == "environment"]
    for number in (changed[len(changed) // 3], changed[-1]):
        world.bring_back("begin")
        assert world.run(world.words("undo"), mode="kill", at=number).reached
        killed, records = world.former(), len(_journal(world).splitlines())
        world.reset()
        world.bring_back_image(trial.images[number - 1])
        assert world.former() == killed
        assert len(_journal(world).splitlines()) == records


def _journal(world: FaultWorld) -> str:
    return max(world.state.glob("cudnn-resolve/environments/*/*/journal.jsonl")).read_text()
